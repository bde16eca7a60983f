"""A group's curve: the router's points over seeds, what they are held against, and the numbers that sum them up."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from l2d.analysis.curve import points
from l2d.analysis.curve.groups import Group, Measured
from l2d.analysis.curve.points import Floats, Point
from l2d.analysis.report.compare import lower_hull, mean_std

REACHED = 0.95  # of the strong model's accuracy
THRESHOLDS = np.linspace(0, 1, 101)


@dataclass(frozen=True)
class Mark:
    """A point of the curve, mean over seeds. kind: router, single, mixture, cascade, repriced, oracle. at: cost.scale, threshold or
    λ. name: of a model, or of the method that was repriced."""

    kind: str
    name: str
    at: float | None
    price: float
    error: float
    seeds: int
    price_std: float | None = None
    error_std: float | None = None
    validation_price: float | None = None
    validation_error: float | None = None
    apgr: float | None = None

    @property
    def point(self) -> Point:
        return self.price, self.error


@dataclass(frozen=True)
class Curve:
    marks: list[Mark]
    summary: dict[str, Any]

    def of(self, kind: str) -> list[Mark]:
        return [mark for mark in self.marks if mark.kind == kind]


def evaluate(group: Group, measured: Measured) -> Curve:
    models = singles(measured)
    router = [router_mark(measured, scale) for scale in measured.runs]
    oracle = averaged(
        "oracle",
        points.multipliers(measured.prices),
        list(measured.errors.values()),
        lambda errors, at: points.point(points.least_decisions(errors, measured.prices, at), errors, measured.prices),
    )
    cascade = averaged(
        "cascade",
        THRESHOLDS,
        list(measured.chances.values()),
        lambda known, at: points.point(
            points.cascade_decisions(known[0], measured.prices, at), known[1], measured.prices
        ),
    )
    repriced = [mark for method in measured.expected for mark in repriced_marks(measured, method)]
    hull = lower_hull(mark.point for mark in models)
    mixtures = [Mark("mixture", "", None, price, error, len(measured.seeds)) for price, error in hull]
    marks = [*router, *models, *mixtures, *cascade, *repriced, *oracle]
    return Curve(marks, summary(group, measured, marks))


def mean_mark(kind: str, name: str, at: float | None, found: Sequence[Point], **more: Any) -> Mark:
    (price, price_std), (error, error_std) = (mean_std(values) for values in zip(*found, strict=True))
    return Mark(kind, name, at, price, error, len(found), price_std, error_std, **more)


def singles(measured: Measured) -> list[Mark]:
    by_seed = [points.singles(errors, measured.prices) for errors in measured.errors.values()]
    return [
        mean_mark("single", name, None, found)
        for name, found in zip(measured.models, zip(*by_seed, strict=True), strict=True)
    ]


def averaged(
    kind: str, grid: Floats, known: Sequence[Any], at: Callable[[Any, float], Point], name: str = ""
) -> list[Mark]:
    return [mean_mark(kind, name, float(value), [at(one, float(value)) for one in known]) for value in grid if known]


def repriced_marks(measured: Measured, method: str) -> list[Mark]:
    """One run's points at all prices, and where each lies on the validation rows."""
    grid, known = points.multipliers(measured.prices), measured.expected[method]

    def at(one: tuple[Floats, Floats], multiplier: float) -> Point:
        return points.point(points.least_decisions(one[0], measured.prices, multiplier), one[1], measured.prices)

    marks = averaged("repriced", grid, list(known.values()), at, method)
    held = measured.held_out.get(method, {})
    if held.keys() != known.keys() or measured.prices.ndim == 2:  # of other rows than the prices are
        return marks
    there = averaged("repriced", grid, list(held.values()), at, method)
    return [
        replace(mark, validation_price=one.price, validation_error=one.error)
        for mark, one in zip(marks, there, strict=True)
    ]


