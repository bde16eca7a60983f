"""The experts' answers on the rows of a split, and which of them agree. Light: does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


class ByRow:
    """A dataclass whose parts have the same rows. A part may be None."""

    def __getitem__(self, rows: Tensor | slice) -> Self:
        return type(self)(*(None if part is None else part[rows] for part in vars(self).values()))

    def followed_by(self, other: Self) -> Self:
        return type(self)(*map(joined, vars(self).values(), vars(other).values()))


def joined(one: Any, two: Any) -> Any:
    """The rows of both: tensors, arrays, tuples, lists or parts of one kind; None if one has none."""
    import torch

    if one is None or two is None:
        return None
    if isinstance(one, ByRow):
        return one.followed_by(two)
    if isinstance(one, tuple | list):
        return one + two
    return np.concatenate([one, two]) if isinstance(one, np.ndarray) else torch.cat([one, two])


@dataclass(frozen=True)
class Asks(ByRow):
    """Who was asked on n rows of a log. [n, p] all"""

    turn: Tensor  # int64, from 0; −1 if not asked
    propensity: Tensor  # float64: the chance of that call, given the answers before it
    right: Tensor  # float64: 1 − loss, where asked


@dataclass(frozen=True)
class Replies(ByRow):
    """The answers of p experts on n rows."""

    kinds: Tensor  # int64 [n, p]: equal numbers in a row are equal answers; -1: no answer, or not asked
    signals: Tensor  # float32 [n, p, 2]: log(1 + length in characters) and confidence; NaN where not known
    asks: Asks | None = None  # of a log

    def __len__(self) -> int:
        return len(self.kinds)
