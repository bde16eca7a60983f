"""Points (price, error) of a curve, and the figures by which public benchmarks compare routers. errors [N, p]; prices: β of the
list, without cost.scale, [p], or [N, p] if they differ between rows; decisions int [N]."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2d.analysis.report.averages import lower_hull

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Point = tuple[float, float]
Ends = tuple[Point, Point]  # the cheapest and the dearest model
DIGITS = 12  # of a price: means of the same number differ by rounding


def point(decisions: Ints, errors: Floats, prices: Floats) -> Point:
    """The mean price per query, and the error."""
    rows = np.arange(len(errors))
    price = np.broadcast_to(prices, errors.shape)[rows, decisions].mean()
    return round(float(price), DIGITS), float(errors[rows, decisions].mean())


def singles(errors: Floats, prices: Floats) -> list[Point]:
    """For each model: the point where it gets all queries."""
    return [point(np.full(len(errors), k), errors, prices) for k in range(errors.shape[1])]


def strong_of(models: Sequence[Point]) -> int:
    """The most accurate model; ties go to the cheaper, then to the first."""
    return min(range(len(models)), key=lambda k: (models[k][1], models[k][0], k))


def ends_of(models: Sequence[Point]) -> Ends:
    """The cheapest and the dearest model; ties go to the more accurate one."""
    return min(models), min(models, key=lambda one: (-one[0], one[1]))


def multipliers(prices: Floats) -> Floats:
    """λ, evenly spaced in log λ: from where prices only break ties to where they decide everything."""
    span = float(np.ptp(np.atleast_2d(prices).mean(axis=0))) or 1.0
    return np.geomspace(1e-3, 1e3, 241) / span


def least_decisions(errors: Floats, prices: Floats, multiplier: float) -> Ints:
    """argmin_k error_k + λ·β_k of each row: with true errors the oracle's decisions, with estimates a router's."""
    return (errors + multiplier * prices).argmin(axis=1)


def cascade_decisions(chances: Floats, prices: Floats, threshold: float) -> Ints:
    """The cheapest model whose chance of being right reaches the threshold, else the surest model. chances [N, p]."""
    means = np.atleast_2d(prices).mean(axis=0)
    order = np.argsort(means, kind="stable")
    confident = chances[:, order] >= threshold
    surest = chances.shape[1] - 1 - chances[:, ::-1].argmax(axis=1)  # ties to the last, as routers decide
    return np.where(confident.any(axis=1), order[confident.argmax(axis=1)], surest)


def chances_of(scores: Floats, reward_scale: float, prices: Floats) -> Floats:
    """P(correct) as one_vs_all estimates it [N, p]: σ(f_k) is 1 − E[c_k|x]/scale, and c_k the error plus the price of that run."""
    expected = reward_scale / (1 + np.exp(np.clip(scores, -700, 700)))
    return np.clip(1 - (expected - prices), 0, 1)


def line(points: Iterable[Point]) -> tuple[Floats, Floats]:
    """Prices, ascending, and errors; points of equal price are averaged."""
    found = [(round(price, DIGITS), error) for price, error in points]
    prices, place = np.unique([price for price, _ in found], return_inverse=True)
    return prices, np.bincount(place, weights=[error for _, error in found]) / np.bincount(place)


def area(points: Iterable[Point], ends: Ends) -> float | None:
    """The mean accuracy, 1 − error, over prices from the cheapest to the dearest model, interpolated linearly between the points
    and both ends: mixing two neighbours at random gives the line between them. None if all prices are equal."""
    return mean_accuracy(*line([*points, *ends]), ends)


def aiq(points: Iterable[Point], ends: Ends) -> float | None:
    """RouterBench's average improvement in quality (Hu et al. 2024): the same on the non-decreasing convex hull."""
    prices, errors = np.array(lower_hull((round(price, DIGITS), error) for price, error in [*points, *ends])).T
    return mean_accuracy(prices, errors, ends)


def mean_accuracy(prices: Floats, errors: Floats, ends: Ends) -> float | None:
    """Over prices between the ends, on straight lines through points with ascending prices."""
    low, high = round(ends[0][0], DIGITS), round(ends[1][0], DIGITS)
    if not high > low:
        return None
    grid = np.array([low, *prices[(prices > low) & (prices < high)], high])
    return 1 - float(np.trapezoid(np.interp(grid, prices, errors), grid)) / (high - low)


def price_to_reach(points: Iterable[Point], accuracy: float) -> float | None:
    """The least price at which the straight lines through the points reach an accuracy; None if they never do."""
    prices, errors = line(points)
    reached = np.flatnonzero(errors <= 1 - accuracy + 1e-12)
    if not len(reached):
        return None
    i = int(reached[0])
    if i == 0:
        return float(prices[0])
    share = (errors[i - 1] - (1 - accuracy)) / (errors[i - 1] - errors[i])
    return float(prices[i - 1] + min(share, 1.0) * (prices[i] - prices[i - 1]))


def gain_at_budget(points: Iterable[Point], models: Sequence[Point], budget: float) -> float | None:
    """Accuracy at a mean price, on straight lines through the curve's own points, minus that of the best model within the budget.
    A curve that ends before the budget has the accuracy of its dearest point. None if no point or no model is within the budget."""
    prices, errors = line(points)
    affordable = [error for price, error in models if price <= budget + 10.0**-DIGITS]
    if not affordable or prices[0] > budget + 10.0**-DIGITS:
        return None
    return min(affordable) - float(np.interp(budget, prices, errors))


def price_saved(points: Iterable[Point], strong: Point) -> float | None:
    """The share of the most accurate model's price that is saved at its accuracy; None if never reached, or if it is free."""
    reached = price_to_reach(points, 1 - strong[1])
    return None if reached is None or strong[0] <= 0 else 1 - reached / strong[0]


def benchmark_figures(drawn: Mapping[str, Sequence[Point]], models: Sequence[Point], ends: Ends) -> dict[str, Any]:
    """By curve; the budget is the price of the most accurate model. gap_closed: the share of the oracle's gain that is reached."""
    strong = models[strong_of(models)]
    curves = {name: found for name, found in drawn.items() if found}
    gains = {name: gain_at_budget(found, models, strong[0]) for name, found in curves.items()}
    most = gains.get("oracle") or 0.0
    return {
        "aiq": {name: aiq(found, ends) for name, found in curves.items()},
        "budget": strong[0],
        "gain_at_budget": gains,
        "gap_closed": {k: None if gain is None or most < 1e-12 else gain / most for k, gain in gains.items()},
        "price_saved": {name: price_saved(found, strong) for name, found in curves.items()},
    }
