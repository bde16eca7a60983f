"""An always-valid test of which of two routers costs less, from decisions that both had a part in.

Empirical Bernstein, with a mixture over bets: it is exact for bounded costs, whatever their distribution and however skewed the
weights of rare decisions make it, it needs no guess of the variance, and all that it needs of the past are two sums.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

BETS = 2.0 ** -np.arange(1, 9)  # λ, as shares of the largest bet that cannot lose everything
FEES = -np.log1p(-BETS) - BETS  # ψ(λ): what a bet pays for each square
LEVEL = 0.05
HALVINGS = 60


@dataclass(frozen=True)
class Difference:
    """Mean cost of a candidate less that of the current router, over n requests. The 95 % interval holds at all times at once."""

    n: int
    mean: float
    low: float
    high: float


def difference_parts(asked_other: Any, asked_own: Any, propensity: Any, other: Any, own: Any) -> tuple[Any, Any]:
    """A request's base and weight: base + weight·cost is an unbiased estimate of the cost of the candidate's choice less that of
    the own router's; 0 if they choose the same. asked_*: whether this choice was asked; propensity: of who was asked. other, own:
    what the choices are expected to cost, which needs not be right. Numbers or arrays."""
    wanted, kept = asked_other / propensity, asked_own / propensity
    return (1 - wanted) * other - (1 - kept) * own, wanted - kept


def evidence(total: Any, squares: Any) -> Any:
    """log mean_λ exp(λ·Σx − ψ(λ)·Σx²) for x ≥ −1, ψ(λ) = −log(1 − λ) − λ. If every E[x | past] ≤ 0, it exceeds log(1/α) at any time
    with a chance of at most α: exp(λx − ψ(λ)x²) ≤ 1 + λx, so its exponential is a supermartingale (Ville). Arrays or numbers."""
    exponents = np.multiply.outer(total, BETS) - np.multiply.outer(squares, FEES)
    return np.logaddexp.reduce(exponents, axis=-1) - np.log(len(BETS))


def margin(squares: float, level: float) -> float:
    """The u with evidence(u, squares) = log(1/level): Σ(x − E[x | past]) ever exceeds it with a chance of at most `level`."""
    low, high = 0.0, float(((np.log(len(BETS) / level) + FEES * squares) / BETS).min())
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if evidence(middle, squares) > -np.log(level) else (middle, high)
    return high


def difference(n: int, total: float, squares: float, bound: float) -> Difference:
    """total, squares: Σ(base + weight·cost) over n requests, and the sum of its squares. bound: on each one's size."""
    wide = bound * margin(squares / bound**2, LEVEL / 2)
    return Difference(n, total / n, (total - wide) / n, (total + wide) / n)
