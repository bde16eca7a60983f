"""Both readings of m_k for synthetic experts: python examples/two_readings.py 10 0.7 0.2 0.1

The first number is the number of classes, the others are the shares of the classes that the experts know. Prints the shares of m_k,
the ρ that follow, and the expected deferral loss of argmax and of the posterior decision at the exact minimum of MILD's loss.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from l2d.core.costs import cheapest, sum_others
from l2d.core.decisions import argmax_last
from l2d.core.rho import rho_by_rule
from l2d.experts.partition import class_owners
from l2d.utils.text import aligned

TINY = 1e-300
LEAST = 1e-5  # training counts at least one point: here one of 100,000


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
    offsets: Sequence[float] = (0.0, 5.0),
) -> list[Reading]:
    """One for each reading and offset. train, test: frequencies of the classes (default: all equal)."""
    errors, chances = outcomes(class_owners(coverage, num_classes))
    costs = errors + torch.tensor(prices or [0.0] * errors.shape[1], dtype=torch.float64)
    here, there = (torch.tensor(given or [1] * num_classes, dtype=torch.float64) for given in (train, test))
    here, there = here / here.sum(), there / there.sum()
    rewards = sum_others(costs)
    # Where nobody is wrong, there is no reward to share.
    mass = rewards / rewards.sum(dim=1, keepdim=True).clamp(min=TINY)
    first = torch.nn.functional.one_hot(cheapest(costs), errors.shape[1]).to(torch.float64)
    expected, best = chances @ rewards, chances @ costs  # by class
    found = []
    for (name, counted), offset in product({"reward_mass": mass, "cheapest": first}.items(), offsets):
        counts = (here @ chances @ counted).clamp(min=LEAST)
        rho = rho_by_rule("theory", 1.0, offset, counts)
        decisions = argmax_last(expected / rho)  # at the minimum, this is the argmax of the scores (docs/theory.md)
        loss = float(there @ best.gather(1, decisions[:, None])[:, 0])
        oracle = float(there @ best.min(dim=1).values)
        found.append(Reading(name, offset, counts / counts.sum(), rho, decisions, loss, oracle))
    return found


def main(classes: str = "10", *coverage: str) -> None:
    found = readings([float(share) for share in coverage or ("0.4", "0.2", "0.2", "0.1", "0.1")], int(classes))
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
    print(aligned(["m_k", "offset", "share of m_k", "ρ", "argmax", "posterior"], rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
