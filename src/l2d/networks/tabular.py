"""Routers for rows of numbers."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from l2d.data.text.tokens import is_tokens
from l2d.networks.heads import make_head
from l2d.utils.errors import L2DError

CONSTANT = 1e-5  # a spread below it counts as none
FAR = 10.0


class MLP(nn.Module):
    """Raw features [B, F] to outputs [B, num_outputs]; it normalises them itself, so its weights are all it needs.

    depth: hidden layers of `width` units; 0 is a linear router. mean, std: per feature.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        *,
        width: int,
        depth: int,
        dropout: float,
        mean: Sequence[float],
        std: Sequence[float],
        num_outputs: int,
        head: str,
    ) -> None:
        super().__init__()
        if width < 1:
            raise L2DError(f"router.width={width}: must be at least 1")
        if depth < 0:
            raise L2DError(f"router.depth={depth}: must not be negative")
        if not 0 <= dropout < 1:
            raise L2DError(f"router.dropout={dropout}: must be at least 0 and below 1")
        spread = torch.tensor(std, dtype=torch.float32)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        # A column that is constant in training would put any other value on the test split infinitely far away.
        self.register_buffer("std", torch.where(spread < CONSTANT, torch.ones_like(spread), spread))
        sizes = [len(mean), *[width] * depth]
        layers = [
            layer
            for before, after in pairwise(sizes)
            for layer in (nn.Linear(before, after), nn.LayerNorm(after), nn.GELU(), nn.Dropout(dropout))
        ]
        self.net = nn.Sequential(*layers)
        self.head = make_head(head, sizes[-1], num_outputs)

    def forward(self, rows: Tensor) -> Tensor:
        if rows.ndim != 2:
            raise L2DError("router=mlp: takes rows of numbers, not images; use router=resnet18_slim recipe=small")
        if is_tokens(rows):
            raise L2DError("router=mlp: takes rows of numbers, not tokens, which router=minilm_tuned reads")
        near = ((rows.to(self.mean.dtype) - self.mean) / self.std).clamp(-FAR, FAR)  # one outlier must not own a batch
        features = self.net(near)
        # In half precision scores would tie, and ties decide for the last expert.
        with torch.autocast(rows.device.type, enabled=False):
            return self.head(features.float())
