"""The paper's losses as plain functions, for training loops of one's own. Each returns the loss of each row [B]. Most take scores
f [B, p], higher means better, and costs c [B, p], 0 or more, of p experts; `ldam_loss` takes cosines, the cheapest expert of each
row, and margins (`ldam_margins`).

They are the functions that the methods of `l2d train` use; a method adds what it counts on the training split, such as ρ.
"""

import torch
from torch import Tensor

from l2d.core.costs import cheapest, complement, sum_others
from l2d.core.decisions import deferral_loss
from l2d.methods.comp_sum import comp_sum_loss
from l2d.methods.cross_entropy import ldam_loss, ldam_margins, weighted_cross_entropy

__all__ = ["ce_loss", "cwce_loss", "deferral_loss", "ldam_loss", "ldam_margins", "mild_loss", "tdef_loss"]


def mild_loss(scores: Tensor, costs: Tensor, rho: Tensor | float, tau: float = 1.0) -> Tensor:
    """MILD: Σ_k c̄_k Φ^τ(Σ_{k'≠k} e^{(f_k' − f_k)/ρ_k}) with rewards c̄_k = Σ_{k'≠k} c_k'.

    Args:
        rho: The margins ρ, one number or one per expert [p], positive.
        tau: Of Φ^τ; 1 is logistic, as in the paper's experiments.

    Example:
        >>> import torch, l2d
        >>> scores, costs = torch.zeros(1, 2), torch.tensor([[0.0, 1.0]])
        >>> l2d.functional.mild_loss(scores, costs, rho=1.0)  # the reward of expert 1 is 1, times log 2
        tensor([0.6931])
    """
    return comp_sum_loss(scores, sum_others(costs), _per_expert(rho, scores), tau)


def tdef_loss(scores: Tensor, costs: Tensor, rho: Tensor | float = 1.0, tau: float = 1.0, scale: float = 1.0) -> Tensor:
    """TDEF (Mao et al. 2023): as `mild_loss`, with rewards c̄_k = 1 − c_k/scale, at least 0.

    Args:
        rho: One temperature, or one per expert [p].
        tau: Of Φ^τ.
        scale: The largest cost of the training rows, so that c/scale is at most 1.

    Example:
        >>> import torch, l2d
        >>> l2d.functional.tdef_loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
        tensor([0.6931])
    """
    return comp_sum_loss(scores, complement(costs, scale), _per_expert(rho, scores), tau)


def ce_loss(scores: Tensor, costs: Tensor) -> Tensor:
    """Cross-entropy on the cheapest expert of each row, ties to the first.

    Example:
        >>> import torch, l2d
        >>> l2d.functional.ce_loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]))
        tensor([0.6931])
    """
    return weighted_cross_entropy(scores, cheapest(costs), scores.new_ones(scores.shape[-1]))


def cwce_loss(scores: Tensor, costs: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy on the cheapest expert of each row, times the weight of that expert.

    Args:
        weights: [p]; CWCE takes the inverse of how often each expert is the cheapest, with mean 1.

    Example:
        >>> import torch, l2d
        >>> l2d.functional.cwce_loss(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]), torch.tensor([2.0, 0.5]))
        tensor([1.3863])
    """
    return weighted_cross_entropy(scores, cheapest(costs), weights)


def _per_expert(rho: Tensor | float, scores: Tensor) -> Tensor:
    return torch.as_tensor(rho, dtype=torch.float32, device=scores.device).expand(scores.shape[-1])
