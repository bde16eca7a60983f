"""Values from logs: by hand, against slow loops, and unbiased in simulations with a known truth."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from l2d.core import off_policy
from l2d.core.off_policy import (
    STRONGEST,
    Logged,
    doubly_robust,
    effective_rows,
    explored_deviation,
    flip_strength,
    least_gain,
    policy_value,
    value_of,
    weights_of,
)

NAN = float("nan")
# Three rows and two experts; the log asked expert 0, 1, 0 with chances 1/2, 1/4, 1.
KNOWN = torch.tensor([[1.0, NAN], [NAN, 0.5], [0.0, NAN]], dtype=torch.float64)
CHANCES = torch.tensor([[0.5, NAN], [NAN, 0.25], [1.0, NAN]], dtype=torch.float64)
EXPECTED = torch.tensor([[0.5, 0.25], [0.5, 0.25], [0.5, 0.25]], dtype=torch.float64)
LOGGED = Logged(EXPECTED, weights_of(~KNOWN.isnan(), CHANCES))


def test_by_hand() -> None:
    assert LOGGED.weights.tolist() == [[2, 0], [0, 4], [1, 0]]
    robust = doubly_robust(KNOWN, LOGGED)
    assert robust.tolist() == [[1.5, 0.25], [0.5, 1.25], [0.0, 0.25]]
    torch.testing.assert_close(off_policy.known_costs(robust, LOGGED), KNOWN, equal_nan=True)
    # Decisions 0, 1, 1: the log asked these experts on the first two rows.
    found = value_of(torch.tensor([0, 1, 1]), robust, LOGGED)
    assert found.direct.value == pytest.approx((0.5 + 0.25 + 0.25) / 3)
    assert found.doubly_robust.value == pytest.approx((1.5 + 1.25 + 0.25) / 3)
    assert found.doubly_robust.standard_error == pytest.approx(np.std([1.5, 1.25, 0.25], ddof=1) / math.sqrt(3))
    assert found.snips is not None
    value = (2 * 1 + 4 * 0.5) / 6
    assert found.snips.value == pytest.approx(value)
    assert found.snips.standard_error == pytest.approx(math.hypot(2 * (1 - value), 4 * (0.5 - value)) / 6)
    assert policy_value(torch.tensor([[1.0, 0.0], [NAN, 0.25]])).value == pytest.approx((0.5 + 0.25) / 2)
    policy = policy_value(KNOWN)
    assert policy.value == pytest.approx(0.5)
    assert policy.standard_error == pytest.approx(0.5 / math.sqrt(3))
    weights = torch.tensor([[2.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    logged = Logged(EXPECTED[:2], weights)
    robust = doubly_robust(torch.tensor([[1.0, NAN], [0.0, NAN]], dtype=torch.float64), logged)
    found = value_of(torch.tensor([1, 1]), robust, logged)
    assert found.snips is None
    assert found.doubly_robust.value == found.direct.value == 0.25


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(2, 4))
def test_all_costs_known_give_the_plain_mean(seed: int, n: int, p: int) -> None:
    """Whatever the model expects: with propensities of 1 everything is what it is."""
    rng = np.random.default_rng(seed)
    costs, expected = (torch.from_numpy(rng.random((n, p))) for _ in range(2))
    logged = Logged(expected, weights_of(torch.ones(n, p, dtype=torch.bool), torch.ones(n, p)))
    decisions = torch.from_numpy(rng.integers(0, p, n))
    robust = doubly_robust(costs, logged)
    torch.testing.assert_close(robust, costs)
    truth = float(costs.gather(1, decisions[:, None]).mean())
    found = value_of(decisions, robust, logged)
    assert found.doubly_robust.value == pytest.approx(truth)
    assert found.snips is not None
    assert found.snips.value == pytest.approx(truth)


@pytest.mark.parametrize("wrong", ["model", "propensities", "none"])
def test_doubly_robust_covers_the_truth_if_one_of_two_is_right(wrong: str) -> None:
    """95 % intervals over 400 logs of a policy that prefers expert 0 where it is good. SNIPS needs right propensities."""
    inside = {"doubly robust": 0, "snips": 0}
    rng = np.random.default_rng(0)
    for _ in range(400):
        x = rng.random(400)
        right = np.stack([x, 1 - x], axis=1)  # the chance of a cost of 1
        costs = torch.from_numpy((rng.random((400, 2)) < right).astype(float))
        chance = np.stack([0.2 + 0.6 * (1 - x), 0.8 - 0.6 * (1 - x)], axis=1)
        asked = torch.from_numpy(rng.random(400) < chance[:, 0])[:, None] == torch.tensor([True, False])
        expected = torch.full((400, 2), 0.5) if wrong == "model" else torch.from_numpy(right)
        told = torch.full((400, 2), 0.5) if wrong == "propensities" else torch.from_numpy(chance)
        logged = Logged(expected.double(), weights_of(asked, told.double()))
        robust = doubly_robust(costs.where(asked, torch.nan), logged)
        decisions = torch.from_numpy((x > 0.5).astype(np.int64))
        found = value_of(decisions, robust, logged)
        truth = 0.25  # E[min(x, 1 - x)] for x uniform
        for name, one in (("doubly robust", found.doubly_robust), ("snips", found.snips)):
            assert one is not None
            assert one.standard_error is not None
            inside[name] += abs(one.value - truth) < 1.96 * one.standard_error
    assert 0.92 < inside["doubly robust"] / 400 < 0.98
    assert (inside["snips"] / 400 > 0.92) == (wrong != "propensities")


def test_effective_rows_by_hand() -> None:
    """Equal weights count each row: (2 + 2)² / (4 + 4); unequal ones fewer: (4 + 2)² / (16 + 4)."""
    weights = torch.tensor([[2.0, 4.0], [2.0, 2.0], [0.0, 0.0]], dtype=torch.float64)
    assert effective_rows(weights).tolist() == pytest.approx([2, 1.8])


def even_log(costs: list[list[float]]) -> tuple[torch.Tensor, Logged]:
    """Doubly robust costs where nothing was expected and each of two experts was asked with a chance of 1/2."""
    known = torch.tensor(costs, dtype=torch.float64)
    logged = Logged(torch.zeros_like(known), weights_of(~known.isnan(), torch.full_like(known, 0.5)))
    return doubly_robust(known, logged), logged


def test_the_strength_that_flips_a_comparison_by_hand() -> None:
    """Expert 0 cost 0 and 1, expert 1 .7 and .7; all weights are 2. At strength g a weight is between 1 + 1/g and 1 + g. At worst the
    row of cost 1 has 4 − (1 + 1/g), and the gain is (2.8 − 3 + 1/g)/4: 0 at g = 5. Costs of .8 never flip: (3.2 − 3 + 1/g)/4."""
    first, second = torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.int64)
    robust, logged = even_log([[0, NAN], [1, NAN], [NAN, 0.7], [NAN, 0.7]])
    for strength in (1.0, 2.0, 8.0):
        least = least_gain(first, second, robust, logged, strength)
        assert least == pytest.approx((2.8 - 3 + 1 / strength) / 4)
    assert flip_strength(first, second, robust, logged) == pytest.approx(5, rel=2e-3)
    assert flip_strength(second, first, robust, logged) == 1
    robust, logged = even_log([[0, NAN], [1, NAN], [NAN, 0.8], [NAN, 0.8]])
    assert flip_strength(first, second, robust, logged) == STRONGEST


@given(st.integers(0, 2**32 - 1), st.floats(1, 10))
def test_the_least_gain_against_a_linear_programme(seed: int, strength: float) -> None:
    """The weights of each expert between their bounds, with the same sum; the gain is linear in them."""
    rng = np.random.default_rng(seed)
    n, p = 12, 3
    asked = np.eye(p, dtype=bool)[np.r_[:p, rng.integers(0, p, n - p)]]
    known = torch.from_numpy(np.where(asked, rng.random((n, p)), np.nan))
    chances = torch.from_numpy(rng.uniform(0.1, 0.9, (n, p)))
    logged = Logged(torch.from_numpy(rng.random((n, p))), weights_of(torch.from_numpy(asked), chances))
    decisions, other = (torch.from_numpy(rng.integers(0, p, n)) for _ in range(2))
    rows, experts = asked.nonzero()
    sign = (other.numpy()[rows] == experts) * 1.0 - (decisions.numpy()[rows] == experts)
    residual = (known - logged.expected).numpy()[asked]
    weights = logged.weights.numpy()[asked]
    bounds = [(1 + (one - 1) / strength, 1 + (one - 1) * strength) for one in weights]
    sums = (experts == np.arange(p)[:, None]).astype(float)
    slow = linprog(sign * residual, A_eq=sums, b_eq=sums @ weights, bounds=bounds)
    expected = logged.expected.gather(1, other[:, None]) - logged.expected.gather(1, decisions[:, None])
    found = least_gain(decisions, other, doubly_robust(known, logged), logged, strength)
    assert found == pytest.approx((float(expected.sum()) + slow.fun) / n, abs=1e-6)


def test_an_unseen_factor_of_the_strength_that_is_named_can_make_the_gain() -> None:
    """Both experts are wrong on the same half of the queries, which nobody sees. There expert 0 is asked with odds of 1:3, elsewhere
    3:1; by the log these are 1:1. The true gain of expert 0 is 0, the log shows one, and a strength of 3, not of 1.7, explains it."""
    rng = np.random.default_rng(0)
    hard = rng.random(20_000) < 0.5
    first = rng.random(20_000) < np.where(hard, 0.25, 0.75)
    costs = np.where(np.stack([first, ~first], axis=1), hard[:, None] * 1.0, np.nan)
    robust, logged = even_log(costs.tolist())
    first_always, second_always = (torch.full((20_000,), k) for k in range(2))
    assert least_gain(first_always, second_always, robust, logged, 1.0) > 0.4
    assert least_gain(first_always, second_always, robust, logged, 1.7) > 0.1
    assert flip_strength(first_always, second_always, robust, logged) == pytest.approx(3, rel=0.1)


def test_the_deviation_of_an_explored_log_against_a_simulated_server() -> None:
    """It serves expert 0 and explores one decision in ten: 0 is asked with a chance of .95, 1 with .05."""
    rng = np.random.default_rng(1)
    errors = rng.random((100_000, 2)) < [0.2, 0.4]
    served, other = (torch.full((100_000,), k) for k in range(2))

    def log_of(chance: float) -> tuple[torch.Tensor, Logged]:
        first = rng.random(100_000) < chance
        known = torch.from_numpy(np.where(np.stack([first, ~first], axis=1), errors, np.nan))
        logged = Logged(
            torch.tensor([0.2, 0.4]).double().expand(100_000, 2),
            weights_of(~known.isnan(), torch.tensor([chance, 1 - chance]).double().expand(100_000, 2)),
        )
        return doubly_robust(known, logged), logged

    told = explored_deviation(served, other, *log_of(0.5), 0.1)
    robust, _ = log_of(0.95)
    assert told == pytest.approx(float((robust[:, 1] - robust[:, 0]).std()), rel=0.03)
