"""The minimizability gap: two points done by hand, zero for all functions, and a misprint."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from l2d.analysis.theory.gap import finite_gap, linear_gap
from l2d.methods.comp_sum import comp_sum_loss
from l2d.utils.errors import L2DError


def f64(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def entropy(p: torch.Tensor) -> float:
    return float(-(p * p.log()).sum())


def test_constant_scores_on_two_points() -> None:
    """p = (.9, .1) and (.1, .9), equally likely, ρ = 1. The best constant is f = 0 with log 2; pointwise the entropy of (.9, .1).

    With the target Σ_k p_k 1[k ≠ k*] a constant loses .5, the best expert of each point .1: the gap is .4."""
    p, half = f64([[0.9, 0.1], [0.1, 0.9]]), f64([0.5, 0.5])
    gap, head = linear_gap(torch.ones(2, 1), p, torch.ones(2), half)
    assert gap == pytest.approx(math.log(2) - entropy(p[0]), abs=1e-9)
    assert float(head[0, 0] - head[1, 0]) == pytest.approx(0, abs=1e-6)
    target = 1 - p.T  # hypothesis k: always expert k
    assert finite_gap(target, half) == pytest.approx(0.4)


def test_weights_count() -> None:
    """The first point three times as likely: the best constant is the mean p = (.7, .3), the gap its entropy less that of (.9, .1)."""
    p = f64([[0.9, 0.1], [0.1, 0.9]])
    gap, _ = linear_gap(torch.ones(2, 1), p, torch.ones(2), f64([0.75, 0.25]))
    assert gap == pytest.approx(entropy(f64([0.7, 0.3])) - entropy(p[0]), abs=1e-9)


@settings(max_examples=15)
@given(st.integers(0, 999), st.integers(2, 3), st.integers(2, 3))
def test_all_functions_have_no_gap_and_others_none_below_zero(seed: int, n: int, experts: int) -> None:
    """One feature per point gives every function on the domain; one feature for all gives the constants. ρ unequal."""
    rng = np.random.default_rng(seed)
    rewards = torch.tensor(rng.uniform(0.1, 1, (n, experts)))
    rho, weights = torch.tensor(rng.uniform(0.3, 3, experts)), torch.tensor(rng.dirichlet(np.ones(n)))
    everything, _ = linear_gap(torch.eye(n), rewards, rho, weights)
    constants, head = linear_gap(torch.ones(n, 1), rewards, rho, weights)
    assert everything == pytest.approx(0, abs=1e-7)
    assert constants >= everything - 1e-7
    nearby = torch.tensor(rng.normal(size=(200, experts, 1)) * 0.3) + head
    table = torch.stack([comp_sum_loss(torch.ones(n, 1).double() @ one.T, rewards, rho) for one in nearby])
    assert (
        float((table * weights).sum(dim=1).min())
        >= float((comp_sum_loss(torch.ones(n, 1).double() @ head.T, rewards, rho) * weights).sum()) - 1e-9
    )


@given(st.integers(0, 999))
def test_finite_classes(seed: int) -> None:
    """Never negative; none for the class of all tables over the same values; by loops."""
    rng = np.random.default_rng(seed)
    few, weights = rng.uniform(size=(3, 4)), rng.dirichlet(np.ones(4))
    slow = min(sum(w * loss for w, loss in zip(weights, row, strict=True)) for row in few) - sum(
        w * min(row[i] for row in few) for i, w in enumerate(weights)
    )
    assert finite_gap(torch.tensor(few), torch.tensor(weights)) == pytest.approx(slow)
    assert slow >= -1e-12
    every = torch.tensor(
        [[few[h, i] for i, h in enumerate(choice)] for choice in itertools.product(range(3), repeat=4)]
    )
    assert finite_gap(every, torch.tensor(weights)) == pytest.approx(0, abs=1e-12)


def test_the_consistency_bound_needs_the_targets_gap() -> None:
    """Section 5.2 prints M_{L1}, the surrogate's gap, on the left; Theorem 5.1 has the target's. The first cannot hold: ten points, each
    with an expert of its own (p = .999), constant scores, f = 0 best in class for both losses. Left, as printed: 0 + M ≈ 2.29; right
    with Γ(t) = √(2t): √(2M) ≈ 2.14."""
    p = torch.full((10, 10), 0.001 / 9, dtype=torch.float64).fill_diagonal_(0.999)
    gap, _ = linear_gap(torch.ones(10, 1), p, torch.ones(10), torch.full((10,), 0.1))
    assert gap == pytest.approx(math.log(10) - entropy(p[0]), abs=1e-6)
    assert gap > math.sqrt(2 * gap) + 0.1
    target_gap = finite_gap(1 - p.T, torch.full((10,), 0.1, dtype=torch.float64))
    assert target_gap <= math.sqrt(2 * gap)


def test_what_has_no_minimiser_is_refused() -> None:
    with pytest.raises(L2DError, match="every reward must be positive"):
        linear_gap(torch.ones(1, 1), f64([[1.0, 0.0]]), torch.ones(2), torch.ones(1))
