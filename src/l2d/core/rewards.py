"""The rewards c̄_k of Section 3: how much is gained by ranking expert k above the others."""

import torch
from torch import Tensor


def sum_others(costs: Tensor) -> Tensor:
    """c̄_k = Σ_{k'≠k} c_{k'} (Lemma 1; MILD's). costs [..., p] -> [..., p]."""
    return costs.sum(dim=-1, keepdim=True) - costs


def complement(costs: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """c̄_k = 1 − c_k/scale, at least 0 (Lemma 2; TDEF's). costs [..., p] -> [..., p]."""
    return (1 - costs / scale).clamp(min=0)


def rewards_of(kind: str, costs: Tensor, scale: Tensor | float) -> Tensor:
    """c̄ [..., p] of this kind; only complement uses the scale."""
    return sum_others(costs) if kind == "sum_others" else complement(costs, scale)


def complement_scale(costs: Tensor, largest: float | None = None) -> float:
    """The scale that brings the training costs into [0, 1], as Lemma 2 asks; 1 if they are there already. largest: the largest
    cost without noise, if the costs are noisy. A few outliers would make all rewards nearly equal."""
    return max(1.0, largest_known(costs) if largest is None else largest)


def largest_known(costs: Tensor) -> float:
    return float(costs.nan_to_num(nan=-torch.inf).max())
