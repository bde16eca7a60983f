"""The experts' answers on the rows of a split, and which of them agree. Light: does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Asks:
    """Who was asked on n rows of a log. [n, p] all"""

    turn: Tensor  # int64, from 0; −1 if not asked
    propensity: Tensor  # float64: the chance of that call, given the answers before it
    right: Tensor  # float64: 1 − loss, where asked

    def __getitem__(self, rows: Tensor | slice) -> Asks:
        return Asks(*(part[rows] for part in vars(self).values()))


@dataclass(frozen=True)
class Replies:
    """The answers of p experts on n rows."""

    kinds: Tensor  # int64 [n, p]: equal numbers in a row are equal answers; -1: no answer, or not asked
    signals: Tensor  # float32 [n, p, 2]: log(1 + length in characters) and confidence; NaN where not known
    asks: Asks | None = None  # of a log

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, rows: Tensor | slice) -> Replies:
        return Replies(self.kinds[rows], self.signals[rows], None if self.asks is None else self.asks[rows])

    def followed_by(self, other: Replies) -> Replies:
        import torch

        asks = None
        if self.asks is not None and other.asks is not None:
            both = zip(vars(self.asks).values(), vars(other.asks).values(), strict=True)
            asks = Asks(*(torch.cat(parts) for parts in both))
        return Replies(torch.cat([self.kinds, other.kinds]), torch.cat([self.signals, other.signals]), asks)
