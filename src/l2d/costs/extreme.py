"""Prices under which one expert is nearly always the cheapest: extreme imbalance."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from l2d.core.costs import cheapest
from l2d.core.metrics import best_single
from l2d.core.results import ExtremeShares
from l2d.costs.cost import Cost
from l2d.data.arrays import Panel
from l2d.utils.errors import ParameterError

# The target share of the strongest expert; the steps of a price between 0 and 1; the experts for which the grid is small enough.
PERCENT, STEPS, MOST_EXPERTS = 95, 10, 4


class ExtremePrices(Cost):
    """c_k = 1[g_k(x) ≠ y] + β_k, β on a grid so that the strongest expert is the cheapest on about 95 % of the training rows."""

    from_rows: ClassVar[bool] = True

    def prices(self, panel: Panel, train: Tensor) -> Tensor:
        return extreme_prices(panel.train.errors[train])

    def facts(self, panel: Panel, train: Tensor) -> ExtremeShares:
        errors = panel.train.errors[train]
        return extreme_shares(extreme_prices(errors), errors, panel.test.errors, panel.names)


def extreme_prices(errors: Tensor) -> Tensor:
    """β [p] on the grid {0, 0.1, …, 1}^p, at least one of them 0, for which the strongest expert's share of rows is nearest 95 %.
    Ties go to the least sum, then to the first in lexicographic order. errors 0 or 1 [N, p]."""
    p = errors.shape[1]
    if p > MOST_EXPERTS or not ((errors == 0) | (errors == 1)).all():
        needs = f"extreme prices need at most {MOST_EXPERTS} experts, each right or wrong on every row"
        raise ParameterError("", f"{needs}; use cost=error_plus_cost")
    patterns, counts = errors.double().unique(dim=0, return_counts=True)
    steps = torch.cartesian_prod(*[torch.arange(STEPS + 1)] * p)  # in lexicographic order
    steps = steps[(steps == 0).any(dim=1)]
    prices = steps.double() / STEPS
    mine = cheapest(patterns + prices[:, None, :]) == best_single(errors)
    away = (100 * (mine * counts).sum(dim=1) - PERCENT * len(errors)).abs()
    return prices[(away * (p * STEPS + 1) + steps.sum(dim=1)).argmin()]


def extreme_shares(prices: Tensor, train: Tensor, test: Tensor, names: Sequence[str]) -> ExtremeShares:
    """The oracle's share of decisions for the expert that is the strongest on the training rows. train, test: errors [N, p]."""
    strong = best_single(train)

    def share(errors: Tensor) -> float:
        return int((cheapest(errors + prices) == strong).sum()) / len(errors)

    return ExtremeShares(names[strong], prices.tolist(), PERCENT / 100, share(train), share(test))
