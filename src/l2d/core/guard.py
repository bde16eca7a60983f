"""Guard: falls back to the best single expert unless the router is cheaper on rows that it did not see (by a standard error, if a
log estimates the costs), and adds offsets to the experts' scores if these gain two. bench/guard.py measures how often it errs."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from l2d.core.results import KNOWN
from l2d.utils.seeding import stream

FOLDS = 5
PASSES = 10
OFFSETS = 2.0  # standard errors that offsets must gain, since p offsets can overfit


@dataclass(frozen=True)
class Guard:
    """The change to a router's decisions, fitted to rows that it did not see."""

    offsets: tuple[float, ...] | None  # [p], added to the utilities; None if they gain too little
    constant: int | None  # the expert, counted from 0, that gets every input; None if the router is cheaper
    best: int
    gain: float  # how much cheaper the router, with its offsets, is there than the best single expert
    error: float | None  # the standard error of the gain, None for a single row
    needed: float = KNOWN  # standard errors that it has to gain

    @property
    def pays(self) -> bool:
        """True if the router gains enough. If the guard falls back all the same, no routing was within a budget."""
        return self.error is not None and self.gain > self.needed * self.error  # a single row says nothing

    def decide(self, utilities: Tensor, decisions: Tensor) -> Tensor:
        """utilities [n, p] and the router's own decisions [n] -> [n]."""
        if self.constant is not None:
            return torch.full_like(decisions, self.constant)
        return decisions if self.offsets is None else with_offsets(utilities, self.offsets)


@dataclass(frozen=True)
class HeldOut:
    """The data to fit a guard for other prices: rows that the router did not see [n, p]; and, if the routers of folds judged them,
    rows from which both the router and some fold's router learned [m, p]. Prices are there if they differ between rows."""

    errors: Tensor
    expected: Tensor
    mean_errors: Tensor  # [p], of the rows on which the best single expert is chosen
    deployed: Tensor | None = None  # the errors that the router expects on the rows that both learned from
    prices: Tensor | None = None
    expected_prices: Tensor | None = None
    mean_prices: Tensor | None = None
    deployed_prices: Tensor | None = None
    learned: Tensor | None = None  # [m]: the rows that both learned from, counted from 0
    seen: Tensor | None = None  # the errors that the fold's router expects there
    seen_prices: Tensor | None = None
    needed: float = KNOWN  # see Guard
    groups: Tensor | None = None  # int [n], equal for rows with equal texts; None if all differ

    def tensors(self) -> dict[str, Tensor]:
        return {name: value.contiguous() for name, value in vars(self).items() if isinstance(value, Tensor)}

    def guard_at(self, prices: Tensor) -> Guard:
        utilities = -(self.expected + prices.to(self.expected))
        best = int((self.mean_errors + prices.to(self.mean_errors)).argmin())
        return fit_guard(utilities, argmax_last(utilities), self.errors + prices.to(self.errors), best, self.needed)


def with_offsets(utilities: Tensor, offsets: tuple[float, ...]) -> Tensor:
    return argmax_last(utilities.double() + torch.tensor(offsets, dtype=torch.float64, device=utilities.device))


def fit_guard(utilities: Tensor | None, decisions: Tensor, costs: Tensor, best: int, needed: float = KNOWN) -> Guard:
    """utilities, costs [n, p], decisions [n] of validation rows. utilities: None if the method does not decide by their argmax."""
    costs = costs.double()
    offsets = None
    if utilities is not None:
        utilities = utilities.double()
        # Offsets are judged on rows that they were not fitted to.
        held_out = crossed(utilities, costs)
        gain, error = paired(paid(costs, decisions) - paid(costs, held_out))
        if error is not None and gain > OFFSETS * error:
            offsets, decisions = fit_offsets(utilities, costs), held_out
    gain, error = paired(costs[:, best] - paid(costs, decisions))
    guard = Guard(offsets, None, best, gain, error, needed)
    return guard if guard.pays else replace(guard, constant=best)


def paired(differences: Tensor) -> tuple[float, float | None]:
    n = len(differences)
    return float(differences.mean()), float(differences.std() / n**0.5) if n > 1 else None


def crossed(utilities: Tensor, costs: Tensor) -> Tensor:
    """The decision for each row with offsets fitted to the other folds' rows."""
    n, decisions = len(costs), argmax_last(utilities)
    for fold in np.array_split(stream(0, "guard").permutation(n), min(FOLDS, n)) if n > 1 else ():
        rows = torch.zeros(n, dtype=torch.bool)
        rows[torch.from_numpy(fold)] = True
        decisions[rows] = with_offsets(utilities[rows], fit_offsets(utilities[~rows], costs[~rows]))
    return decisions


def fit_offsets(utilities: Tensor, costs: Tensor) -> tuple[float, ...]:
    """The offsets with the least mean cost, found by coordinate descent with exact steps. utilities, costs: float64 [n, p]."""
    p = utilities.shape[1]
    offsets = torch.zeros(p, dtype=torch.float64)
    least = float(paid(costs, argmax_last(utilities)).mean())
    for _ in range(PASSES):
        before = least
        for k in range(p):
            candidate = offsets.clone()
            candidate[k] = best_offset(utilities + offsets, costs, k) + offsets[k]
            cost = float(paid(costs, argmax_last(utilities + candidate)).mean())
            if cost < least:
                offsets, least = candidate, cost
        if least == before:
            break
    return tuple((offsets - offsets.mean()).tolist())


def best_offset(utilities: Tensor, costs: Tensor, k: int) -> float:
    """The offset of expert k's utility with the least mean cost, all others fixed: the middle of the best interval. k gets a
    row once the offset lifts it above the best other expert, so the mean cost changes at n points only."""
    others = utilities.clone()
    others[:, k] = -torch.inf
    rival = argmax_last(others)
    lift = paid(utilities, rival) - utilities[:, k]
    lift, order = lift.sort()
    change = (costs[:, k] - paid(costs, rival))[order]
    # total[i]: the change in cost if k is chosen on the i rows that need the least lift
    total = torch.cat([torch.zeros(1, dtype=torch.float64), change.cumsum(0)])
    end = torch.tensor([True])
    total = torch.where(torch.cat([end, lift[1:] > lift[:-1], end]), total, torch.inf)  # equal lifts change together
    place = int(total.argmin())
    margin = 1.0 + float(lift[-1] - lift[0])
    low = float(lift[place - 1]) if place > 0 else float(lift[0]) - margin
    high = float(lift[place]) if place < len(lift) else float(lift[-1]) + margin
    return (low + high) / 2