def router_mark(measured: Measured, scale: float) -> Mark:
    runs = measured.runs[scale].values()
    found = [points.point(run.decisions, run.errors, measured.prices) for run in runs]
    validation = [run.metrics["validation"] for run in runs]
    prices = [validation_price(one, scale, measured.prices) for one in validation]
    gaps = [value for seed in measured.runs[scale] if (value := apgr_of(measured, scale, seed)) is not None]
    return mean_mark(
        "router",
        "",
        scale,
        found,
        validation_price=None if None in prices else statistics.fmean(price for price in prices if price is not None),
        validation_error=statistics.fmean(float(one["error_rate"]) for one in validation),
        apgr=statistics.fmean(gaps) if gaps else None,
    )


def validation_price(score: dict[str, Any], scale: float, prices: Floats) -> float | None:
    """By the list; at scale 0 the run itself paid nothing, and its shares tell where prices are the same for all rows."""
    if scale:
        return float(score["mean_price"]) / scale
    return float(np.dot(score["ratios"], prices)) if prices.ndim == 1 else None


def apgr_of(measured: Measured, scale: float, seed: int) -> float | None:
    run = measured.runs[scale][seed]
    if len(measured.models) != 2 or run.preference.shape[1] != 2:
        return None
    strong = points.strong_of(points.singles(run.errors, measured.prices))
    preference = run.preference[:, strong] - run.preference[:, 1 - strong]
    return points.apgr(preference, run.errors[:, 1 - strong], run.errors[:, strong])


def area_by_seed(measured: Measured) -> list[float]:
    """The router's area for each seed that has all scales."""
    whole = set.intersection(*(set(runs) for runs in measured.runs.values()))
    found = []
    for seed in sorted(whole):
        errors = measured.errors[seed]
        own = [points.point(runs[seed].decisions, errors, measured.prices) for runs in measured.runs.values()]
        area = points.area(own, points.ends_of(points.singles(errors, measured.prices)))
        found += [] if area is None else [area]
    return found


def summary(group: Group, measured: Measured, marks: Iterable[Mark]) -> dict[str, Any]:
    """Plain numbers; areas are mean accuracies over prices between the cheapest and the dearest model (points.area)."""
    of: dict[str, list[Mark]] = {kind: [] for kind in ("router", "single", "mixture", "cascade")}
    for mark in marks:
        of.setdefault(mark.name if mark.kind == "repriced" else mark.kind, []).append(mark)
    models = [mark.point for mark in of["single"]]
    ends, strong = points.ends_of(models), points.strong_of(models)
    wanted = REACHED * (1 - models[strong][1])
    one_point = len(measured.runs) == 1  # of the router, and no curve
    drawn = {
        kind: [mark.point for mark in found]
        for kind, found in of.items()
        if kind != "single" and not (kind == "router" and one_point)
    }
    by_seed = [] if one_point else area_by_seed(measured)
    return {
        **dict(zip(("dataset", "setup", "experts", "cost", "method"), group.names, strict=True)),
        "runs": {f"{scale:g}": str(cell.folder) for scale, cell in group.cells.items()},
        "scales": list(measured.runs),
        "seeds": measured.seeds,
        "rows": len(next(iter(measured.errors.values()))),
        "models": [{"name": mark.name, "price": mark.price, "error_rate": mark.error} for mark in of["single"]],
        "strong": measured.models[strong],
        "auc": {kind: points.area(found, ends) if found else None for kind, found in drawn.items()},
        "auc_std": statistics.stdev(by_seed) if len(by_seed) > 1 else None,
        "accuracy_to_reach": wanted,
        "price_to_reach": {
            kind: points.price_to_reach(found, wanted) if found else None for kind, found in drawn.items()
        },
        "apgr": {f"{mark.at:g}": mark.apgr for mark in of["router"]} if len(models) == 2 else None,
        "cascade": str(group.cascade.folder) if of["cascade"] and group.cascade is not None else None,
        "repriced": {name: str(cell.folder) for name, cell in group.repriced.items() if name in measured.expected},
    }
