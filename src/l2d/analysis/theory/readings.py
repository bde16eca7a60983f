"""The two readings of m_k, and what MILD does with each at the exact minimum of its loss, for the synthetic experts of a setup."""

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
from l2d.utils.text import aligned

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
    """For each reading and offset. train, test: how frequent each class is (default: all equally)."""
    owners = class_owners(coverage, num_classes)
    errors, chances = outcomes(owners)
    costs = errors + torch.tensor(prices or [0.0] * errors.shape[1], dtype=torch.float64)
    here, there = (_frequencies(given, num_classes) for given in (train, test))
    rewards = sum_others(costs)
    mass = rewards / rewards.sum(dim=1, keepdim=True).clamp(
        min=TINY
    )  # where nobody is wrong, there is no reward to share
    first = torch.nn.functional.one_hot(cheapest(costs), errors.shape[1]).to(torch.float64)
    masses = {"reward_mass": here @ chances @ mass, "cheapest": here @ chances @ first}
    counts = {name: count.clamp(min=LEAST) for name, count in masses.items()}
    expected, best = chances @ rewards, chances @ costs  # of each class
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


def readings_text(found: Sequence[Reading]) -> str:
    rows = [
        [
            one.counts,
            f"{one.offset:g}",
            ", ".join(f"{share:.3f}" for share in one.shares.tolist()),
            ", ".join(f"{value:.3f}" for value in one.rho.tolist()),
            f"{one.deferral_loss:.4f}",
            f"{one.oracle:.4f}",
        ]
        for one in found
    ]
    head = ["m_k", "offset", "share of m_k", "ρ", "argmax", "posterior"]
    return (
        f"{aligned(head, rows)}\nexpected deferral loss at the exact minimum of MILD's loss, by argmax and by posterior"
    )
