"""What each expert costs on each example: c_k(x, y) = 1[g_k(x) ≠ y] + β_k."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.errors import L2DError, check_choice

NOISES = ("multiplicative", "additive")


def expert_errors(predictions: Tensor, labels: Tensor) -> Tensor:
    """1[g_k(x) ≠ y] for predictions int [N, p] and labels int [N] -> float64 [N, p]."""
    return (predictions != labels[:, None]).double()


def expert_costs(errors: Tensor, prices: Tensor) -> Tensor:
    """c_k(x, y) = error + β_k. errors [N, p]; prices β: [p], or [N, p] where they differ between rows."""
    return errors + prices


def expert_prices(prices: Any, names: Sequence[str], coverage: Sequence[float] | None) -> Tensor:
    """β as float64 [p]: zeros for None, the coverages for "coverage", otherwise the list itself, or a mapping by name."""
    if prices is None:
        return torch.zeros(len(names), dtype=torch.float64)
    if prices == "coverage":
        if coverage is None:
            raise L2DError(
                "cost.prices=coverage: these experts have no coverage; give cost.prices=columns, or one price per expert"
            )
        return torch.tensor(list(coverage), dtype=torch.float64)
    if isinstance(prices, Mapping):
        if unknown := [str(name) for name in prices if str(name) not in names]:
            raise L2DError(f"cost.prices: unknown expert {unknown[0]}; there are {', '.join(names)}")
        if missing := [name for name in names if name not in prices]:
            raise L2DError(f"cost.prices: no price for {', '.join(missing)}")
        prices = [prices[name] for name in names]
    try:
        if isinstance(prices, str):
            raise ValueError
        beta = torch.tensor([float(price) for price in prices], dtype=torch.float64)
    except (TypeError, ValueError):
        raise L2DError(
            f"cost.prices={prices}: give null, coverage, columns (of dataset=table), or a list with one number per expert"
        ) from None
    if len(beta) != len(names):
        raise L2DError(f"cost.prices={list(prices)}: {len(beta)} prices for {len(names)} experts")
    for name, price in zip(names, beta.tolist(), strict=True):
        if not 0 <= price < float("inf"):
            raise L2DError(f"cost.prices={list(prices)}: the price of {name} must be finite and not negative")
    return beta


def check_noise(noise: float, kind: str) -> None:
    check_choice("cost.noise_kind", kind, NOISES)
    if not 0 <= noise < float("inf"):
        raise L2DError(f"cost.noise={noise}: must be finite and not negative")


def noisy(costs: Tensor, noise: float, kind: str, rng: np.random.Generator) -> Tensor:
    """c·(1 + noise·z), or c + noise·z where the kind is additive; z ~ N(0, 1) for every row and expert, clipped at 0."""
    check_noise(noise, kind)
    z = torch.from_numpy(rng.standard_normal(tuple(costs.shape))).to(costs.dtype)
    return (costs * (1 + noise * z) if kind == "multiplicative" else costs + noise * z).clamp(min=0)


def check_costs(costs: Tensor) -> None:
    """Refuse costs [N, p] that no loss here is defined for."""
    if costs.ndim != 2:
        raise L2DError(f"costs: expected a table of examples × experts, got shape {tuple(costs.shape)}")
    n, p = costs.shape
    if p < 2:
        raise L2DError(f"costs: {p} expert; routing needs at least 2")
    if n == 0:
        raise L2DError("costs: no rows")
    bad = ~(torch.isfinite(costs) & (costs >= 0))
    if bad.any():
        row, k = (int(i) for i in bad.nonzero()[0])
        raise L2DError(
            f"costs: {int(bad.sum())} not finite or negative, the first is {float(costs[row, k])} in row {row} for expert {k + 1}"
        )


def paid(costs: Tensor, decisions: Tensor) -> Tensor:
    """c_k of the chosen expert. costs [N, p], decisions int [N] -> [N]."""
    return costs.gather(-1, decisions[..., None]).squeeze(-1)


def cheapest(costs: Tensor) -> Tensor:
    """argmin_k c_k [..., p] -> [...], ties to the first expert: the oracle's choice."""
    return costs.argmin(dim=-1)
