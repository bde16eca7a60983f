"""The nearest training rows."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from l2d.networks.estimators.estimator import FitRows, Scaled, shuffled, simplest, squared
from l2d.utils.errors import ParameterError

NEIGHBOURS = (5, 10, 20, 50, 100, 200, 400, 800)  # numbers to choose from
KEPT = 50_000  # rows that are searched for neighbours
JUDGED = 1_000  # of these, on which numbers of neighbours are compared
MANY = 100  # neighbours, from which on NumPy finds them several times faster than torch
AT_ONCE = 256  # of the judged rows, compared with all kept rows at once


def top(closeness: Tensor, k: int) -> Tensor:
    """The columns of each row's k largest numbers, the largest first. [B, n] -> [B, k]"""
    return closeness.topk(k, dim=1).indices


def closest(closeness: Tensor, k: int) -> Tensor:
    """The same on a CPU, several times faster if they are many; of equal numbers it may take others."""
    if k < MANY:
        return top(closeness, k)
    far = -closeness.numpy()
    some = np.argpartition(far, k - 1, axis=1)[:, :k]
    order = np.take_along_axis(far, some, axis=1).argsort(axis=1)
    return torch.from_numpy(np.take_along_axis(some, order, axis=1))


class Neighbours(Scaled):
    """The mean over the k nearest training rows on which the expert was asked. k (if None) and scale: by leave-one-out."""

    kept: Tensor
    right: Tensor
    unasked: Tensor  # bool [n, p]; empty if all experts were asked on all rows
    counted: Tensor  # bool [p or 1, k]: how many neighbours count for each expert; the most, k, is static for exported routers

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.asked_for = k

    def fit(self, rows: FitRows) -> None:
        if len(rows) < 2:
            raise ParameterError("", "needs at least two training rows")
        if len(rows) > KEPT:
            rows = rows.take(shuffled(len(rows), "neighbours")[:KEPT])
        right = rows.right.float()
        unasked = right.isnan()
        least = int((~unasked).sum(dim=0).min())  # rows on which the expert that was asked least was asked
        if self.asked_for is not None and self.asked_for >= least:
            these = "training rows on which each expert was asked" if unasked.any() else "training rows"
            raise ParameterError("k", f"must be less than the number of {these}, {least:,}", self.asked_for)
        self.right, self.unasked = right.nan_to_num(nan=0.0), unasked if unasked.any() else unasked[:0]
        judged = shuffled(len(rows), "judged neighbours")[:JUDGED]
        counts = [k for k in NEIGHBOURS if k < least] or [1] if self.asked_for is None else [self.asked_for]
        found: dict[tuple[int, bool], Tensor] = {}
        self.set_scale(rows.inputs)
        points = self.scaled(rows.inputs)
        by_unit = {False: points, True: torch.nn.functional.normalize(points, dim=1)}
        for unit, self.kept in by_unit.items():
            near = [self.nearest(part, max(counts) + 1, closest) for part in self.kept[judged].split(AT_ONCE)]
            sums = self.right_of(without(torch.cat(near), judged)).cumsum(dim=2)
            found |= {(k, unit): squared(sums[:, :, k - 1] / k, right[judged]) for k in counts}
        k, unit = simplest({choice: found[choice] for choice in sorted(found, reverse=True)})
        self.unit, self.kept, self.counted = torch.tensor(unit), by_unit[unit], torch.ones(1, k, dtype=torch.bool)

    def add_expert(self, inputs: Tensor, right: Tensor) -> None:
        """It counts as many neighbours as the others, or all rows if there are fewer."""
        n, p = self.right.shape
        new, k = len(inputs), self.counted.shape[1]
        unasked = self.unasked if len(self.unasked) else torch.zeros(n, p, dtype=torch.bool)
        self.unasked = torch.ones(n + new, p + 1, dtype=torch.bool)
        self.unasked[:n, :p], self.unasked[n:, p] = unasked, False
        grown = torch.zeros(n + new, p + 1)
        grown[:n, :p], grown[n:, p] = self.right, right.float()
        self.right, self.kept = grown, torch.cat([self.kept, self.scaled(inputs)])
        self.counted = torch.cat([self.counted.expand(p, -1), (torch.arange(k) < new)[None]])

    def nearest(self, queries: Tensor, k: int, pick: Callable[[Tensor, int], Tensor] = top) -> Tensor:
        """The k nearest of the kept rows, the nearest first. Scaled queries [B, F] -> [B, p, k], or [B, 1, k] for all experts."""
        closeness = torch.addmm(-self.kept.square().sum(dim=1), queries, self.kept.T, alpha=2)
        if not len(self.unasked):
            return pick(closeness, k)[:, None]
        groups, some = self.unasked, self.unasked.any(dim=0)
        own = torch.arange(len(some), device=some.device)
        if not torch.compiler.is_exporting() and not some.all():  # experts that were asked on all rows share one search
            groups, own = torch.cat([torch.zeros_like(groups[:, :1]), groups[:, some]], dim=1), some.cumsum(0) * some
        asked = [closeness.masked_fill(left_out, -torch.inf) for left_out in groups.T]
        return torch.stack([pick(part, k) for part in asked], dim=1)[:, own]

    def right_of(self, near: Tensor) -> Tensor:
        """The scores of each expert on its own nearest rows. [B, p or 1, k] -> [B, p, k]"""
        experts = self.right.shape[1]
        if torch.compiler.is_exporting():  # what follows is quicker, but would copy `right` for every query
            return self.right[near, torch.arange(experts, device=near.device)[:, None]]
        return self.right.T.expand(len(near), -1, -1).gather(2, near.expand(-1, experts, -1))

    def forward(self, inputs: Tensor) -> Tensor:
        near = self.right_of(self.nearest(self.scaled(inputs), self.counted.shape[1]))
        return (near * self.counted).sum(dim=2) / self.counted.sum(dim=1)


def without(near: Tensor, own: Tensor) -> Tensor:
    """Neighbours [n, p, k + 1] without the row itself, or without the farthest if it is not among them. -> [n, p, k]"""
    is_own = near == own[:, None, None]
    is_own[..., -1] |= ~is_own.any(dim=2)
    place = is_own.to(torch.uint8).argmax(dim=2, keepdim=True)
    return torch.where(torch.arange(near.shape[2] - 1) < place, near[..., :-1], near[..., 1:])
