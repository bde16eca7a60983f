"""Routers for rows of numbers."""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from l2d.networks.heads import make_head
from l2d.networks.network import Network
from l2d.utils.parameters import Count, NonNegativeInt, ShareBelowOne

CONSTANT = 1e-5  # a column with a smaller spread counts as constant
FAR = 10.0  # standard deviations from the mean at which values are clamped


class MLP(Network):
    """Raw features [B, F] to outputs [B, num_outputs]; it normalises them itself, so its weights are all it needs.

    depth: hidden layers of `width` units; 0 is a linear router. mean, std: per feature.
    """

    expects: ClassVar[str] = "rows"
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        width: Count,
        depth: NonNegativeInt,
        dropout: ShareBelowOne,
        mean: Sequence[float],
        std: Sequence[float],
        num_outputs: int,
        head: str,
    ) -> None:
        super().__init__()
        spread = torch.tensor(std, dtype=torch.float32)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        # With a constant column in training, any other value on the test split would be infinitely far away.
        self.register_buffer("std", torch.where(spread < CONSTANT, torch.ones_like(spread), spread))
        sizes = [len(mean), *[width] * depth]
        layers = [
            layer
            for before, after in pairwise(sizes)
            for layer in (nn.Linear(before, after), nn.LayerNorm(after), nn.GELU(), nn.Dropout(dropout))
        ]
        self.net = nn.Sequential(*layers)
        self.head = make_head(head, sizes[-1], num_outputs)

    def features(self, inputs: Tensor) -> Tensor:
        near = ((inputs.to(self.mean.dtype) - self.mean) / self.std).clamp(-FAR, FAR)  # limits outliers
        features: Tensor = self.net(near)
        return features
