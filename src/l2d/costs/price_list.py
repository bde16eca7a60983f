"""One price per expert."""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from l2d.costs.cost import Cost
from l2d.data.arrays import Panel
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import NoiseKind, NonNegative, Positive, PriceNames


class PriceList(Cost):
    """c_k = 1[g_k(x) ≠ y] + scale·β_k.

    prices: one per expert, in their order or by name; coverage: each expert's share of the classes; or logged: what each cost in a
    log, on average.
    """

    scale: float

    def __init__(
        self,
        *,
        prices: Literal["coverage", "logged"] | list[NonNegative] | PriceNames,
        scale: NonNegative,
        error_price: Positive | None,
        noise: NonNegative,
        noise_kind: NoiseKind,
    ) -> None:
        super().__init__(noise=noise, noise_kind=noise_kind)
        self.check_scale(scale, error_price)
        self.listed, self.scale = prices, scale

    def check_panel(self, panel: Panel) -> None:
        super().check_panel(panel)
        if self.listed == "logged":
            self.check_dollars(panel)

    def prices(self, panel: Panel, train: Tensor) -> Tensor:  # noqa: ARG002
        return self.scale * torch.tensor(self._listed(panel), dtype=torch.float64)

    def _listed(self, panel: Panel) -> list[float]:
        if self.listed == "logged":
            return logged_prices(panel)
        if isinstance(self.listed, str):
            if panel.coverage is None:
                raise ParameterError("prices", "these experts have no coverage; give one price per expert", self.listed)
            return list(panel.coverage)
        return price_list(self.listed, panel.names)


def price_list(prices: Sequence[float] | Mapping[str, float], names: Sequence[str]) -> list[float]:
    """One price per expert, in the order of the names."""
    experts = ", ".join(names)
    if isinstance(prices, Mapping):
        for name in prices:
            if name not in names:
                raise ParameterError("prices", f"unknown expert {name}; the experts are {experts}")
        for name in names:
            if name not in prices:
                raise ParameterError("prices", f"no price for {name}; the experts are {experts}")
        return [float(prices[name]) for name in names]
    if len(prices) != len(names):
        problem = f"expected {len(names)} prices, one per expert ({experts}); got {len(prices)}"
        raise ParameterError("prices", problem, list(prices))
    return [float(price) for price in prices]


def logged_prices(panel: Panel) -> list[float]:
    """What each expert cost on the rows on which it was asked: its price, if that was always the same, else the mean. A row counts
    1/propensity, for it stands for rows on which another was asked. Of all rows, so that folds have the same prices."""
    both = panel.train.followed_by(panel.test)
    if both.prices is None:
        raise ParameterError("prices", "these data have no prices; use cost=error, or list them", "logged")
    found = []
    chances = torch.ones_like(both.prices) if both.propensities is None else both.propensities
    for name, column, chance in zip(panel.names, both.prices.T, chances.T, strict=True):
        asked = ~(column + chance).isnan()
        known, weights = column[asked], 1 / chance[asked]
        if not len(known):
            raise ParameterError(
                "prices", f"{name} was never asked, so its price is not known; list the prices", "logged"
            )
        found.append(float(known[0] if (known == known[0]).all() else (weights * known).sum() / weights.sum()))
    return found
