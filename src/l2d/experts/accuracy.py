"""The accuracy of each expert on its own classes, on the others', and overall."""

from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.data.arrays import Answers


@dataclass(frozen=True)
class ExpertAccuracy:
    """Shares of right answers; None if there is no such row."""

    own: float | None
    others: float | None
    overall: float | None


def accuracy_by_expert(answers: Answers, labels: Tensor, knows: Tensor | None) -> list[ExpertAccuracy]:
    """One per expert, for answers on n rows with labels [n]. knows: bool [p, num_classes], the classes that each expert knows."""
    right = 1 - answers.errors.double()
    p = right.shape[1]
    own = torch.zeros(len(right), p, dtype=torch.bool) if knows is None else knows[:, labels].T

    def mean(k: int, rows: Tensor) -> float | None:
        known = rows & ~right[:, k].isnan()  # in a log, where the expert was asked
        return float(right[known, k].mean()) if known.any() else None

    everything = torch.ones(len(right), dtype=torch.bool)
    others = own if knows is None else ~own
    return [ExpertAccuracy(mean(k, own[:, k]), mean(k, others[:, k]), mean(k, everything)) for k in range(p)]
