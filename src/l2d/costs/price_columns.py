"""A price per row and expert, from the data."""

import torch
from torch import Tensor

from l2d.costs.cost import Cost
from l2d.data.arrays import Answers, Panel
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import NoiseKind, NonNegative


class PriceColumns(Cost):
    """c_k = 1[g_k(x) ≠ y] + scale·β_k(x), β_k(x) from the row's column price_NAME."""

    by_row = True

    def __init__(self, *, scale: NonNegative, noise: NonNegative, noise_kind: NoiseKind) -> None:
        super().__init__(noise=noise, noise_kind=noise_kind)
        self.scale = scale

    def prices(self, panel: Panel, train: Tensor) -> Tensor:  # noqa: ARG002
        """The mean over the training data: what an expert costs on average."""
        return self.row_prices(panel.train).mean(dim=0)

    def row_prices(self, answers: Answers) -> Tensor:
        if answers.prices is None:
            raise ParameterError("", "these data have no price columns; dataset=table reads those named price_NAME")
        return torch.as_tensor(self.scale * answers.prices)
