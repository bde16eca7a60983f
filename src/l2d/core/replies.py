"""What experts answered on the rows of a split, and which of these answers agree. Light: does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Replies:
    """What p experts answered on n rows. kinds int64 [n, p]: equal numbers in a row are equal answers; -1: no answer, or not asked.
    signals float32 [n, p, 2]: log(1 + length in characters) and confidence; NaN where not known."""

    kinds: Tensor
    signals: Tensor

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, rows: Tensor | slice) -> Replies:
        return Replies(self.kinds[rows], self.signals[rows])

    def followed_by(self, other: Replies) -> Replies:
        """The rows of both."""
        import torch

        return Replies(torch.cat([self.kinds, other.kinds]), torch.cat([self.signals, other.signals]))
