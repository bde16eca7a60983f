"""The last layer of a router: from features to one output per expert."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from l2d.errors import check_choice

HEADS = ("linear", "cosine")


class CosineHead(nn.Module):
    """cos(angle) between the features and each expert's weight vector: outputs in [−1, 1]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.normal_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=-1), F.normalize(self.weight, dim=-1))


def make_head(kind: str, in_features: int, out_features: int) -> nn.Module:
    """The head that a method asks for."""
    check_choice("head", kind, HEADS)
    return CosineHead(in_features, out_features) if kind == "cosine" else nn.Linear(in_features, out_features)
