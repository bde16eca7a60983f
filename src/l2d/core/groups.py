"""Sums and means by group."""

import torch
from torch import Tensor


def group_sums(member: Tensor, values: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """By group: the sums of values [n, p] without NaN, and how many values there are, both [groups, p]. member: int [n]."""
    zeros = torch.zeros(groups, values.shape[1], dtype=values.dtype)
    known = ~values.isnan()
    return zeros.index_add(0, member, values.where(known, 0.0)), zeros.index_add(0, member, known.to(values))


def smoothed_means(member: Tensor, values: Tensor, groups: int, overall: Tensor, rows: float = 1.0) -> Tensor:
    """The means by group, pulled towards `overall` [p] as if by so many rows. [n], [n, p] -> [groups, p]"""
    sums, sizes = group_sums(member, values, groups)
    return torch.where(sizes + rows > 0, (sums + rows * overall) / (sizes + rows), overall)
