"""Keeps the error rate below a level: the cheapest of a fixed sequence of factors on the prices whose true error is at most the
level, with a given confidence over the draw of the rows (learn then test, by fixed-sequence testing)."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from l2d.core.budget import OperatingPoint, PricedRows, priced_rows
from l2d.core.costs import paid
from l2d.core.guard import Guard, HeldOut, paired
from l2d.core.prices import Prices
from l2d.utils.errors import ParameterError
from l2d.utils.text import Z

ROUNDING = 1e-5  # of errors that were taken from costs
LEAST_DISTANCE = 1e-4  # of a mean error from the level, or it takes millions of rows to tell
MOST_POWER = 1e4  # of the weights in `tilted`
STEPS = 600  # factors that are tried; few waste errors
MOST = 4.0  # the last factor: the experts' prices then differ by this many errors


def p_value(errors: Tensor, level: float, sizes: Tensor | None = None) -> float:
    """The p-value of a mean error [n] above the level. sizes [n]: errors are sums over groups of so many rows, which are no
    independent rows. The largest p-value counts then: of all rows, of the groups if each counts once, and of sums over groups by
    the normal law."""
    if sizes is None or sizes.max() == 1:
        return tail(float(errors.double().mean()), len(errors), level, bool(((errors == 0) | (errors == 1)).all()))
    rows = tail(float(errors.double().sum() / sizes.sum()), int(sizes.sum()), level, bool((errors % 1 == 0).all()))
    return max(rows, p_value(errors / sizes, level), tilted(errors.double() - level * sizes))


def tilted(excess: Tensor) -> float:
    """The p-value of a mean [n] above 0 by the normal law, with the variance that the values have if exponential weights bring
    their mean to 0: few large values count as they would then. 0 if no value is above 0, 1 if the mean is not below."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    if excess.sum() > -ROUNDING or excess.max() <= 0:
        return float(excess.sum() > -ROUNDING)
    scaled = excess / excess.abs().max()

    def mean(power: float) -> float:
        return float((scaled * (power * (scaled - scaled.max())).exp()).sum())

    power = brentq(mean, 0.0, MOST_POWER) if mean(MOST_POWER) > 0 else MOST_POWER
    weights = (power * scaled).softmax(dim=0)
    return float(ndtr(float(scaled.mean() / (weights @ scaled**2).sqrt()) * len(scaled) ** 0.5))


def tail(mean: float, n: int, level: float, exact: bool = True) -> float:
    """The chance of this mean error of n rows, or a smaller one, at the level: the binomial one of errors of 0 and 1 (exact), a
    bound by Hoeffding and Bentkus of others."""
    from scipy.special import bdtr

    binomial = float(bdtr(math.ceil(round(mean * n, 6)), n, level))
    if exact:
        return binomial
    below = min(mean, level)
    distance = sum(a * math.log(a / b) for a, b in ((below, level), (1 - below, 1 - level)) if a > 0)
    return min(1.0, math.exp(-n * distance), math.e * binomial)


