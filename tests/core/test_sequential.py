"""The always-valid test: sums by hand, its inequality, and how often it errs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2d.core.sequential import BETS, LEVEL, difference, difference_parts, evidence, margin

values = st.floats(-1, 50)
costs = st.floats(0, 3)


def test_evidence_by_hand() -> None:
    """x = −1: exp(−λ + (log(1 − λ) + λ)) = 1 − λ, and the mean of 1 − 2^−j over j = 1 … 8 is 1 − (1 − 2^−8)/8."""
    assert math.exp(evidence(-1.0, 1.0)) == pytest.approx(1 - (1 - 2**-8) / 8)
    assert evidence(0.0, 0.0) == pytest.approx(0.0)


@given(values, values)
def test_evidence_is_at_most_what_bets_gain(one: float, other: float) -> None:
    gained = np.mean([(1 + bet * one) * (1 + bet * other) for bet in BETS])
    assert math.exp(evidence(one + other, one**2 + other**2)) <= gained * (1 + 1e-9) + 1e-12


@given(st.floats(0, 1e6), st.floats(1e-6, 0.5))
def test_the_margin_is_where_evidence_is_enough(squares: float, level: float) -> None:
    assert evidence(margin(squares, level), squares) == pytest.approx(-math.log(level), rel=1e-6)


def test_an_interval_by_hand() -> None:
    """100 differences of −0.5 whose bound is 1: evidence against "not better" is mean_λ exp(50λ − 25ψ(λ)), above 1/0.025."""
    found = difference(100, -50.0, 25.0, 1.0)
    assert found.high < 0
    assert np.mean([math.exp(50 * bet + 25 * (math.log(1 - bet) + bet)) for bet in BETS]) > 2 / LEVEL
    assert difference(4, -2.0, 1.0, 1.0).high > 0  # e² = 7.4 is less than 40
    scaled = difference(100, -150.0, 225.0, 3.0)
    assert [scaled.mean, scaled.high] == pytest.approx([-1.5, 3 * found.high])


@given(st.data(), st.lists(st.floats(0.05, 1), min_size=3, max_size=3), *[st.lists(costs, min_size=3, max_size=3)] * 2)
def test_the_estimate_is_unbiased(
    data: st.DataObject, raw: list[float], true: list[float], expected: list[float]
) -> None:
    """Σ_k π(k)·(base + weight·cost(k)) = cost(other) − cost(own), whatever is expected; by each expert's own terms."""
    own, other = (data.draw(st.integers(0, 2)) for _ in range(2))
    chances, mean = np.array(raw) / sum(raw), 0.0
    for k, chance in enumerate(chances):
        base, weight = difference_parts(k == other, k == own, chance, expected[other], expected[own])
        mean += chance * (base + weight * true[k])
        if own == other:
            assert (base, weight) == (0, 0)
    assert mean == pytest.approx(true[other] - true[own], abs=1e-9)


@pytest.mark.parametrize("chance", [0.05, 0.5])
def test_it_seldom_errs_however_often_one_looks(chance: float) -> None:
    """Skewed differences without a mean: −1 with this chance, else what makes up for it; 300 series, looked at 1,000 times."""
    lost = np.random.default_rng(0).random((300, 1000)) < chance
    found = np.where(lost, -1.0, chance / (1 - chance))
    for sign in (1, -1):
        known = evidence(sign * found.cumsum(axis=1), np.square(found).cumsum(axis=1))
        assert (known.max(axis=1) > math.log(1 / LEVEL)).mean() <= LEVEL
