"""One price per expert: as a list, by name, or its coverage."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.costs.panels import NAMES, answers, every_row, panel

from l2d.config import check, compose
from l2d.core.prices import PriceUnit, prices_in_order
from l2d.costs.prices import PriceList
from l2d.utils.errors import L2DError, ParameterError

ROWS = answers([[0, 1, 1], [1, 1, 0]])


def price_list(prices: Any, scale: float = 1.0, error_price: float | None = None) -> PriceList:
    return PriceList(prices=prices, scale=scale, error_price=error_price, noise=0.0, noise_kind="multiplicative")


def prices_of(prices: Any, scale: float = 1.0, coverage: tuple[float, ...] | None = None) -> torch.Tensor:
    cost = price_list(prices, scale)
    experts = panel(ROWS, coverage=coverage)
    return cost.prices(experts, every_row(experts))


def test_by_hand() -> None:
    """Expert a is right on the first row and wrong on the second, at a price of 1: costs 1 and 1 + 1."""
    costs = ROWS.errors + prices_of([1.0, 0.6, 0.1])
    torch.testing.assert_close(costs, torch.tensor([[1.0, 1.6, 1.1], [2.0, 1.6, 0.1]]).double())


def test_coverage_and_scale() -> None:
    assert prices_of("coverage", coverage=(0.7, 0.2, 0.1)).tolist() == [0.7, 0.2, 0.1]
    with pytest.raises(ParameterError, match=r"^prices=coverage: .*no coverage"):
        prices_of("coverage")
    assert prices_of([1.0, 0.6, 0.1], scale=0.5).tolist() == pytest.approx([0.5, 0.3, 0.05])
    assert prices_of("coverage", scale=2, coverage=(0.7, 0.2, 0.1)).tolist() == pytest.approx([1.4, 0.4, 0.2])
    assert prices_of([1.0, 0.6, 0.1], scale=0).tolist() == [0, 0, 0]


@given(st.permutations(NAMES), st.lists(st.floats(0, 9), min_size=3, max_size=3), st.floats(0, 3))
def test_by_name_is_the_same_in_any_order(order: list[str], listed: list[float], scale: float) -> None:
    named = {name: listed[NAMES.index(name)] for name in order}
    assert torch.equal(prices_of(named, scale), prices_of(listed, scale))
    assert prices_in_order(named, NAMES) == listed


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ([1.0, 2.0], r"expected 3 .*\(a, b, c\); got 2"),
        ({"a": 1, "b": 2}, " c;"),
        ({"a": 1, "b": 2, "c": 3, "d": 4}, "=d: "),
    ],
)
def test_prices_of_other_experts_are_refused(prices: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=f"^prices.*{words}"):
        prices_of(prices)


BAD = "prices=free prices=3 prices[2]=-0.1 prices[2]=nan prices[1]=a prices.b=-2 scale=-1 scale=inf noise=-0.1 noise_kind=x"


@pytest.mark.parametrize("override", BAD.split())
def test_bad_values_are_refused_before_there_are_data(override: str) -> None:
    key, _, value = override.partition("=")
    listed = {"prices[2]": f"[1,{value},0]", "prices[1]": f"[{value},1,2]", "prices.b": f"{{a: 1, b: {value}}}"}
    given = f"cost.{key.partition('[')[0].partition('.')[0]}={listed.get(key, value)}"
    with pytest.raises(L2DError) as caught:
        check(compose(["cost=error_plus_cost", *([] if "prices" in key else ["cost.prices=[1,2,3]"]), given]))
    assert str(caught.value).startswith(f"cost.{override}: ")


def test_logged() -> None:
    """Of all rows on which an expert was asked: its price, or the mean of its prices."""
    nan = float("nan")
    train = answers([[0, nan, nan], [nan, 1, nan], [0, nan, 1]], [[0.1, nan, nan], [nan, 0.2, nan], [0.1, nan, 0.3]])
    test = answers([[nan, 1, nan], [0, nan, nan]], [[nan, 0.4, nan], [0.1, nan, nan]])
    found = price_list("logged", 2.0)
    experts = panel(train, test)
    assert found.prices(experts, every_row(experts)).tolist() == pytest.approx([0.2, 0.6, 0.6])
    likely = replace(train, propensities=torch.tensor([[0.9, nan, nan], [nan, 0.25, nan], [0.9, nan, 0.5]]).double())
    rest = replace(test, propensities=torch.tensor([[nan, 0.75, nan], [0.9, nan, nan]]).double())
    experts = panel(likely, rest)  # b: (4·0.2 + 4/3·0.4)/(4 + 4/3) = 0.25
    assert found.prices(experts, every_row(experts)).tolist() == pytest.approx([0.2, 0.5, 0.6])
    without_b = panel(answers([[0, nan, 1]], [[0.1, nan, 0.3]]))
    with pytest.raises(ParameterError, match=r"^prices=logged: b was never asked"):
        found.prices(without_b, torch.arange(1))
    with pytest.raises(ParameterError, match=r"^prices=logged: .*cost=error"):
        prices_of("logged")


@pytest.mark.parametrize(
    ("scale", "error_price", "refused"), [(1.0, None, True), (1.0, 1.0, False), (50.0, 0.02, False), (0.5, None, False)]
)
def test_a_log_in_another_unit(scale: float, error_price: float | None, refused: bool) -> None:
    """The run that wrote it counted a wrong answer as 2 cents: that must be said again, or something else."""
    cost = price_list([1.0, 1.0, 1.0], scale, error_price)
    cost.check_panel(panel(ROWS))
    cost.check_panel(replace(panel(ROWS), unit=PriceUnit(1.0)))
    experts = replace(panel(ROWS), unit=PriceUnit(50.0))
    if not refused:
        cost.check_panel(experts)
        return
    with pytest.raises(ParameterError, match=r"^error_price: missing.* 0.02"):
        cost.check_panel(experts)


def test_prices_of_a_log_in_dollars_need_the_price_of_an_error() -> None:
    """Listed ones are in units of one error, whatever the data call theirs."""
    dollars = replace(panel(ROWS), unit=PriceUnit(None, "$"))
    with pytest.raises(ParameterError, match=r"^error_price: missing.*usd"):
        price_list("logged").check_panel(dollars)
    price_list([1.0, 0.6, 0.1]).check_panel(dollars)
