"""Prices, by hand: which amounts count, in which unit, and how they are printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2d.core.prices import ERRORS, Prices, PriceUnit, prices_in_order
from l2d.utils.errors import ParameterError

AMOUNTS = st.floats(1e-6, 1e3)


def config(**cost: object) -> dict[str, object]:
    return {"cost": cost}


def test_an_error_of_two_cents() -> None:
    """cost.error_price=0.02 makes cost.scale=50: half a cent is a quarter of an error."""
    prices = Prices.of(config(scale=50.0, error_price=0.02), listed=(0.25, 0.0), factor=3.0)
    assert prices.listed_from([0.005, 0.0], ["a", "b"]) == [0.25, 0.0]
    assert (prices.amount_of(0), prices.amount_of(1), prices.amount(1.0)) == (0.005, 0.0, 0.02)
    assert (prices.weight, prices.in_costs(1.0), prices.unit.currency, prices.counted) == (150.0, 50.0, "$", True)
    assert [prices.show(0.25), prices.show(-0.25, "+"), prices.short(0.005)] == ["$0.005000", "-$0.005000", "$0.005"]


def test_units_of_one_error() -> None:
    prices = Prices.of(config(scale=0.5), listed=(0.1,))
    assert (prices.amount_of(0), prices.weight, prices.unit.currency) == (0.2, 0.5, "")
    assert [prices.show(0.25), prices.show(0.25, "+"), prices.notes] == ["0.2500", "+0.2500", []]
    assert ERRORS.show(0.125) == "0.1250"


def test_costs_without_prices() -> None:
    """cost=error has no scale; with cost.scale=0 prices are left out until some are given."""
    none, left_out = Prices.of(config(), listed=(0.0, 0.0)), Prices.of(config(scale=0.0), listed=(0.0, 0.0))
    assert (none.counted, none.in_costs(1.0), none.amount_of(0)) == (False, 1.0, None)
    assert (none.unit.currency, none.per_training_price) == (None, 1.0)
    assert (left_out.counted, left_out.in_costs(1.0)) == (False, 0)
    assert (left_out.in_errors(1.0), left_out.per_training_price) == (1, 0)
    later = left_out.with_list((0.5, 0.1))
    assert (later.counted, later.in_costs(1.0), later.amount_of(0)) == (True, 1.0, 0.5)


def test_units_in_logs() -> None:
    """The last scale that changes prices counts: 2, so a wrong answer costs 1/2. Unknown currencies fit every other."""
    nan = float("nan")
    assert PriceUnit.of_rows([nan, 4.0, 2.0, 1.0, 0.0, nan], dollars=True) == PriceUnit(2.0, "$")
    assert PriceUnit.of_rows([nan, 1.0], dollars=False) == PriceUnit()
    assert [PriceUnit(scale).error_price for scale in (2.0, 1.0, 0.0, None)] == [0.5, None, None, None]
    dollars, errors, unknown = (PriceUnit(50.0, currency) for currency in ("$", "", None))
    pairs = (
        (dollars, errors),
        (errors, dollars),
        (dollars, unknown),
        (unknown, errors),
        (dollars, PriceUnit(2.0, "$")),
    )
    assert [one.fits(other) for one, other in pairs] == [False, False, True, True, True]
    assert [one.dollars for one in (dollars, errors, unknown)] == [True, False, False]
    assert PriceUnit.from_log(dollars.log_entry) == dollars
    assert dollars.log_entry == {"price_scale": 50.0, "currency": "$"}
    assert PriceUnit.from_log({"price_scale": 50.0}) == unknown


def test_latency_is_in_prices_of_rows_alone() -> None:
    by_row = Prices.of(config(scale=2.0, latency_price=0.1))
    assert by_row.latency_price == 0.1
    assert (by_row.mean_price, len(by_row.notes)) == ("mean price + latency", 1)
    for listed in (by_row.with_list((1.0,)), Prices.of(config(scale=2.0, latency_price=0.1), listed=(1.0,))):
        assert (listed.latency_price, listed.mean_price, listed.notes) == (0.0, "mean price", [])


@given(AMOUNTS, AMOUNTS)
def test_amounts_come_back(price: float, error_price: float) -> None:
    prices = Prices(scale=1 / error_price, error_price=error_price)
    [inside] = prices.listed_from([price], ["a"])
    assert prices.amount(inside) == pytest.approx(price)
    assert inside == pytest.approx(price / error_price)


def test_by_name_or_in_order() -> None:
    assert prices_in_order({"b": 2, "a": 1}, ["a", "b"]) == prices_in_order((1, 2), ["a", "b"]) == [1.0, 2.0]
    assert prices_in_order({1: 2, 0: 1}, ["0", "1"]) == [1.0, 2.0]
    for wrong in ([1], {"a": 1}, {"a": 1, "b": 2, "c": 3}, "12", [1, "x"], [1, -1], [1, float("inf")], {1.0, 2.0}):
        with pytest.raises(ParameterError, match=r"^prices"):
            prices_in_order(wrong, ["a", "b"])
