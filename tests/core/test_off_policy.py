"""Values from logs: by hand, against slow loops, and unbiased in simulations with a known truth."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.core import off_policy
from l2d.core.off_policy import Logged, doubly_robust, policy_value, value_of, weights_of

NAN = float("nan")
# Three rows and two experts; the log asked expert 0, 1, 0 with chances 1/2, 1/4, 1.
KNOWN = torch.tensor([[1.0, NAN], [NAN, 0.5], [0.0, NAN]], dtype=torch.float64)
CHANCES = torch.tensor([[0.5, NAN], [NAN, 0.25], [1.0, NAN]], dtype=torch.float64)
EXPECTED = torch.tensor([[0.5, 0.25], [0.5, 0.25], [0.5, 0.25]], dtype=torch.float64)
LOGGED = Logged(EXPECTED, weights_of(~KNOWN.isnan(), CHANCES))


def test_by_hand() -> None:
    assert LOGGED.weights.tolist() == [[2, 0], [0, 4], [1, 0]]
    assert off_policy.inverse_propensity(KNOWN, LOGGED.weights).tolist() == [[2, 0], [0, 2], [0, 0]]
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
