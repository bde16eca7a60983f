"""Scores, what a router is compared with, and the collapse warning."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.core import metrics
from l2d.core.guard import Guard
from l2d.core.metrics import baselines, by_category, guarded_score, routing_metrics, score
from l2d.core.results import ExpertAlone

PRICES = torch.tensor([0.7, 0.2], dtype=torch.float64)
# Expert 1 right, wrong, right; expert 2 wrong, right, right.
COSTS = torch.tensor([[0.7, 1.2], [1.7, 0.2], [0.7, 0.2]], dtype=torch.float64)


def test_score_by_hand() -> None:
    """Sent to 1, 2, 1: costs .7 + .2 + .7 over 3, no errors, prices the same."""
    assert asdict(score(torch.tensor([0, 1, 0]), COSTS, PRICES)) == {
        "deferral_loss": pytest.approx(1.6 / 3),
        "error_rate": pytest.approx(0, abs=1e-12),
        "mean_price": pytest.approx(1.6 / 3),
        "ratios": [2 / 3, 1 / 3],
        "standard_error": pytest.approx(0.5 / 3),  # of .7, .2, .7: the variance is .25/3, of three rows' mean .25/9
    }
    assert score(torch.tensor([0]), COSTS[:1], PRICES).standard_error is None
    assert score(torch.tensor([1, 0, 1]), COSTS, PRICES).error_rate == pytest.approx(2 / 3)


def test_baselines_by_hand() -> None:
    """On training, expert 1 is cheapest twice but expert 2 is cheaper on average: majority is 1, best single is 2."""
    train = torch.tensor([[0.0, 0.1], [0.0, 0.1], [9.0, 0.1]])
    assert metrics.best_single(train) == 1
    rows = baselines(train, COSTS, PRICES)
    assert rows.majority is not None
    assert rows.oracle is not None
    assert rows.majority.ratios == [1, 0]
    assert rows.majority.deferral_loss == pytest.approx((0.7 + 1.7 + 0.7) / 3)
    assert rows.best_single.deferral_loss == pytest.approx((1.2 + 0.2 + 0.2) / 3)
    assert rows.oracle.deferral_loss == pytest.approx((0.7 + 0.2 + 0.2) / 3)
    assert rows.oracle.ratios == pytest.approx([1 / 3, 2 / 3])
    assert rows.random.ratios == [1 / 2, 1 / 2]
    assert rows.random.deferral_loss == pytest.approx((1.9 + 1.9 + 0.9) / 6)
    assert rows.random.mean_price == pytest.approx(0.45)
    assert rows.random.error_rate == pytest.approx(2 / 6)
    assert rows.random.standard_error == pytest.approx(0.5 / 3)  # of .95, .95, .45
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    result = routing_metrics(torch.tensor([1, 1]), costs, costs, torch.zeros(2), ["a", "b"])
    assert result.collapsed_expert == 2
    assert result.deferral_loss == 0.5
    assert result.confusion == [[0, 1], [0, 1]]
    assert result.experts == [ExpertAlone(name, error_rate=0.5, price=0.0, standard_error=0.5) for name in "ab"]


def test_a_log_has_no_oracle() -> None:
    """Doubly robust costs are right in the mean, not on a single row."""
    costs = torch.tensor([[1.5, -0.5], [-0.5, 1.5]]).double()
    prices, decisions = torch.zeros(2).double(), torch.tensor([0, 1])
    found = routing_metrics(decisions, costs, costs, prices, ("a", "b"), from_log=True)
    compared = found.baselines
    assert [compared.oracle, compared.majority, found.confusion, found.collapsed_expert] == [None] * 4
    assert found.deferral_loss == 1.5
    assert by_category(["x", "y"], decisions, costs, costs, from_log=True)["x"].oracle is None


@given(st.integers(1, 20), st.integers(2, 5), st.integers(0, 999))
def test_against_loops_and_bounds(n: int, p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs, prices = rng.integers(0, 2, (n, p)) + (beta := rng.random(p)), beta
    decisions = rng.integers(0, p, n)
    ours = score(torch.tensor(decisions), torch.tensor(costs), torch.tensor(prices))
    paid = sum(costs[i, decisions[i]] for i in range(n)) / n
    wrong = sum(costs[i, decisions[i]] - prices[decisions[i]] for i in range(n)) / n
    assert ours.deferral_loss == pytest.approx(paid)
    assert ours.error_rate == pytest.approx(wrong, abs=1e-12)
    assert ours.deferral_loss == pytest.approx(ours.error_rate + ours.mean_price)
    assert ours.ratios == [sum(decisions == k) / n for k in range(p)]
    rows = baselines(torch.tensor(costs), torch.tensor(costs), torch.tensor(prices))
    assert rows.majority is not None
    assert rows.oracle is not None
    for other in (ours, rows.best_single, rows.random, rows.majority):
        assert rows.oracle.deferral_loss <= other.deferral_loss + 1e-12
    assert rows.best_single.deferral_loss <= rows.majority.deferral_loss + 1e-12
    counts = metrics.confusion(torch.tensor(decisions), torch.tensor(costs))
    oracle = costs.argmin(axis=1)
    assert counts == [[int(sum((oracle == i) & (decisions == j))) for j in range(p)] for i in range(p)]


@pytest.mark.parametrize(
    ("ratios", "oracle", "expected"),
    [
        ([0.96, 0.04], [0.86, 0.14], 1),
        ([0.96, 0.04], [0.87, 0.13], None),
        ([0.95, 0.05], [0.50, 0.50], None),
        ([0.00, 1.00], [0.90, 0.10], 2),
        ([1.00, 0.00], [0.95, 0.05], None),
    ],
)
def test_collapse(ratios: list[float], oracle: list[float], expected: int | None) -> None:
    assert metrics.collapsed_expert(ratios, oracle) == expected


def test_prices_that_differ_between_rows() -> None:
    """Row 1 goes to expert 2 at .4, row 2 to expert 1 at .1: mean price .25, one error in two; reported are the experts' means.

    Alone, expert 1 is never wrong and expert 2 always: the price is no part of that.
    """
    prices = torch.tensor([[0.3, 0.4], [0.1, 0.2]]).double()
    costs = torch.tensor([[0.0, 1.0], [0.0, 1.0]]).double() + prices
    result = routing_metrics(torch.tensor([1, 0]), costs, costs, prices, names=["a", "b"])
    assert result.mean_price == pytest.approx(0.25)
    assert result.error_rate == pytest.approx(0.5)
    assert result.prices == pytest.approx([0.2, 0.3])
    assert [expert.name for expert in result.experts] == ["a", "b"]
    assert [expert.error_rate for expert in result.experts] == pytest.approx([0, 1])
    assert [expert.price for expert in result.experts] == pytest.approx([0.2, 0.3])
    assert result.baselines.random.mean_price == pytest.approx(0.25)


@given(st.integers(1, 30), st.integers(2, 4), st.integers(1, 6), st.integers(0, 999))
def test_categories_against_loops(n: int, p: int, kinds: int, seed: int) -> None:
    """Each category's rows by themselves; the best single expert is that of the training rows, here another than the test rows'."""
    rng = np.random.default_rng(seed)
    costs, decisions = rng.random((n, p)), rng.integers(0, p, n)
    train = 1 - costs[rng.integers(0, n, 2 * n)]
    names = [f"kind {number}" for number in rng.integers(0, kinds, n)]
    found = by_category(names, torch.tensor(decisions), torch.tensor(train), torch.tensor(costs))
    single = min(range(p), key=lambda k: sum(train[:, k]))
    assert list(found) == sorted(set(names))
    for name, row in found.items():
        rows = [i for i in range(n) if names[i] == name]
        assert row.rows == len(rows)
        assert row.deferral_loss == pytest.approx(sum(costs[i, decisions[i]] for i in rows) / len(rows))
        assert row.best_single == pytest.approx(sum(costs[i, single] for i in rows) / len(rows))
        assert row.oracle == pytest.approx(sum(min(costs[i]) for i in rows) / len(rows))


def test_guarded_by_hand() -> None:
    """Sent to 2, 2, 1: costs 1.2 + .2 + .7 over 3, prices .2 + .2 + .7; so one error in three."""
    fitted, names = Guard((0.1, -0.1), None, 1, 0.25, None), ["big", "small"]
    found = guarded_score(fitted, torch.tensor([1, 1, 0]), COSTS, PRICES, names)
    assert asdict(found) == {
        "deferral_loss": pytest.approx(0.7),
        "error_rate": pytest.approx(1 / 3),
        "mean_price": pytest.approx(1.1 / 3),
        "ratios": [1 / 3, 2 / 3],
        "standard_error": pytest.approx(0.5 / 3**0.5),  # of 1.2, .2, .7
        "constant": None,
        "offsets": [0.1, -0.1],
        "validation": {"best_constant": "small", "gain": 0.25, "standard_error": None},
        # always the second: 1.2, .2, .2, so differences 0, 0, -.5, whose standard deviation is .5/√3
        "test": {"best_constant": "small", "gain": pytest.approx(-0.5 / 3), "standard_error": pytest.approx(0.5 / 3)},
    }
    assert found.changes_decisions
    held = guarded_score(Guard(None, 0, 0, 0.0, 0.1), torch.zeros(3, dtype=torch.long), COSTS, PRICES, ["big", "small"])
    assert (held.constant, held.offsets, held.ratios) == ("big", None, [1, 0])
    assert held.changes_decisions
    untouched = guarded_score(Guard(None, None, 0, 0.2, 0.1), torch.tensor([0, 1, 0]), COSTS, PRICES, ["big", "small"])
    assert not untouched.changes_decisions


def test_calibration_by_hand() -> None:
    posterior = torch.tensor([[0.95, 0.05], [0.95, 0.05], [0.3, 0.7]])
    mass = torch.tensor([[3.0, 1.0], [0.0, 0.0], [0.0, 2.0]])
    rows = metrics.calibration(posterior, mass)
    # the second row carries nothing and counts for nothing
    expected = [[4 / 12, 0.05, 0.25], [2 / 12, 0.3, 0.0], [2 / 12, 0.7, 1.0], [4 / 12, 0.95, 0.75]]
    for row, wanted in zip(rows, expected, strict=True):
        assert row == pytest.approx(wanted)
    assert metrics.calibration(posterior, torch.zeros(3, 2)) == []


def test_calibration_of_chances_by_hand() -> None:
    """Chances of being wrong .15 and .85, wrong once and twice of two: each pair counts with its opposite."""
    expected = torch.tensor([[0.15, 0.85], [0.15, 0.85]])
    rows = metrics.calibration_of_chances(expected, torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    assert [[round(value, 6) for value in row] for row in rows] == [[0.5, 0.15, 0.25], [0.5, 0.85, 0.75]]
    # each pair by itself, however often the others are wrong
    rows = metrics.calibration_of_chances(torch.tensor([[0.15, 0.35]]), torch.ones(1, 2))
    assert rows == [pytest.approx(row) for row in ([0.25, 0.15, 1], [0.25, 0.35, 1], [0.25, 0.65, 0], [0.25, 0.85, 0])]
    # a regression's estimates and errors with noise may leave 0..1
    rows = metrics.calibration_of_chances(torch.tensor([[1.25, -0.25]]), torch.tensor([[1.5, -0.5]]))
    assert rows == [[0.5, 0, 0], [0.5, 1, 1]]
