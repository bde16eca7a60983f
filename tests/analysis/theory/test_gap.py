"""The minimizability gap (Section 5.2), M = min_{f∈F} E_x[ℓ(f, x)] − E_x[min_{f∈F} ℓ(f, x)], and a misprint."""

import math

import pytest
import torch

from l2d.analysis.theory.consistency import surrogate_minimiser
from l2d.methods.comp_sum import comp_sum_loss


def constants_gap(p: torch.Tensor) -> float:
    """The comp-sum surrogate's gap for constant scores at ρ = 1, over equally likely rows of p [n, experts].

    The surrogate is linear in p, so the best constant minimises it at the mean p.
    """
    rho, mean = torch.ones(p.shape[1], dtype=torch.float64), p.mean(dim=0, keepdim=True)
    best = comp_sum_loss(surrogate_minimiser(mean, rho), mean, rho)
    return float(best - comp_sum_loss(surrogate_minimiser(p, rho), p, rho).mean())


def entropy(p: torch.Tensor) -> float:
    return float(-(p * p.log()).sum())


def test_constant_scores_on_two_points() -> None:
    """p = (.9, .1) and (.1, .9): the best constant is f = 0 with log 2; pointwise it is the entropy of (.9, .1)."""
    p = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64)
    assert constants_gap(p) == pytest.approx(math.log(2) - entropy(p[0]), abs=1e-9)


def test_the_consistency_bound_needs_the_targets_gap() -> None:
    """Section 5.2 prints M_{L1}, the surrogate's gap, on the left; Theorem 5.1 has the target's. The first cannot hold: ten points, each
    with an expert of its own (p = .999), constant scores, f = 0 best in class for both losses. Left, as printed: 0 + M ≈ 2.29; right
    with Γ(t) = √(2t): √(2M) ≈ 2.14. The target Σ_k p_k 1[k ≠ k*] of a constant is 1 − mean p_k*, and pointwise 1 − max p."""
    p = torch.full((10, 10), 0.001 / 9, dtype=torch.float64).fill_diagonal_(0.999)
    gap = constants_gap(p)
    assert gap == pytest.approx(math.log(10) - entropy(p[0]), abs=1e-6)
    assert gap > math.sqrt(2 * gap) + 0.1
    target_gap = float(p.amax(dim=1).mean() - p.mean(dim=0).max())
    assert target_gap == pytest.approx(0.899)
    assert target_gap <= math.sqrt(2 * gap)
