"""The last layer of a router: from features to one output per expert."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from l2d.utils.errors import ParameterError


class CosineHead(nn.Module):
    """cos(angle) between the features and each expert's weight vector: outputs in [−1, 1]."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.normal_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(F.normalize(features, dim=-1), F.normalize(self.weight, dim=-1))


class HeadWithAux(nn.Module):
    """A head and an auxiliary head on the same features. In training, the outputs of both; otherwise, those of the head alone."""

    def __init__(self, head: nn.Module, aux: nn.Module) -> None:
        super().__init__()
        self.head, self.aux = head, aux

    def forward(self, features: Tensor) -> Tensor:
        outputs = self.head(features)
        return torch.cat([outputs, self.aux(features)], dim=-1) if self.training else outputs


def attach_aux(network: nn.Module, num_outputs: int) -> None:
    head = getattr(network, "head", None)
    if not isinstance(head, nn.Linear | CosineHead):
        problem = f"{type(network).__name__} has no `head` made by make_head, so it cannot have a second one"
        raise ParameterError("aux", f"{problem}; use aux=none")
    network.head = HeadWithAux(head, nn.Linear(head.weight.shape[1], num_outputs))


def without_aux(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A network's weights by name, without those of an auxiliary head."""
    kept = {name: value for name, value in weights.items() if ".head.aux." not in f".{name}"}
    return {name.replace("head.head.", "head."): value for name, value in kept.items()}


HEADS: dict[str, type[nn.Linear | CosineHead]] = {"linear": nn.Linear, "cosine": CosineHead}


def make_head(kind: str, in_features: int, out_features: int) -> nn.Module:
    return HEADS[kind](in_features, out_features)