def least_level(errors: Tensor, confidence: float, sizes: Tensor | None = None) -> float:
    """The least level that the mean error is below at this confidence; for errors that are 0 or 1, Clopper and Pearson's bound."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if p_value(errors, middle, sizes) <= 1 - confidence else (middle, high)
    return high


def rows_needed(mean: float, level: float, confidence: float) -> int | None:
    """About how many rows could show it at this mean error of 0 or 1; None if hardly any number could."""
    from scipy.special import ndtri

    if level - mean < LEAST_DISTANCE:
        return None
    spread = ndtri(confidence) / (level - mean)
    n = math.ceil(max(math.log(1 - confidence) / math.log1p(-level), level * (1 - level) * spread**2))
    while tail(mean, n, level) > 1 - confidence:
        n = math.ceil(1.02 * n)
    return n


def last_kept(errors: Iterable[Tensor], level: float, confidence: float, sizes: Tensor | None = None) -> int | None:
    """The last point of the sequence before the first whose error cannot be shown to be at most the level; None if there is none.
    errors [n] of each point. The chance that the true error of the point is above the level is at most 1 − confidence."""
    kept = None
    for place, one in enumerate(errors):
        if p_value(one, level, sizes) > 1 - confidence:
            break
        kept = place
    return kept


def whole(errors: Tensor) -> Tensor:
    """Errors of 0 and 1 are exactly that."""
    return torch.where((errors - errors.round()).abs() < ROUNDING, errors.round(), errors)


def factors_by_spread(prices: Tensor, number: int = STEPS) -> Tensor:
    """The factors to try, the safest first, whatever the errors that are tested. prices: mean of each expert [p]."""
    spread = float(prices.max() - prices.min())
    none = torch.zeros(1, dtype=torch.float64)
    steps = torch.logspace(-3, math.log10(MOST), number, dtype=torch.float64)
    return torch.cat([none, steps / spread]) if spread > 0 else none


def keep_error(held_out: HeldOut, prices: Prices, max_error: float, confidence: float) -> OperatingPoint:
    """The dearest of the factors in sequence that keeps the error. prices: as for `keep_within`."""
    rows = priced_rows(held_out, None if prices.listed is None else torch.tensor(prices.listed))[0]
    errors = whole(held_out.errors.double())
    if rows is None or not ((errors >= 0) & (errors <= 1)).all():
        problem = "needs rows whose errors are all known and between 0 and 1; a log, or losses, have none"
        raise ParameterError("max_error", problem, max_error)
    means = held_out.mean_prices if prices.listed is None else torch.tensor(prices.listed)
    assert means is not None  # prices are expected per row

    groups = torch.arange(len(errors)) if held_out.groups is None else held_out.groups  # of equal texts

    def made(factor: Tensor) -> Tensor:
        return torch.bincount(groups, paid(errors, rows.decide(factor[None])[0]))

    factor = dearest_kept(factors_by_spread(means.double()), made, max_error, confidence, torch.bincount(groups))
    return point_at(held_out, rows, float(factor), rows.decide(factor[None])[0], prices, (max_error, confidence))


def dearest_kept(
    factors: Tensor, made: Callable[[Tensor], Tensor], max_error: float, confidence: float, sizes: Tensor | None = None
) -> Tensor:
    """The last of the factors in sequence that keeps the error. made: the errors [n] at a factor. sizes: see p_value."""
    if not 0 < max_error < 1:
        raise ParameterError("max_error", "must be above 0 and below 1", max_error)
    place = last_kept(map(made, factors), max_error, confidence, sizes)
    if place is None:
        safest = made(factors[0])
        least = least_level(safest, confidence, sizes)
        n = len(safest) if sizes is None else int(sizes.sum())
        needed = rows_needed(float(safest.sum()) / n, max_error, confidence)
        more = f" (about {needed:,} rows would show it)" if needed is not None and needed > n else ""
        rows = f"{n:,} rows" if n == len(safest) else f"{n:,} rows, of which {len(safest):,} differ"
        told = f"the least that can is {math.ceil(least * 1e4) / 1e4:g}"
        problem = f"cannot be kept with confidence {confidence:g} by {rows}{more}; {told}"
        raise ParameterError("max_error", problem, max_error)
    return factors[place]


def point_at(
    held_out: HeldOut, rows: PricedRows, factor: float, decisions: Tensor, prices: Prices, asked: tuple[float, float]
) -> OperatingPoint:
    """The spend and the error that are expected at this factor. asked: the error and the confidence."""
    (spend, spread), (error, error_se) = paired(paid(rows.prices, decisions)), paired(paid(held_out.errors, decisions))
    best = int((held_out.mean_errors.double() + rows.prices.mean(dim=0)).argmin())
    mean, *ends = (prices.amount(spend + side * Z * (spread or 0.0)) for side in (0, -1, 1))
    crossed = held_out.learned is not None or held_out.deployed is not None
    guard = Guard(None, None, best, 0.0, None)
    return OperatingPoint(
        *(mean, factor, mean, (ends[0], ends[1]), 0.5, error, error_se or 0.0, guard, len(decisions), crossed),
        allowed=tuple(range(rows.prices.shape[1])),
        confidence=asked[1],
        max_error=asked[0],
        unit=prices,
    )
