"""TDEF and MILD: one comp-sum surrogate, with different rewards and different ρ (Section 5.3; Φ^τ: Section 4.2)."""

from typing import Any

import torch
from torch import Tensor

from l2d.core.costs import complement_scale, rewards_of
from l2d.core.decisions import at_least_float32, comp_sum_posterior
from l2d.core.rho import build_rho
from l2d.methods.method import Method
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import NonNegative, Rewards, Rho


def comp_sum_terms(scores: Tensor, rho: Tensor) -> Tensor:
    """ℓ̃_ρ(f, x, k) = log Σ_k' exp((f_k' − f_k)/ρ_k) for every k. scores [..., p], ρ [p] -> [..., p]. The differences are taken
    before the division: f/ρ itself may be so large that float32 loses the difference."""
    scores = at_least_float32(scores)
    differences = scores[..., None, :] - scores[..., :, None]
    return torch.logsumexp(differences / rho.to(scores)[:, None], dim=-1)


def comp_sum_phi(log_sums: Tensor, tau: float) -> Tensor:
    """Φ^τ(u) = log(1 + u) for τ = 1, ((1 + u)^{1−τ} − 1)/(1 − τ) otherwise, from log(1 + u) so that nothing
    overflows for τ ≥ 1. τ = 0: u itself, the exponential loss. τ = 1: logistic. τ > 1: bounded by 1/(τ − 1)."""
    return log_sums if tau == 1 else torch.expm1((1 - tau) * log_sums) / (1 - tau)


def comp_sum_loss(scores: Tensor, rewards: Tensor, rho: Tensor, tau: float = 1.0) -> Tensor:
    """Σ_k c̄_k Φ^τ(Σ_{k'≠k} e^{(f_k' − f_k)/ρ_k}), which is Σ_k c̄_k ℓ̃_ρ(f, x, k) for τ = 1. [..., p], [..., p], [p] -> [...]."""
    return (rewards * comp_sum_phi(comp_sum_terms(scores, rho), tau)).sum(dim=-1)


class Rewarded(Method):
    """A loss of rewards c̄ and margins ρ. tau: of Φ^τ."""

    rho: Tensor
    reward_scale: Tensor

    def __init__(
        self,
        *,
        costs: Tensor,
        rewards: Rewards,
        rho: Rho,
        tau: NonNegative,
        largest_cost: float | None = None,
        **given: Any,
    ) -> None:
        super().__init__(costs=costs, **given)
        self.reward_kind, self.tau = rewards, tau
        self.register_buffer("reward_scale", torch.tensor(complement_scale(costs, largest_cost)))
        self.register_buffer("rho", build_rho(rho, costs, self.rewards(costs)).float())

    def rewards(self, costs: Tensor) -> Tensor:
        """c̄ [..., p] for costs [..., p]."""
        return rewards_of(self.reward_kind, costs, self.reward_scale)


class CompSum(Rewarded):
    """Σ_k c̄_k Φ^τ (Mao, Mohri and Zhong 2023). TDEF: rewards complement, ρ = 1. MILD: sum_others, ρ by conf/method/mild.yaml."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if self.decision == "posterior" and not self.has_posterior:
            problem = "there is no posterior, which decision=posterior needs"
            raise ParameterError("tau", f"{problem}; use decision=argmax or a tau below {self.tau_limit:.4g}", self.tau)

    @property
    def tau_limit(self) -> float:
        """From this τ on, the loss may be least at infinite scores, which show only the largest reward. As d = f_k − f_j grows, the
        term of k falls by ~e^{−d/ρ_k}, that of j rises by ~e^{−(τ−1)d/ρ_j}, which must fade more slowly for every pair."""
        return 1 + float(self.rho.min() / self.rho.max())

    @property
    def has_posterior(self) -> bool:
        return self.tau < self.tau_limit

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return comp_sum_loss(outputs, self.rewards(costs), self.rho, self.tau)

    def posterior(self, outputs: Tensor) -> Tensor:
        return comp_sum_posterior(outputs, self.rho, self.tau)

    def mass(self, costs: Tensor) -> Tensor:
        return self.rewards(costs)
