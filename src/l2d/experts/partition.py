"""Which classes each expert of a setup knows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from l2d.errors import L2DError


def class_owners(coverage: Sequence[float], num_classes: int) -> Tensor:
    """The expert that knows each class, int [num_classes]: the classes in order, cut by the cumulative coverage."""
    shares = [float(share) for share in coverage]
    if len(shares) < 2:
        raise L2DError(f"setup.coverage={shares}: {len(shares)} expert; routing needs at least 2")
    if any(not share > 0 for share in shares):
        raise L2DError(f"setup.coverage={shares}: every share must be above 0")
    if abs(sum(shares) - 1) > 1e-6:
        raise L2DError(f"setup.coverage={shares}: the shares sum to {sum(shares):g}, not 1")
    ends = [round(sum(shares[: k + 1]) * num_classes) for k in range(len(shares))]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    for k, size in enumerate(sizes):
        if size < 1:
            raise L2DError(
                f"setup.coverage={shares}: expert {k + 1} with {shares[k]:.0%} of {num_classes} classes is left without a class"
            )
    return torch.repeat_interleave(torch.arange(len(shares)), torch.tensor(sizes))
