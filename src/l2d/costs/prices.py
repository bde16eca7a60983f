"""Prices: one per expert, or one per row and expert."""

from typing import Any, Literal

import torch
from torch import Tensor

from l2d.core.prices import prices_in_order
from l2d.costs.cost import ScaledCost
from l2d.data.arrays import Answers, Panel
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import NonNegative, PriceNames


class PriceList(ScaledCost):
    """c_k = 1[g_k(x) ≠ y] + scale·β_k. prices: a list, by name, `coverage`, or `logged`: what each cost in a log, on average."""

    def __init__(self, *, prices: Literal["coverage", "logged"] | list[NonNegative] | PriceNames, **given: Any) -> None:
        super().__init__(**given)
        self.listed = prices

    def check_panel(self, panel: Panel) -> None:
        super().check_panel(panel)
        if self.listed == "logged":
            self.check_dollars(panel)

    def prices(self, panel: Panel, train: Tensor) -> Tensor:  # noqa: ARG002
        if self.listed == "coverage":
            if panel.coverage is None:
                raise ParameterError("prices", "these experts have no coverage; give one price per expert", self.listed)
            listed = list(panel.coverage)
        else:
            listed = logged_prices(panel) if self.listed == "logged" else prices_in_order(self.listed, panel.names)
        return self.scale * torch.tensor(listed, dtype=torch.float64)


def logged_prices(panel: Panel) -> list[float]:
    """The mean price of each expert over the rows on which it was asked; exact if it was always the same. A row counts
    1/propensity, for it stands for rows on which another was asked. All rows are used, so that folds have the same prices."""
    both = panel.train.followed_by(panel.test)
    if both.prices is None:
        raise ParameterError("prices", "these data have no prices; use cost=error, or list them", "logged")
    found = []
    chances = torch.ones_like(both.prices) if both.propensities is None else both.propensities
    for name, column, chance in zip(panel.names, both.prices.T, chances.T, strict=True):
        asked = ~(column + chance).isnan()
        known, weights = column[asked], 1 / chance[asked]
        if not len(known):
            raise ParameterError("prices", f"{name} was never asked: its price is not known; list the prices", "logged")
        found.append(float(known[0] if (known == known[0]).all() else (weights * known).sum() / weights.sum()))
    return found


class PriceColumns(ScaledCost):
    """c_k = 1[g_k(x) ≠ y] + scale·(β_k(x) + latency_price·t_k(x)), from the row's columns price_NAME and latency_NAME."""

    by_row = True

    def __init__(self, *, latency_price: NonNegative, **given: Any) -> None:
        super().__init__(**given)
        self.latency_price = latency_price

    def check_panel(self, panel: Panel) -> None:
        super().check_panel(panel)
        both = panel.train.followed_by(panel.test)
        if self.latency_price and (both.latencies is None or (both.latencies.isnan() & ~both.errors.isnan()).any()):
            needs = "needs the latency of every answer: columns latency_NAME, or latency in a log"
            raise ParameterError("latency_price", needs, self.latency_price)
        if both.prices is None and not self.latency_price:
            raise ParameterError("", "the data have no prices: columns price_NAME, or price in a log")
        self.check_dollars(panel)

    def prices(self, panel: Panel, train: Tensor) -> Tensor:  # noqa: ARG002
        """The mean over the training data: what an expert costs on average."""
        return self.row_prices(panel.train).nanmean(dim=0)

    def row_prices(self, answers: Answers) -> Tensor:
        found = torch.zeros_like(answers.errors) if answers.prices is None else answers.prices
        if self.latency_price and answers.latencies is not None:
            found = found + self.latency_price * answers.latencies
        return self.scale * found
