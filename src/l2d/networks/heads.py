"""The last layer of a router: from features to one output per expert."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CosineHead(nn.Module):
    """cos(angle) between the features and each expert's weight vector: outputs in [−1, 1]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.normal_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=-1), F.normalize(self.weight, dim=-1))


HEADS: dict[str, type[nn.Linear | CosineHead]] = {"linear": nn.Linear, "cosine": CosineHead}


def make_head(kind: str, in_features: int, out_features: int) -> nn.Module:
    return HEADS[kind](in_features, out_features)
