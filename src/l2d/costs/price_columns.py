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

    def check_panel(self, panel: Panel) -> None:
        if panel.train.prices is None:
            wanted = ", ".join(f"price_{name}" for name in panel.names)
            raise ParameterError("", f"these data have no price columns; dataset=table looks for {wanted}")

    def prices(self, panel: Panel, train: Tensor) -> Tensor:  # noqa: ARG002
        """The mean over the training data: what an expert costs on average."""
        return self.row_prices(panel.train).mean(dim=0)

    def row_prices(self, answers: Answers) -> Tensor:
        assert answers.prices is not None  # see check_panel
        return torch.as_tensor(self.scale * answers.prices)
