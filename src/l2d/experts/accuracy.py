"""The accuracy of each expert on its own classes, on the others', and overall."""

from math import isnan

import torch
from torch import Tensor

from l2d.data.arrays import Answers


def accuracy_by_expert(answers: Answers, labels: Tensor, knows: Tensor | None) -> list[tuple[float | None, ...]]:
    """For each expert, the shares of right answers on its own classes, on the others', and overall, None if there is no such row;
    on n rows with labels [n]. knows: bool [p, num_classes], the classes that each expert knows."""
    right = 1 - answers.errors.double()  # NaN in a log, where the expert was not asked
    everything = torch.ones_like(right, dtype=torch.bool)
    own, others = (~everything, ~everything) if knows is None else (knows[:, labels].T, ~knows[:, labels].T)
    shares = [right.where(rows, torch.nan).nanmean(dim=0).tolist() for rows in (own, others, everything)]
    return [tuple(None if isnan(one) else one for one in three) for three in zip(*shares, strict=True)]
