"""Cross-entropy on the cheapest expert, and its variants for imbalance: weights, margins, shifted logits, focus on hard rows."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from l2d.core.costs import cheapest
from l2d.core.decisions import at_least_float32
from l2d.core.rho import cheapest_counts
from l2d.methods.method import Method
from l2d.utils.parameters import NonNegative, Positive, Share


def inverse_frequency_weights(counts: Tensor) -> Tensor:
    """w_k = p·m_k⁻¹ / Σ_j m_j⁻¹: mean 1 over the experts. [p] -> [p]."""
    inverse = 1 / counts
    return len(counts) * inverse / inverse.sum()


def effective_number(counts: Tensor, beta: float) -> Tensor:
    """(1 − β^{m_k})/(1 − β) (Cui et al. 2019): 1 for β = 0, m_k itself in the limit β = 1. [p] -> [p]."""
    return counts if beta == 1 else (1 - beta**counts) / (1 - beta)


def weighted_cross_entropy(scores: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """w_t·(log Σ_k e^{f_k} − f_t). scores [B, p], target t int [B], weights [p] -> [B], by whose sum no mean is divided."""
    scores = at_least_float32(scores)
    return weights.to(scores)[target] * F.cross_entropy(scores, target, reduction="none")


class CrossEntropy(Method):
    """weighted=False: CE. weighted=True: by the inverse of the effective number; CWCE with beta=1, class-balanced with beta < 1."""

    weights: Tensor

    def __init__(self, *, costs: Tensor, weighted: bool, beta: Share, **given: Any) -> None:
        super().__init__(costs=costs, **given)
        numbers = effective_number(cheapest_counts(costs), beta)
        weights = inverse_frequency_weights(numbers) if weighted else torch.ones(self.num_outputs)
        self.register_buffer("weights", weights.float())

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return weighted_cross_entropy(outputs, cheapest(costs), self.weights)

    def posterior(self, outputs: Tensor) -> Tensor:
        """P(k is the cheapest | x): the weighted loss is least at softmax(f) ∝ w·p, so the weights are divided out."""
        scores = at_least_float32(outputs)
        return torch.softmax(scores - self.weights.to(scores).log(), dim=-1)


def ldam_margins(counts: Tensor, max_margin: float) -> Tensor:
    """Δ_k ∝ m_k^(−1/4), the largest being max_margin. [p] -> [p]."""
    margins = counts**-0.25
    return margins * (max_margin / margins.max())


def ldam_loss(cosines: Tensor, target: Tensor, margins: Tensor, scale: float) -> Tensor:
    """Cross-entropy of s·(z_k − Δ_t·1[k = t]). cosines z [B, p], target t int [B], margins Δ [p] -> [B]."""
    z = at_least_float32(cosines)
    shift = F.one_hot(target, z.shape[-1]).to(z) * margins.to(z)
    return F.cross_entropy(scale * (z - shift), target, reduction="none")


class LDAM(Method):
    """LDAM (Cao et al. 2019): a larger margin for experts that are rarely the cheapest. Needs outputs in [−1, 1], hence the cosine
    head: unbounded logits outgrow the margin, and training diverges."""

    head: ClassVar[str] = "cosine"
    margins: Tensor

    def __init__(self, *, costs: Tensor, max_margin: Positive, scale: Positive, **given: Any) -> None:
        super().__init__(costs=costs, **given)
        self.scale = scale
        self.register_buffer("margins", ldam_margins(cheapest_counts(costs), max_margin).float())

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return ldam_loss(outputs, cheapest(costs), self.margins, self.scale)


class LogitAdjustment(Method):
    """Logit adjustment (Menon et al. 2021); with τ = 1 in the loss, balanced softmax (Ren et al. 2020). Decides as if every expert
    were the cheapest equally often: by p(k|x)/π_k^τ, p(k|x) being the chance that k is the cheapest. post_hoc=False: trained on
    f + τ log π, decided by f; True: trained on f, decided by f − τ log π. Either way `decision=posterior` decides by p(k|x) itself,
    which undoes the adjustment."""

    shift: Tensor

    def __init__(self, *, costs: Tensor, tau: NonNegative, post_hoc: bool, **given: Any) -> None:
        super().__init__(costs=costs, **given)
        self.post_hoc = post_hoc
        counts = cheapest_counts(costs)
        self.register_buffer("shift", (tau * (counts.log() - counts.sum().log())).float())  # τ log π

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        scores = at_least_float32(outputs)
        shifted = scores if self.post_hoc else scores + self.shift.to(scores)
        return F.cross_entropy(shifted, cheapest(costs), reduction="none")

    def utilities(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        if (decision or self.decision) == "posterior" or not self.post_hoc:
            return super().utilities(outputs, decision)
        scores = at_least_float32(outputs)
        return scores - self.shift.to(scores)

    def posterior(self, outputs: Tensor) -> Tensor:
        """P(k is the cheapest | x): the loss is least where its logits, f + τ log π or f, are log p."""
        scores = at_least_float32(outputs)
        return (scores if self.post_hoc else scores + self.shift.to(scores)).softmax(dim=-1)


def focal_loss(scores: Tensor, target: Tensor, gamma: float) -> Tensor:
    """−(1 − p_t)^γ log p_t with p = softmax(f). scores [B, p], target t int [B] -> [B]."""
    log_p = torch.log_softmax(at_least_float32(scores), dim=-1).gather(1, target[:, None])[:, 0]
    miss = -torch.expm1(log_p)  # 1 − p_t, precise even if p_t is near 1
    return -(miss.clamp(min=1e-12) ** gamma) * log_p  # for γ < 1 the slope at 0 is infinite


class Focal(Method):
    """The focal loss (Lin et al. 2017): less weight on easy examples, so softmax(f) is no posterior."""

    def __init__(self, *, gamma: NonNegative, **given: Any) -> None:
        super().__init__(**given)
        self.gamma = gamma

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return focal_loss(outputs, cheapest(costs), self.gamma)
