"""The deferral loss as a torchmetrics metric."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from l2d.core.decisions import argmax_last, deferral_loss


class DeferralLoss(Metric):
    """The mean cost of the experts that the scores choose, over all rows seen; right across several processes too.

    Args:
        num_experts: p.

    Example:
        >>> import torch, l2d
        >>> metric = l2d.DeferralLoss(num_experts=2)
        >>> metric.update(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[0.25, 1.0], [1.0, 0.5]]))
        >>> metric.compute()
        tensor(0.3750)
        >>> metric.shares()
        tensor([0.5000, 0.5000])
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    cost: Tensor
    chosen: Tensor

    def __init__(self, num_experts: int, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("cost", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("chosen", torch.zeros(num_experts, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, costs: Tensor) -> None:
        """scores, costs: [B, p]."""
        self.cost += deferral_loss(scores, costs).double().sum()
        self.chosen += torch.bincount(argmax_last(scores), minlength=len(self.chosen))

    def compute(self) -> Tensor:
        return (self.cost / self.chosen.sum()).float()

    def shares(self) -> Tensor:
        """The share of the rows that went to each expert [p]."""
        return self.chosen / self.chosen.sum()
