"""The base class of costs: c_k(x, y) = error + price."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from l2d.core.costs import largest_known
from l2d.core.results import ExtremeShares
from l2d.data.arrays import Answers, Panel
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import NoiseKind, NonNegative, Positive


class Cost:
    """A subclass sets each expert's price. noise, noise_kind: on the training split's costs only (core/costs.py: noisy). by_row:
    each row has its own prices. from_rows: the prices follow from the training rows. scale: what prices are multiplied by."""

    by_row: ClassVar[bool] = False
    from_rows: ClassVar[bool] = False

    def __init__(self, *, noise: NonNegative, noise_kind: NoiseKind) -> None:
        self.noise, self.noise_kind = noise, noise_kind

    def check_panel(self, panel: Panel) -> None:
        """Refuse what the experts did if it cannot be priced."""

    def prices(self, panel: Panel, train: Tensor) -> Tensor:
        """β [p], float64. panel: what the experts did; train: the training rows among panel.train."""
        raise NotImplementedError

    def row_prices(self, answers: Answers) -> Tensor:
        """β [n, p] of these rows, if `by_row`."""
        raise NotImplementedError

    def facts(self, panel: Panel, train: Tensor) -> ExtremeShares | None:  # noqa: ARG002 (for costs that have some)
        """Facts about the prices for metrics.json."""
        return None


class ErrorCost(Cost):
    """c_k = 1[g_k(x) ≠ y]: all prices are 0."""

    def prices(self, panel: Panel, train: Tensor) -> Tensor:  # noqa: ARG002
        return torch.zeros(len(panel.names), dtype=torch.float64)


class ScaledCost(Cost):
    """Prices in a unit of the user's. error_price: what a wrong answer costs in it, which sets the scale if it is given."""

    def __init__(self, *, scale: NonNegative, error_price: Positive | None, **given: Any) -> None:
        super().__init__(**given)
        if error_price is not None and abs(scale * error_price - 1) > 1e-9:
            problem = f"prices are divided by it, which cost.scale={scale:g} contradicts; give one of them"
            raise ParameterError("error_price", problem, error_price)
        self.scale, self.error_price = scale, error_price

    def check_panel(self, panel: Panel) -> None:
        """Refuse losses that are no share of an error's price, and prices of a log in another unit."""
        if self.error_price is None and self.scale == 1 and panel.unit.error_price is not None:
            before = f"the run that wrote this log counted a wrong answer as {panel.unit.error_price:g}"
            raise ParameterError("error_price", f"missing; {before}; say so again, or give another value")
        for k, name in enumerate(panel.names if self.error_price is not None else ()):
            if (largest := largest_known(panel.train.errors[:, k])) > 1:
                problem = f"is the price of an error between 0 and 1, but {name} has a loss of {largest:g}; rescale the losses"
                raise ParameterError("error_price", problem, self.error_price)

    def check_dollars(self, panel: Panel) -> None:
        """Refuse dollars if nobody says what an error costs: one would count as $1. Losses above 1 may be dollars themselves."""
        in_dollars = panel.unit.dollars and largest_known(panel.train.errors) <= 1
        if self.error_price is None and self.scale == 1 and in_dollars:
            said = "the data call their prices usd; say what a wrong answer costs, such as cost.error_price=1 for $1"
            raise ParameterError("error_price", f"missing; {said}")
