"""Errors alone."""

import torch
from tests.costs.panels import answers, every_row, panel

from l2d.costs.cost import ErrorCost


def test_all_prices_are_zero() -> None:
    """Whatever share of the classes an expert knows, and whatever its rows cost."""
    cost = ErrorCost(noise=0.0, noise_kind="multiplicative")
    rows = answers([[0, 1, 1], [1, 0, 1]], prices=[[5, 5, 5], [5, 5, 5]])
    experts = panel(rows, coverage=(0.7, 0.2, 0.1))
    prices = cost.prices(experts, every_row(experts))
    assert prices.tolist() == [0, 0, 0]
    assert prices.dtype == torch.float64
    assert (rows.errors + prices).tolist() == [[0, 1, 1], [1, 0, 1]]
    assert not cost.by_row
    assert cost.facts(experts, every_row(experts)) is None
