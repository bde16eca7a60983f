"""Parts that all estimators share: the rows that they are fitted to, the scale of their inputs, and the choice among settings."""

import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from l2d.core.replies import Replies
from l2d.networks.tabular import CONSTANT, FAR
from l2d.utils.errors import ParameterError
from l2d.utils.seeding import derive_seed


@dataclass(frozen=True)
class FitRows:
    inputs: Tensor  # [n, F]
    right: Tensor  # [n, p]: how right each expert was, 0 to 1, NaN where it was not asked
    labels: Tensor  # int [n], −1 where unknown
    prices: Tensor | None = None  # [p]: means in units of `right`; None: all 0
    paid: Tensor | None = None  # the prices [p], or those of each row [n, p]
    replies: Replies | None = None  # what the experts answered, if that is known

    def __len__(self) -> int:
        return len(self.inputs)

    def take(self, positions: Tensor) -> "FitRows":
        names = ["inputs", "right", "labels", "replies"] + ["paid"] * (self.paid is not None and self.paid.ndim == 2)
        taken: dict[str, Any] = {name: part[positions] for name in names if (part := vars(self)[name]) is not None}
        return replace(self, **taken)


def shuffled(n: int, what: str) -> Tensor:
    """A permutation of n rows, the same in every run: choices within the training rows do not depend on the seed."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(derive_seed(0, what)))


class Estimator(nn.Module):
    """Rows [B, F] to how right each expert will be [B, p]. `fit` computes the buffers, which hold all that is chosen: the tensors
    that a class declares, empty until then."""

    def __init__(self) -> None:
        super().__init__()
        for kind in reversed(type(self).__mro__):
            for name in (name for name, hint in inspect.get_annotations(kind).items() if hint is Tensor):
                self.register_buffer(name, torch.zeros(0))
        self.register_load_state_dict_pre_hook(resize_buffers)  # type: ignore[no-untyped-call]

    def fit(self, rows: FitRows) -> None:
        raise NotImplementedError

    def keep(self, folder: Path) -> None:
        """Write what a reader of the run may want to know of the fit, if anything, into its folder."""

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:  # noqa: ARG002 (for estimators that can)
        """One more expert, from how right it was on some rows [n, F], [n]. What is known of the others stays."""
        raise ParameterError("", "cannot take another expert; knn, clusters, linear, category_table and mix can")


def resize_buffers(module: nn.Module, state: Mapping[str, Tensor], prefix: str, *ignored: Any) -> None:  # noqa: ARG001
    """The sizes of buffers follow from the rows, so a module that was not fitted gets them from the weights."""
    for name in dict(module.named_buffers(recurse=False)):
        if (kept := state.get(prefix + name)) is not None:
            setattr(module, name, torch.empty_like(kept))


def scale_of(values: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of each column; 1 for a constant one."""
    spread = values.std(dim=0, correction=0)
    return values.mean(dim=0), torch.where(spread < CONSTANT, torch.ones_like(spread), spread)


class Scaled(Estimator):
    """Standardises columns; with `unit`, rows then have length 1, as embeddings of text are compared."""

    mean: Tensor
    std: Tensor
    unit: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.unit = torch.tensor(False)

    def set_scale(self, inputs: Tensor) -> None:
        self.mean, self.std = scale_of(inputs.float())
        self.unit = torch.tensor(False)

    def scaled(self, inputs: Tensor) -> Tensor:
        values = ((inputs.float() - self.mean) / self.std).clamp(-FAR, FAR)
        return torch.where(self.unit, nn.functional.normalize(values, dim=1), values)


def squared(estimates: Tensor, right: Tensor) -> Tensor:
    """The squared error of each row's estimates, over the experts that were asked. [n, p] both -> [n]"""
    return (estimates - right).square().nanmean(dim=1)


Choice = TypeVar("Choice")


def simplest(errors: Mapping[Choice, Tensor]) -> Choice:
    """The first choice whose mean squared error is within one standard error of the least. errors: of the same rows, by choice, the
    smoothest estimates first. A router takes the best of several estimates, so noise costs it more than the squared error says."""
    least = min(errors.values(), key=lambda one: float(one.mean()))
    for choice, one in errors.items():
        more = one - least
        if len(more) < 2 or more.mean() <= more.std() / len(more) ** 0.5:
            return choice
    raise AssertionError("the least is within one standard error of itself")


@contextmanager
def not_converged_is_fine() -> Iterator[None]:
    """Silence scikit-learn if it stops early, or for few different rows: the choice sees what estimates are worth."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
