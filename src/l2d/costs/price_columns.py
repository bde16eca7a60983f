"""A price per row and expert, from the data."""

from typing import Any

import torch
from torch import Tensor

from l2d.costs.cost import ScaledCost
from l2d.data.arrays import Answers, Panel
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import NonNegative


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
