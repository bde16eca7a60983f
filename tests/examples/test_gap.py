"""The minimizability gap (Section 5.2), M = min_{f∈F} E_x[ℓ(f, x)] − E_x[min_{f∈F} ℓ(f, x)], and a misprint."""

import math

import numpy as np
import pytest
import torch
from consistency import surrogate_minimiser
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

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
    """Section 5.2 prints M_{L1}, the surrogate's gap, on the left; Theorem 5.1 has the target's. The first cannot hold: ten
    points, each with an expert of its own (p = .999), constant scores, f = 0 best in class for both losses. Left, as printed: 0
    + M ≈ 2.29; right with Γ(t) = √(2t): √(2M) ≈ 2.14. The target Σ_k p_k 1[k ≠ k*] of a constant is 1 − mean p_k*, and pointwise
    1 − max p."""
    p = torch.full((10, 10), 0.001 / 9, dtype=torch.float64).fill_diagonal_(0.999)
    gap = constants_gap(p)
    assert gap == pytest.approx(math.log(10) - entropy(p[0]), abs=1e-6)
    assert gap > math.sqrt(2 * gap) + 0.1
    target_gap = float(p.amax(dim=1).mean() - p.mean(dim=0).max())
    assert target_gap == pytest.approx(0.899)
    assert target_gap <= math.sqrt(2 * gap)


@given(st.integers(0, 9999), st.integers(2, 4))
def test_the_gap_is_never_negative(seed: int, experts: int) -> None:
    """E_x of the least is at most the least of E_x. Where all inputs are alike, constants are as good as all functions: the gap
    is 0."""
    p = torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(experts), size=3) * 0.9 + 0.1 / experts)
    assert constants_gap(p) >= -1e-12
    assert constants_gap(p[:1].expand(3, experts)) == pytest.approx(0, abs=1e-9)


def binary(difference: float, first: float) -> float:
    """p_1 log(1 + e^{−d}) + p_2 log(1 + e^d), the surrogate of two experts at ρ = 1."""
    return float(first * np.logaddexp(0, -difference) + (1 - first) * np.logaddexp(0, difference))


def test_a_small_estimation_loss_is_not_enough_with_a_gap() -> None:
    """Section 5.3: "if the surrogate estimation loss is ε, the target's is at most √(2ε)". Two inputs, costs (.45, .55) and
    (.99, .01), rewards 1 − c_k, so C = 1. The scores differ by a at the first and a + 10 at the second, for any a: complete. The
    surrogate is least, ε = 0, where σ(a) + σ(a + 10) = .56, near a = −9.76: expert 2 at the first input, expert 1 at the second,
    cost (.55 + .99)/2 = .77. a = −11 costs (.55 + .01)/2 = .28. The gaps of Corollary 5.2 make up for it."""

    def surrogate(a: float) -> float:
        return (binary(a, 0.55) + binary(a + 10, 0.01)) / 2

    def target(a: float) -> float:
        return ((0.45 if a > 0 else 0.55) + (0.99 if a + 10 > 0 else 0.01)) / 2

    found = minimize_scalar(surrogate, bounds=(-30, 30), method="bounded")
    assert found.x == pytest.approx(-9.76, abs=0.01)
    assert target(found.x) - target(-11) == pytest.approx(0.49)
    pointwise = [entropy(torch.tensor([share, 1 - share])) for share in (0.55, 0.01)]
    gap, target_gap = found.fun - sum(pointwise) / 2, target(-11) - (0.45 + 0.01) / 2
    assert 0.49 + target_gap <= math.sqrt(2 * gap)
