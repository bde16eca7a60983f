"""The two readings of m_k for synthetic experts, and the decisions of MILD at the exact minimum of its loss with each."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from l2d.core.costs import cheapest
from l2d.core.decisions import argmax_last
from l2d.core.rewards import sum_others
from l2d.core.rho import rho_by_rule
from l2d.experts.partition import class_owners

TINY = 1e-300
LEAST = 1e-5  # training counts at least one point: here one of 100,000
READINGS = ("reward_mass", "cheapest")


@dataclass(frozen=True)
class Reading:
    """shares: m_k / Σ_j m_j. rho [p]. decisions: the expert that argmax chooses for each class [K]. oracle: the least expected
    loss, which the posterior decision reaches."""

    counts: str
    offset: float
    shares: Tensor
    rho: Tensor
    decisions: Tensor
    deferral_loss: float
    oracle: float


def outcomes(owners: Tensor) -> tuple[Tensor, Tensor]:
    """Every combination of experts that are wrong (1) and right (0), [2^p, p], and its probability for each class, [K, 2^p].

    An expert is right on its own classes, and elsewhere by chance: once in K times.
    """
    p, num_classes = int(owners.max()) + 1, len(owners)
    errors = torch.tensor(list(product((0.0, 1.0), repeat=p)), dtype=torch.float64)
    wrong = (owners[:, None] != torch.arange(p)).to(torch.float64) * (1 - 1 / num_classes)
    chances = torch.where(errors == 1, wrong[:, None, :], 1 - wrong[:, None, :])
    return errors, chances.prod(dim=2)


def readings(
    coverage: Sequence[float],
    num_classes: int,
    *,
    train: Sequence[float] | None = None,
    test: Sequence[float] | None = None,
    prices: Sequence[float] | None = None,
    total: float = 1.0,
    offsets: Sequence[float] = (0.0, 5.0),
) -> list[Reading]:
    """One for each reading and offset. train, test: frequencies of the classes (default: all equal)."""
    owners = class_owners(coverage, num_classes)
    errors, chances = outcomes(owners)
    costs = errors + torch.tensor(prices or [0.0] * errors.shape[1], dtype=torch.float64)
    here, there = (_frequencies(given, num_classes) for given in (train, test))
    rewards = sum_others(costs)
    # Where nobody is wrong, there is no reward to share.
    mass = rewards / rewards.sum(dim=1, keepdim=True).clamp(min=TINY)
    first = torch.nn.functional.one_hot(cheapest(costs), errors.shape[1]).to(torch.float64)
    masses = {"reward_mass": here @ chances @ mass, "cheapest": here @ chances @ first}
    counts = {name: count.clamp(min=LEAST) for name, count in masses.items()}
    expected, best = chances @ rewards, chances @ costs  # by class
    found = []
    for name, offset in product(READINGS, offsets):
        rho = rho_by_rule("theory", total, offset, counts[name])
        decisions = argmax_last(expected / rho)  # at the minimum, this is the argmax of the scores (docs/theory.md)
        loss = float(there @ best.gather(1, decisions[:, None])[:, 0])
        oracle = float(there @ best.min(dim=1).values)
        shares = counts[name] / counts[name].sum()
        found.append(Reading(name, offset, shares, rho, decisions, loss, oracle))
    return found


def _frequencies(given: Sequence[float] | None, num_classes: int) -> Tensor:
    values = torch.tensor([1.0] * num_classes if given is None else list(given), dtype=torch.float64)
    return values / values.sum()
