"""The accuracy of each expert on its own classes, on the others', and overall."""

from math import isnan
from typing import NamedTuple

import torch
from torch import Tensor

from l2d.data.arrays import Answers


class ExpertAccuracy(NamedTuple):
    """Shares of right answers; None if there is no such row."""

    own: float | None
    others: float | None
    overall: float | None


def accuracy_by_expert(answers: Answers, labels: Tensor, knows: Tensor | None) -> list[ExpertAccuracy]:
    """One per expert, for answers on n rows with labels [n]. knows: bool [p, num_classes], the classes that each expert knows."""
    right = 1 - answers.errors.double()  # NaN in a log, where the expert was not asked
    everything = torch.ones_like(right, dtype=torch.bool)
    own, others = (~everything, ~everything) if knows is None else (knows[:, labels].T, ~knows[:, labels].T)
    shares = [right.where(rows, torch.nan).nanmean(dim=0).tolist() for rows in (own, others, everything)]
    return [ExpertAccuracy(*(None if isnan(one) else one for one in three)) for three in zip(*shares, strict=True)]
