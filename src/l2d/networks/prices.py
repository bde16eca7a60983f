"""Prices that differ between queries, estimated from the inputs."""

import torch
from torch import Tensor, nn

from l2d.core.ridge import channel_statistics, fit_crossed, standardised


class PriceModel(nn.Module):
    """The expected price of each expert, [B, …] -> [B, p]: linear in rows of numbers, a mean for images and tokens."""

    mean: Tensor
    std: Tensor
    weight: Tensor

    def __init__(self, features: int, experts: int) -> None:
        """features: of a row of numbers; 0 for other inputs."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))
        self.register_buffer("weight", torch.zeros(features + 1, experts))

    @classmethod
    def fitted(cls, inputs: Tensor, prices: Tensor, weight: Tensor | None = None) -> "PriceModel":
        """prices [n, p], NaN where they are not known. weight: if the regression is known."""
        model = cls(inputs.shape[1] if inputs.ndim == 2 and inputs.is_floating_point() else 0, prices.shape[1])
        if len(model.mean):
            model.mean, model.std = map(torch.tensor, channel_statistics(inputs, torch.arange(len(inputs))))
        if weight is None:
            weight = fit_crossed(standardised(inputs, model.mean, model.std), prices)[0]
        model.weight = weight.float()
        return model

    def add_expert(self, price: float) -> None:
        column = torch.zeros(len(self.weight), 1)
        column[-1] = price
        self.weight = torch.cat([self.weight, column], dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        return (standardised(inputs, self.mean, self.std) @ self.weight).clamp(min=0)
