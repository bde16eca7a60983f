"""The figures by which public benchmarks compare routers: AIQ, the gain at a budget, the price saved at equal accuracy.

Points are (price, error) as in points.py. Accuracy is 1 − error.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from l2d.analysis.curve.points import DIGITS, Point, line, price_to_reach, strong_of
from l2d.analysis.report.averages import lower_hull

Ends = tuple[Point, Point]  # the cheapest and the dearest model


def aiq(points: Iterable[Point], ends: Ends) -> float | None:
    """RouterBench's average improvement in quality (Hu et al. 2024): the mean accuracy over prices from the cheapest to the dearest
    model, on the non-decreasing convex hull of the points and both ends. None if all prices are equal.

    It is the most that mixtures of the points reach, so it is no less than the area under straight lines (points.area).
    """
    low, high = round(ends[0][0], DIGITS), round(ends[1][0], DIGITS)
    if not high > low:
        return None
    hull = lower_hull((round(price, DIGITS), error) for price, error in [*points, *ends])
    prices, errors = np.array([price for price, _ in hull]), np.array([error for _, error in hull])
    inside = (prices > low) & (prices < high)
    grid = np.array([low, *prices[inside], high])
    return 1 - float(np.trapezoid(np.interp(grid, prices, errors), grid)) / (high - low)


def gain_at_budget(points: Iterable[Point], models: Sequence[Point], budget: float) -> float | None:
    """Accuracy at a mean price, on straight lines through the curve's own points, minus that of the best model within the budget.
    A curve that ends before the budget has the accuracy of its dearest point. None if no point or no model is within the budget."""
    prices, errors = line(points)
    affordable = [error for price, error in models if price <= budget + 10.0**-DIGITS]
    if not affordable or prices[0] > budget + 10.0**-DIGITS:
        return None
    return min(affordable) - float(np.interp(budget, prices, errors))


def gap_closed(gain: float | None, oracles: float | None) -> float | None:
    """The share of the oracle's gain over the best single model that a router reaches; None where the oracle gains nothing."""
    return None if gain is None or oracles is None or oracles < 1e-12 else gain / oracles


def price_saved(points: Iterable[Point], strong: Point) -> float | None:
    """The share of the most accurate model's price that a curve saves at the same accuracy; None if it never reaches that, or if
    the model is free."""
    reached = price_to_reach(points, 1 - strong[1])
    return None if reached is None or strong[0] <= 0 else 1 - reached / strong[0]


def benchmark_figures(drawn: Mapping[str, Sequence[Point]], models: Sequence[Point], ends: Ends) -> dict[str, Any]:
    """The figures of each curve in `drawn`, by name; the budget is the price of the most accurate model."""
    strong = models[strong_of(models)]
    curves = {name: found for name, found in drawn.items() if found}
    gains = {name: gain_at_budget(found, models, strong[0]) for name, found in curves.items()}
    return {
        "aiq": {name: aiq(found, ends) for name, found in curves.items()},
        "budget": strong[0],
        "gain_at_budget": gains,
        "gap_closed": {name: gap_closed(gain, gains.get("oracle")) for name, gain in gains.items()},
        "price_saved": {name: price_saved(found, strong) for name, found in curves.items()},
    }
