"""Logit adjustment (Menon et al. 2021) on the cheapest expert; with τ = 1 in the loss, balanced softmax (Ren et al. 2020)."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from l2d.core.costs import cheapest
from l2d.core.decisions import at_least_float32
from l2d.core.rho import cheapest_counts
from l2d.methods.method import Method
from l2d.utils.parameters import NonNegative


def adjusted_cross_entropy(scores: Tensor, target: Tensor, shift: Tensor) -> Tensor:
    """Cross-entropy of f + shift. scores [B, p], target int [B], shift [p] -> [B]."""
    scores = at_least_float32(scores)
    return F.cross_entropy(scores + shift.to(scores), target, reduction="none")


class LogitAdjustment(Method):
    """Decides as if every expert were the cheapest equally often: by p(k|x)/π_k^τ, p(k|x) being the chance that k is the
    cheapest. post_hoc=False: trained on f + τ log π, decided by f. post_hoc=True: trained on f, decided by f − τ log π. Either
    way `decision=posterior` decides by p(k|x) itself, which undoes the adjustment."""

    shift: Tensor

    def __init__(self, *, costs: Tensor, tau: NonNegative, post_hoc: bool, **given: Any) -> None:
        super().__init__(costs=costs, **given)
        self.post_hoc = post_hoc
        counts = cheapest_counts(costs)
        self.register_buffer("shift", (tau * (counts.log() - counts.sum().log())).float())  # τ log π

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return adjusted_cross_entropy(outputs, cheapest(costs), 0 * self.shift if self.post_hoc else self.shift)

    def utilities(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        if (decision or self.decision) == "posterior" or not self.post_hoc:
            return super().utilities(outputs, decision)
        scores = at_least_float32(outputs)
        return scores - self.shift.to(scores)

    def posterior(self, outputs: Tensor) -> Tensor:
        """P(k is the cheapest | x): the loss is least where its logits, f + τ log π or f, are log p."""
        scores = at_least_float32(outputs)
        return (scores if self.post_hoc else scores + self.shift.to(scores)).softmax(dim=-1)
