"""What every cost is: c_k(x, y) = error + price, with a way to tell the price."""

from typing import ClassVar

from torch import Tensor

from l2d.core.results import ExtremeShares
from l2d.data.arrays import Answers, Panel
from l2d.utils.parameters import NoiseKind, NonNegative


class Cost:
    """A subclass says what an expert's price is. noise, noise_kind: on the training split's costs alone, see core/costs.py: noisy.

    by_row: each row has prices of its own, so nobody knows those of the next.
    """

    by_row: ClassVar[bool] = False

    def __init__(self, *, noise: NonNegative, noise_kind: NoiseKind) -> None:
        self.noise, self.noise_kind = noise, noise_kind

    def prices(self, panel: Panel, train: Tensor) -> Tensor:
        """β [p], float64. panel: what the experts did; train: the training rows among panel.train."""
        raise NotImplementedError

    def row_prices(self, answers: Answers) -> Tensor:
        """β [n, p] of these rows, where `by_row`."""
        raise NotImplementedError

    def facts(self, panel: Panel, train: Tensor) -> ExtremeShares | None:  # noqa: ARG002 (for costs that have some)
        """What a reader of the result should know of the prices, for metrics.json."""
        return None
