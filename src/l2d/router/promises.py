"""What each promised error costs, for a picture."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm import tqdm

from l2d.router.router import Router
from l2d.router.trained import plan_of
from l2d.utils.errors import L2DError, ParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 20
ANY, LEAST = 0.999, 0.01  # errors: one that everybody keeps; where levels begin at least


@dataclass(frozen=True)
class Promise:
    """price, error: expected per query, on rows that the router did not see; low, high: the price's 95 % interval."""

    max_error: float
    price: float
    low: float
    high: float
    error: float


def promises(router: Router, confidence: float) -> list[Promise]:
    """From a little above the error of the cheapest decisions down to the least that can be promised."""

    def promise(level: float) -> Promise:
        point = router.at(max_error=level, confidence=confidence).operating_point
        assert point is not None
        return Promise(level, point.spend, *point.spend_interval, point.error)

    def kept(level: float) -> Promise | None:
        try:
            return promise(level)
        except ParameterError:
            return None

    if plan_of(router)[0] is not None:
        raise L2DError("each promise of a plan takes long to make; router.at(max_error=…) makes one")
    worst = min(1.25 * max(promise(ANY).error, LEAST), ANY)
    while (first := kept(worst)) is None:
        worst = min(1.1 * worst, ANY)
    found = [first]
    for step in tqdm(range(1, LEVELS), "promises", disable=not sys.stderr.isatty(), leave=False):
        if (one := kept(worst * (1 - step / LEVELS))) is None:
            break
        found.append(one)
    return found


def promise_figure(points: Sequence[Promise], router: Router, confidence: float) -> "Figure":
    from matplotlib.figure import Figure

    picture = Figure(figsize=(8, 5.5), layout="constrained")
    axes, levels = picture.subplots(), [100 * one.max_error for one in points]
    axes.fill_betweenx(levels, [one.low for one in points], [one.high for one in points], alpha=0.2)
    axes.plot([one.price for one in points], levels, ".-", label=f"promised with confidence {confidence:g}")
    axes.plot([one.price for one in points], [100 * one.error for one in points], ":", label="expected")
    money = ", $" if router.prices.sign else ""
    axes.set(xlabel=f"{router.prices.mean_price} of a query{money}", ylabel="error (%)")
    axes.legend()
    return picture
