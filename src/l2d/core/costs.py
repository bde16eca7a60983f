"""What each expert costs on each example: c_k(x, y) = 1[g_k(x) ≠ y] + β_k."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.utils.errors import L2DError, check_choice

NOISES = ("multiplicative", "additive")
# Of cost.prices=extreme: the strongest expert's share that is aimed at, in the hundredths that keep the comparison exact; the steps
# of a price between 0 and 1; how many experts a grid of them is small enough for.
EXTREME_PERCENT, EXTREME_STEPS, EXTREME_EXPERTS = 95, 10, 4


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
            f"cost.prices={prices}: give null, coverage, columns (of dataset=table), extreme, or a list with one number per expert"
        ) from None
    if len(beta) != len(names):
        raise L2DError(f"cost.prices={list(prices)}: {len(beta)} prices for {len(names)} experts")
    for name, price in zip(names, beta.tolist(), strict=True):
        if not 0 <= price < float("inf"):
            raise L2DError(f"cost.prices={list(prices)}: the price of {name} must be finite and not negative")
    return beta


def check_scale(scale: float, prices: Any) -> None:
    if not 0 <= scale < float("inf"):
        raise L2DError(f"cost.scale={scale}: must be finite and not negative")
    if prices == "extreme" and scale != 1:
        raise L2DError(
            f"cost.scale={scale}: the prices of cost.prices=extreme are found for what an error costs; leave it at 1"
        )


def strongest(errors: Tensor) -> int:
    """The expert with the least mean error, ties to the first. errors [N, p]."""
    return int(errors.double().mean(dim=0).argmin())


def extreme_prices(errors: Tensor, names: Sequence[str]) -> Tensor:
    """β [p] on the grid {0, 0.1, …, 1}^p, at least one of them 0, with which the strongest expert's share of the rows is nearest
    95 %; of equals the least sum, then the first by lexicographic order. errors 0 or 1 [N, p].

    Rows with the same errors have the same cheapest expert, so the at most 2^p different ones are enough.
    """
    p = errors.shape[1]
    if p > EXTREME_EXPERTS:
        raise L2DError(
            f"cost.prices=extreme: is for at most {EXTREME_EXPERTS} experts, here are {p}; give a list of prices"
        )
    graded = ~((errors == 0) | (errors == 1))
    if graded.any():
        row, k = (int(i) for i in graded.nonzero()[0])
        raise L2DError(
            f"cost.prices=extreme: needs experts that are right or wrong; {names[k]} has an error of {float(errors[row, k]):g}"
        )
    patterns, counts = errors.double().unique(dim=0, return_counts=True)
    steps = torch.cartesian_prod(*[torch.arange(EXTREME_STEPS + 1)] * p)  # in lexicographic order
    steps = steps[(steps == 0).any(dim=1)]
    prices = steps.double() / EXTREME_STEPS
    mine = cheapest(expert_costs(patterns, prices[:, None, :])) == strongest(errors)
    away = (100 * (mine * counts).sum(dim=1) - EXTREME_PERCENT * len(errors)).abs()
    order = (away * (p * EXTREME_STEPS + 1) + steps.sum(dim=1)).argmin()
    return prices[order]


def extreme_shares(prices: Sequence[float], train: Tensor, test: Tensor, names: Sequence[str]) -> dict[str, Any]:
    """What the prices of cost.prices=extreme come to: the oracle's share of the expert that is the strongest on the training rows.
    train, test: errors [N, p]."""
    strong = strongest(train)

    def share(errors: Tensor) -> float:
        chosen = cheapest(expert_costs(errors, torch.tensor(list(prices), dtype=torch.float64)))
        return int((chosen == strong).sum()) / len(errors)

    return {
        "expert": names[strong],
        "prices": list(prices),
        "target": EXTREME_PERCENT / 100,
        "share_train": share(train),
        "share_test": share(test),
    }


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
