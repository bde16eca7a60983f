"""CE, CWCE, class-balanced: cross-entropy on the cheapest expert, plain or weighted by how rarely an expert is the cheapest."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from l2d.core.costs import cheapest
from l2d.core.decisions import at_least_float32
from l2d.core.rho import cheapest_counts
from l2d.methods.method import Method
from l2d.utils.parameters import Share


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
