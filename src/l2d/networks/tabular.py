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
BYTES = 256  # values of a byte
FAR = 10.0  # standard deviations from the mean at which values are clamped


class QuickDropout(nn.Module):
    """nn.Dropout, which draws longer than a small network computes, with a byte per value. share: rounded to 1/256."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.kept = max(1, round((1 - share) * BYTES))

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.kept == BYTES:
            return values
        eights = torch.empty(-(-values.numel() // 8), dtype=torch.int64, device=values.device)
        drawn = eights.random_(-(2**63), None).view(torch.uint8)[: values.numel()].view(values.shape)
        return values * (drawn < self.kept).to(values.dtype).mul_(BYTES / self.kept)


class MLP(Network):
    """Raw features [B, F] to outputs [B, num_outputs]; it normalises them itself, so its weights are all it needs. depth:
    hidden layers of `width` units; 0 is a linear router. mean, std: per feature."""

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
        layers = list[nn.Module]()
        for before, after in pairwise(sizes):
            layers += nn.Linear(before, after), nn.LayerNorm(after), nn.ReLU(), QuickDropout(dropout)
        self.net = nn.Sequential(*layers)
        self.head = make_head(head, sizes[-1], num_outputs)

    def features(self, inputs: Tensor) -> Tensor:
        near = inputs.to(self.mean.dtype) - self.mean
        near.mul_(1 / self.std).clamp_(-FAR, FAR)  # limits outliers; in place, which is faster on a CPU
        return self.net(near)
