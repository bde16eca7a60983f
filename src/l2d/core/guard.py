"""Decisions that hold: offsets of the experts and a fallback to one expert, both by validation rows alone."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from l2d.utils.seeding import stream

FOLDS = 5
PASSES = 10
OFFSETS = 2.0  # standard errors that offsets have to gain: p numbers more to be wrong about than the fallback has


@dataclass(frozen=True)
class Guard:
    """offsets [p]: added to what speaks for each expert; None where they bring nothing beyond the noise. constant: the expert,
    counted from 0, that gets every input; None where the router is better than that beyond the noise. gain, error: by how much the
    router, with its offsets, is cheaper on validation than the best single expert, paired, and its standard error, None where a
    single row does not say it."""

    offsets: tuple[float, ...] | None
    constant: int | None
    best: int
    gain: float
    error: float | None

    def decide(self, utilities: Tensor, decisions: Tensor) -> Tensor:
        """utilities [n, p] and what the router itself decided [n] -> [n]."""
        if self.constant is not None:
            return torch.full_like(decisions, self.constant)
        return decisions if self.offsets is None else with_offsets(utilities, self.offsets)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Guard":
        offsets = content["offsets"]
        return cls(**{**content, "offsets": None if offsets is None else tuple(offsets)})


@dataclass(frozen=True)
class HeldOut:
    """What a guard for other prices is fitted to: of validation rows errors [n, p] and what the router expected of them [n, p]; of
    the rows that the best single expert is chosen on, the mean errors [p]."""

    errors: Tensor
    expected: Tensor
    mean_errors: Tensor

    def guard_at(self, prices: Tensor) -> Guard:
        """prices [p]."""
        utilities = -(self.expected + prices.to(self.expected))
        best = int((self.mean_errors + prices.to(self.mean_errors)).argmin())
        return fit_guard(utilities, argmax_last(utilities), self.errors + prices.to(self.errors), best)


def with_offsets(utilities: Tensor, offsets: tuple[float, ...]) -> Tensor:
    return argmax_last(utilities.double() + torch.tensor(offsets, dtype=torch.float64, device=utilities.device))


def fit_guard(utilities: Tensor | None, decisions: Tensor, costs: Tensor, best: int) -> Guard:
    """utilities [n, p] (None for a method whose decision is not their argmax), decisions [n], costs [n, p] of validation rows.
    best: the single expert to fall back to."""
    costs = costs.double()
    offsets = None
    if utilities is not None:
        utilities = utilities.double()
        # What offsets bring is judged on rows they were not fitted to.
        held_out = crossed(utilities, costs)
        gain, error = paired(paid(costs, decisions) - paid(costs, held_out))
        if beyond(gain, error, OFFSETS):
            offsets, decisions = fit_offsets(utilities, costs), held_out
    gain, error = paired(costs[:, best] - paid(costs, decisions))
    return Guard(offsets, None if beyond(gain, error) else best, best, gain, error)


def paired(differences: Tensor) -> tuple[float, float | None]:
    """Mean and standard error, None for a single row."""
    n = len(differences)
    return float(differences.mean()), float(differences.std() / n**0.5) if n > 1 else None


def beyond(gain: float, error: float | None, errors: float = 1.0) -> bool:
    """Whether a gain is more than the noise, so many standard errors."""
    return error is not None and gain > errors * error


def crossed(utilities: Tensor, costs: Tensor) -> Tensor:
    """The decision for each row with offsets fitted to the other folds' rows."""
    n = len(costs)
    folds = np.array_split(stream(0, "guard").permutation(n), min(FOLDS, n))
    decisions = argmax_last(utilities)
    for fold in folds:
        rows = torch.zeros(n, dtype=torch.bool)
        rows[torch.from_numpy(fold)] = True
        if rows.all():
            return decisions
        decisions[rows] = with_offsets(utilities[rows], fit_offsets(utilities[~rows], costs[~rows]))
    return decisions


def fit_offsets(utilities: Tensor, costs: Tensor) -> tuple[float, ...]:
    """The offsets with the least mean cost that is found by changing one at a time, each exactly; float64 [n, p] both."""
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
    """What to add to expert k's utility for the least mean cost, the others' staying as they are: the middle of the best interval.

    k gets a row from the offset on that lifts it above the best of the others, so the mean cost changes at n points only.
    """
    others = utilities.clone()
    others[:, k] = -torch.inf
    rival = argmax_last(others)
    lift = paid(utilities, rival) - utilities[:, k]
    lift, order = lift.sort()
    change = (costs[:, k] - paid(costs, rival))[order]
    # total[i]: the cost, less that of never choosing k, with k chosen on the i rows that need the least lift
    total = torch.cat([torch.zeros(1, dtype=torch.float64), change.cumsum(0)])
    end = torch.tensor([True])
    total = torch.where(torch.cat([end, lift[1:] > lift[:-1], end]), total, torch.inf)  # rows of one lift come together
    place = int(total.argmin())
    margin = 1.0 + float(lift[-1] - lift[0])
    low = float(lift[place - 1]) if place > 0 else float(lift[0]) - margin
    high = float(lift[place]) if place < len(lift) else float(lift[-1]) + margin
    return (low + high) / 2
