"""The cost of each expert on each example, c_k(x, y) = 1[g_k(x) ≠ y] + β_k, and the rewards c̄_k of Section 3: how much is gained by
ranking expert k above the others."""

import numpy as np
import torch
from torch import Tensor

from l2d.utils.errors import L2DError


def expert_errors(predictions: Tensor, labels: Tensor) -> Tensor:
    """1[g_k(x) ≠ y] for predictions int [N, p] and labels int [N] -> float64 [N, p]."""
    return (predictions != labels[:, None]).double()


def noisy(costs: Tensor, noise: float, kind: str, rng: np.random.Generator) -> Tensor:
    """c·(1 + noise·z), or c + noise·z if the kind is additive; z ~ N(0, 1) for every row and expert, clipped at 0."""
    z = torch.from_numpy(rng.standard_normal(tuple(costs.shape))).to(costs.dtype)
    return (costs * (1 + noise * z) if kind == "multiplicative" else costs + noise * z).clamp(min=0)


def check_costs(costs: Tensor, known: Tensor | None = None) -> None:
    """Refuse costs [N, p] that no loss here is defined for. known bool [N, p]: only these count, the others were not asked."""
    if costs.ndim != 2 or len(costs) == 0 or costs.shape[1] < 2:
        raise L2DError(f"costs: expected at least one row × two experts; got shape {tuple(costs.shape)}")
    bad = ~(torch.isfinite(costs) & (costs >= 0))
    if known is not None:
        bad &= known
    if bad.any():
        row, k = (int(i) for i in bad.nonzero()[0])
        first = f"the first is {float(costs[row, k])} in row {row} for expert {k + 1}"
        raise L2DError(f"costs: {int(bad.sum())} not finite or negative; {first}")


def paid(costs: Tensor, decisions: Tensor) -> Tensor:
    """c_k of the chosen expert. costs [N, p], decisions int [N] -> [N]."""
    return costs.gather(-1, decisions[..., None]).squeeze(-1)


def cheapest(costs: Tensor) -> Tensor:
    """argmin_k c_k [..., p] -> [...], ties to the first expert: the oracle's choice."""
    return costs.argmin(dim=-1)


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
