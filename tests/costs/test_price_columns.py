"""A price per row and expert."""

from dataclasses import replace

import pytest
import torch
from tests.costs.panels import answers, every_row, panel

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.config.identity import relevant
from l2d.core.prices import PriceUnit
from l2d.costs.prices import PriceColumns
from l2d.utils.errors import L2DError, ParameterError

# Expert a costs 1 on the first row and 2 on the second, expert b 0.5 and 0.
ROWS = answers([[0, 1], [1, 0]], prices=[[1.0, 0.5], [2.0, 0.0]])


def cost(scale: float = 1.0, latency_price: float = 0.0, error_price: float | None = None) -> PriceColumns:
    given = {"latency_price": latency_price, "noise": 0.0}
    return PriceColumns(scale=scale, error_price=error_price, noise_kind="multiplicative", **given)


def test_by_hand() -> None:
    assert cost().by_row
    assert (ROWS.errors + cost().row_prices(ROWS)).tolist() == [[1.0, 1.5], [3.0, 0.0]]
    assert (ROWS.errors + cost(0.5).row_prices(ROWS)).tolist() == [[0.5, 1.25], [2.0, 0.0]]
    assert cost(0).row_prices(ROWS).tolist() == [[0, 0], [0, 0]]
    assert cost().row_prices(ROWS[torch.tensor([1, 1, 0])]).tolist() == [[2, 0], [2, 0], [1, 0.5]]


def test_seconds_cost_money() -> None:
    """Half a unit a second, and everything twice."""
    slow = replace(ROWS, latencies=torch.tensor([[2.0, 1.0], [0.0, 4.0]], dtype=torch.float64))
    assert cost(2, latency_price=0.5).row_prices(slow).tolist() == [[2 * (1 + 1), 2 * (0.5 + 0.5)], [4, 2 * 2]]
    assert cost(2).row_prices(slow).tolist() == [[2, 1], [4, 0]]
    alone = replace(slow, prices=None)
    assert cost(2, latency_price=0.5).row_prices(alone).tolist() == [[2, 1], [0, 4]]
    cost(latency_price=1).check_panel(panel(alone, alone))
    with pytest.raises(ParameterError, match=r"^latency_price=1: .*latency"):
        cost(latency_price=1).check_panel(panel(ROWS, ROWS))
    partly = replace(slow, latencies=torch.tensor([[2.0, torch.nan], [0.0, 4.0]], dtype=torch.float64))
    cost().check_panel(panel(partly, partly))
    with pytest.raises(ParameterError, match=r"^latency_price=1: "):
        cost(latency_price=1).check_panel(panel(partly, partly))


def test_dollars_need_the_price_of_an_error() -> None:
    """Without it an error would count as $1. A scale says it too, and losses above 1 may be dollars themselves."""
    dollars = replace(panel(ROWS, ROWS), unit=PriceUnit(None, "$"))
    with pytest.raises(ParameterError, match=r"^error_price: missing.*usd"):
        cost().check_panel(dollars)
    cost(0.5).check_panel(dollars)
    cost(error_price=1.0).check_panel(dollars)
    losses = answers([[0, 3], [1, 0]], prices=[[1.0, 0.5], [2.0, 0.0]])
    cost().check_panel(replace(panel(losses, losses), unit=PriceUnit(None, "$")))


def test_data_without_price_columns_and_mean_prices() -> None:
    experts = panel(ROWS, answers([[0, 0]], prices=[[9, 9]]))
    assert cost(2).prices(experts, every_row(experts)).tolist() == [3.0, 0.5]
    assert cost(2).prices(experts, torch.tensor([0])).tolist() == [3.0, 0.5]  # with the rows held out for validation
    without = panel(answers([[0, 1]]), answers([[0, 1]]))
    with pytest.raises(ParameterError, match="price_NAME"):
        cost().check_panel(without)
    cost().check_panel(panel(ROWS, ROWS))


@pytest.mark.parametrize(
    "override", ["cost.scale=-1", "cost.scale=nan", "cost.noise=-1", "cost.error_price=0", "cost.latency_price=-1"]
)
def test_bad_values(override: str) -> None:
    with pytest.raises(L2DError, match=rf"^{override}: "):
        check(compose(["cost=columns", override]))


@pytest.mark.parametrize("name", ["columns", "error_plus_cost"])
def test_losses_that_are_no_share_of_an_error(name: str) -> None:
    found = make(check(compose([f"cost={name}", "cost.error_price=0.05"])).cost)
    found.check_panel(panel(ROWS, ROWS))
    dollars = replace(ROWS, errors=ROWS.errors * 3)
    with pytest.raises(ParameterError, match=r"^error_price=0.05: .*a has a loss of 3"):
        found.check_panel(panel(dollars, dollars))
    make(check(compose([f"cost={name}"])).cost).check_panel(panel(dollars, dollars))


@pytest.mark.parametrize("name", ["columns", "error_plus_cost"])
def test_keys_that_say_nothing_new_leave_a_runs_folder_where_it_was(name: str) -> None:
    plain = relevant(check(compose([f"cost={name}", "dataset=table"])).plain)
    assert not {"error_price", "latency_price"} & {*plain["cost"]}
    assert "split_by" not in plain["dataset"]
    assert "missing" not in plain
    if name == "columns":
        assert relevant(check(compose(["cost=columns", "cost.latency_price=1"])).plain)["cost"]["latency_price"] == 1


@pytest.mark.parametrize("name", ["columns", "error_plus_cost"])
def test_what_a_wrong_answer_costs_sets_the_scale(name: str) -> None:
    """Five cents for an error: prices in dollars are multiplied by 20. Both ways to say so are one run."""
    by_error, by_scale = (
        check(compose([f"cost={name}", override])) for override in ("cost.error_price=0.05", "cost.scale=20")
    )
    assert by_error.cost.arguments["scale"] == 20
    assert relevant(by_error.plain) == relevant(by_scale.plain)
    with pytest.raises(ParameterError, match=r"error_price=0.05: .*cost.scale=3 contradicts"):
        make(check(compose([f"cost={name}", "cost.error_price=0.05", "cost.scale=3"])).cost)
