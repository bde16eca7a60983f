"""TDEF and MILD: one comp-sum surrogate, with different rewards and different ρ (Section 5.3)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from l2d.decisions import at_least_float32, comp_sum_posterior
from l2d.errors import check_choice
from l2d.losses.method import Method
from l2d.margins import build_rho
from l2d.rewards import REWARDS, complement, complement_scale, sum_others


def comp_sum_terms(scores: Tensor, rho: Tensor) -> Tensor:
    """ℓ̃_ρ(f, x, k) = log Σ_k' exp((f_k' − f_k)/ρ_k) for every k. scores [..., p], ρ [p] -> [..., p].

    The differences are taken before the division: f/ρ itself may be so large that float32 has no room for the difference.
    """
    scores = at_least_float32(scores)
    differences = scores[..., None, :] - scores[..., :, None]
    return torch.logsumexp(differences / rho.to(scores)[:, None], dim=-1)


def comp_sum_loss(scores: Tensor, rewards: Tensor, rho: Tensor) -> Tensor:
    """Σ_k c̄_k ℓ̃_ρ(f, x, k). [..., p], [..., p], [p] -> [...]."""
    return (rewards * comp_sum_terms(scores, rho)).sum(dim=-1)


class CompSum(Method):
    """Σ_k c̄_k ℓ̃_ρ. TDEF: rewards complement, ρ = 1. MILD: rewards sum_others, ρ from the experts' imbalance.

    rho: a number, one number per expert, or a rule with the keys of conf/method/mild.yaml.
    """

    rho: Tensor
    reward_scale: Tensor

    def __init__(
        self,
        *,
        costs: Tensor,
        num_classes: int,
        decision: str,
        rewards: str,
        rho: float | Sequence[float] | Mapping[str, Any],
    ) -> None:
        super().__init__(costs=costs, num_classes=num_classes, decision=decision)
        check_choice("method.rewards", rewards, REWARDS)
        self.reward_kind = rewards
        self.register_buffer("reward_scale", torch.tensor(complement_scale(costs)))
        self.register_buffer("rho", build_rho(rho, costs, self.rewards(costs)).float())

    def rewards(self, costs: Tensor) -> Tensor:
        """c̄ [..., p] for costs [..., p]."""
        return sum_others(costs) if self.reward_kind == "sum_others" else complement(costs, self.reward_scale)

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return comp_sum_loss(outputs, self.rewards(costs), self.rho)

    def posterior(self, outputs: Tensor) -> Tensor:
        return comp_sum_posterior(outputs, self.rho)

    def mass(self, costs: Tensor) -> Tensor:
        return self.rewards(costs)
