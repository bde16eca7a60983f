"""What each expert costs on each example: c_k(x, y) = 1[g_k(x) ≠ y] + β_k."""

from collections.abc import Sequence

import torch
from torch import Tensor

from l2d.errors import L2DError


def expert_costs(predictions: Tensor, labels: Tensor, prices: Tensor) -> Tensor:
    """c_k(x, y) = 1[g_k(x) ≠ y] + β_k.

    predictions: int [N, p], labels: int [N], prices β: float [p]. Returns [N, p] in the dtype of the prices.
    """
    return (predictions != labels[:, None]).to(prices.dtype) + prices


def expert_prices(prices: str | Sequence[float] | None, coverage: Sequence[float]) -> Tensor:
    """β as float64 [p]: zeros for None, the coverages for "coverage", otherwise the list itself."""
    p = len(coverage)
    if prices is None:
        return torch.zeros(p, dtype=torch.float64)
    if isinstance(prices, str):
        if prices != "coverage":
            raise L2DError(f"cost.prices={prices}: give null, coverage, or a list with one price per expert")
        return torch.tensor(list(coverage), dtype=torch.float64)
    try:
        beta = torch.tensor([float(price) for price in prices], dtype=torch.float64)
    except (TypeError, ValueError):
        raise L2DError(f"cost.prices={prices}: give null, coverage, or a list with one number per expert") from None
    if len(beta) != p:
        raise L2DError(f"cost.prices={list(prices)}: {len(beta)} prices for {p} experts")
    for k, price in enumerate(beta.tolist()):
        if not 0 <= price < float("inf"):
            raise L2DError(f"cost.prices={list(prices)}: the price of expert {k + 1} must be finite and not negative")
    return beta


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
