"""Prices under which the strongest expert is the cheapest on about 95 % of the training rows."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.costs.panels import NAMES, answers, every_row, panel

from l2d.config import check, compose
from l2d.core.metrics import best_single
from l2d.core.results import ExtremeShares
from l2d.costs.extreme import ExtremePrices, extreme_prices, extreme_shares
from l2d.utils.errors import L2DError, ParameterError


def slow_extreme(rows: list[list[float]]) -> list[float]:
    """Every list of the grid, every row, one by one."""
    p, n = len(rows[0]), len(rows)
    strong = min(range(p), key=lambda k: (sum(row[k] for row in rows), k))
    found = []
    for tenths in itertools.product(range(11), repeat=p):
        if 0 not in tenths:
            continue
        beta = [step / 10 for step in tenths]
        mine = sum(min(range(p), key=lambda k: (row[k] + beta[k], k)) == strong for row in rows)
        found.append((abs(100 * mine - 95 * n), sum(tenths), tenths))
    return [step / 10 for step in min(found)[2]]


@settings(max_examples=30)
@given(st.integers(2, 3), st.integers(1, 9), st.integers(0, 999))
def test_against_the_whole_grid(p: int, n: int, seed: int) -> None:
    errors = torch.randint(2, (n, p), generator=torch.Generator().manual_seed(seed)).double()
    prices = extreme_prices(errors)
    assert prices.tolist() == slow_extreme(errors.tolist())
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed + 1))
    assert torch.equal(extreme_prices(errors[order]), prices)


# Of 20 rows, a is wrong on six: b is right on three of these, c on one. All free, a has 16; c at 1 is never cheaper than a, which
# leaves 17; b at 1 leaves 19, which is 95 %. Nothing cheaper does.
WRONG = [[0, 1, 1]] * 14 + [[1, 0, 1]] * 3 + [[1, 1, 0]] + [[1, 1, 1]] * 2
SHARES: dict[str, Any] = {"expert": "a", "prices": [0, 1, 0], "target": 0.95, "share_train": 0.95, "share_test": 5 / 6}


def test_by_hand() -> None:
    errors = torch.tensor(WRONG).double()
    prices = extreme_prices(errors)
    assert prices.tolist() == [0, 1, 0]
    assert best_single(errors) == 0
    assert extreme_shares(prices, errors, errors[-6:], NAMES) == ExtremeShares(**SHARES)
    four = torch.cat([errors, torch.ones(20, 1)], dim=1)
    assert extreme_prices(four).tolist() == [0, 1, 0, 0]


def test_only_training_rows_count() -> None:
    """On all 40 rows, half of them c's alone, c would be the strongest. Test rows only show in the share of the test split."""
    cost = ExtremePrices(noise=0.5, noise_kind="additive")
    experts = panel(answers([*WRONG, *[[1, 1, 0]] * 20]), answers(WRONG[-6:]))
    train = every_row(experts)[:20]
    assert cost.prices(experts, train).tolist() == [0, 1, 0]
    assert cost.facts(experts, train) == ExtremeShares(**SHARES)
    assert cost.prices(experts, every_row(experts)).tolist() != [0, 1, 0]


def test_needs_right_or_wrong_and_few() -> None:
    with pytest.raises(ParameterError, match="right or wrong"):
        extreme_prices(torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.5]]))
    with pytest.raises(ParameterError, match="4 experts"):
        extreme_prices(torch.zeros(3, 5))


@pytest.mark.parametrize("override", ["+cost.scale=0.5", "+cost.prices=[1,2]", "cost.noise=-1"])
def test_it_makes_its_own_prices(override: str) -> None:
    with pytest.raises(L2DError, match=rf"^{override.removeprefix('+').partition('=')[0]}(=-1)?: "):
        check(compose(["cost=extreme", override]))
