"""Which classes each expert of a setup knows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from l2d.data.arrays import Answers, Arrays, Panel
from l2d.utils.errors import L2DError

if TYPE_CHECKING:
    from torch import Tensor


def class_experts(p: int) -> tuple[str, ...]:
    return tuple(f"expert {k + 1}" for k in range(p))


def class_owners(coverage: Sequence[float] | None, num_classes: int) -> Tensor:
    """The expert that knows each class, int [num_classes]: the classes in order, cut by the cumulative coverage."""
    import torch

    if coverage is None:
        raise L2DError("setup.coverage: missing; these experts divide the classes (setup=I, II, III or severe)")
    if num_classes < 1:
        raise L2DError("dataset.label: missing; these experts divide the classes, and the data have none")
    shares = [float(share) for share in coverage]
    ends = [round(sum(shares[: k + 1]) * num_classes) for k in range(len(shares))]
    sizes = [end - start for start, end in pairwise([0, *ends])]
    if min(sizes) < 1:
        problem = f"expert {sizes.index(min(sizes)) + 1} gets none of the {num_classes} classes; raise its share"
        raise L2DError(f"setup.coverage={shares}: {problem}")
    return torch.repeat_interleave(torch.arange(len(shares)), torch.tensor(sizes))


def class_panel(arrays: Arrays, coverage: Sequence[float] | None, train: Tensor, test: Tensor) -> Panel:
    """The panel of experts with these predictions, [N, p], on the training and test rows."""
    import torch

    from l2d.core.costs import expert_errors

    owners = class_owners(coverage, arrays.num_classes)
    learned = Answers(expert_errors(train, arrays.train_labels), train)
    judged = Answers(expert_errors(test, arrays.test_labels), test)
    knows = owners == torch.arange(train.shape[1])[:, None]
    return Panel(class_experts(train.shape[1]), learned, judged, tuple(coverage or ()), knows)
