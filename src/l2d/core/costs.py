"""The cost of each expert on each example: c_k(x, y) = 1[g_k(x) ≠ y] + β_k."""

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
