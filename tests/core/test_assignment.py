"""A batch assigned under capacities, beside scipy's slow exact answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from l2d.core.assignment import assign


def slow(costs: np.ndarray, capacities: np.ndarray) -> float:
    places = np.repeat(np.arange(costs.shape[1]), capacities)
    return float(costs[:, places][linear_sum_assignment(costs[:, places])].sum())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 25), st.integers(2, 5), st.booleans(), st.integers(0, 6))
def test_it_is_the_least_cost(seed: int, n: int, p: int, tied: bool, more: int) -> None:
    """Also with many equal costs. By duality, no assignment costs less than Σ_i min_k (c_ik + λ_k) − Σ_k λ_k · capacity_k."""
    rng = np.random.default_rng(seed)
    costs = rng.integers(0, 4, (n, p)) / 4 if tied else rng.random((n, p)) + rng.random(p)
    capacities = rng.multinomial(n + more, rng.dirichlet(np.ones(p)))
    chosen, prices = assign(costs, capacities)
    assert (np.bincount(chosen, minlength=p) <= capacities).all()
    total = costs[np.arange(n), chosen].sum()
    assert total == pytest.approx(slow(costs, capacities))
    assert prices.min() >= 0
    limits = np.minimum(capacities, n)
    assert total == pytest.approx((costs + prices).min(axis=1).sum() - prices @ limits)


def test_by_hand() -> None:
    """Expert 1 is best for all three, but has one place: who loses most without it gets it. Without the place, that
    one loses .4."""
    costs = np.array([[0.1, 0.2], [0.1, 0.5], [0.1, 0.3]])
    chosen, prices = assign(costs, np.array([1, 3]))
    assert chosen.tolist() == [1, 0, 1]
    assert prices.tolist() == pytest.approx([0.4, 0.0])


def test_many_rows() -> None:
    """The gap to the dual bound is 0."""
    rng = np.random.default_rng(0)
    costs = rng.random((5_000, 20)) * rng.random(20)
    capacities = np.full(20, 260)
    chosen, prices = assign(costs, capacities)
    assert (np.bincount(chosen, minlength=20) <= capacities).all()
    bound = (costs + prices).min(axis=1).sum() - prices @ capacities
    assert costs[np.arange(5_000), chosen].sum() == pytest.approx(bound, abs=1e-9)
