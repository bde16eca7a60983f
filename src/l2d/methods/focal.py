"""The focal loss (Lin et al. 2017) on the cheapest expert: less weight on easy examples."""

from typing import Any

import torch
from torch import Tensor

from l2d.core.costs import cheapest
from l2d.core.decisions import at_least_float32
from l2d.methods.method import Method
from l2d.utils.parameters import NonNegative


def focal_loss(scores: Tensor, target: Tensor, gamma: float) -> Tensor:
    """−(1 − p_t)^γ log p_t with p = softmax(f). scores [B, p], target t int [B] -> [B]."""
    log_p = torch.log_softmax(at_least_float32(scores), dim=-1).gather(1, target[:, None])[:, 0]
    miss = -torch.expm1(log_p)  # 1 − p_t, precise even if p_t is near 1
    return -(miss.clamp(min=1e-12) ** gamma) * log_p  # for γ < 1 the slope at 0 is infinite


class Focal(Method):
    """No posterior: at the minimiser softmax(f) is not each expert's chance of being the cheapest."""

    def __init__(self, *, gamma: NonNegative, **given: Any) -> None:
        super().__init__(**given)
        self.gamma = gamma

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return focal_loss(outputs, cheapest(costs), self.gamma)
