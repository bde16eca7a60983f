"""A group's curve: the router's points over seeds, what they are compared with, and the numbers that sum them up."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from l2d.analysis.curve import points
from l2d.analysis.curve.groups import CurveGroup
from l2d.analysis.curve.measure import MeasuredGroup
from l2d.analysis.curve.points import Floats, Point
from l2d.analysis.report.averages import lower_hull, mean_std
from l2d.core.results import Score

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


def trace_curve(group: CurveGroup, measured: MeasuredGroup) -> Curve:
    models = model_marks(measured)
    hull = lower_hull(mark.point for mark in models)
    marks = [
        *(router_mark(measured, scale) for scale in measured.runs),
        *models,
        *(Mark("mixture", "", None, price, error, len(measured.seeds)) for price, error in hull),
        *cascade_marks(measured),
        *(mark for method in measured.expected for mark in repriced_marks(measured, method)),
        *oracle_marks(measured),
    ]
    return Curve(marks, summarise_curve(group, measured, marks))


def mean_mark(kind: str, name: str, at: float | None, found: Sequence[Point], **more: Any) -> Mark:
    (price, price_std), (error, error_std) = (mean_std(values) for values in zip(*found, strict=True))
    return Mark(kind, name, at, price, error, len(found), price_std, error_std, **more)


def model_marks(measured: MeasuredGroup) -> list[Mark]:
    """Each model by itself."""
    by_seed = [points.singles(errors, measured.prices) for errors in measured.errors.values()]
    return [
        mean_mark("single", name, None, found)
        for name, found in zip(measured.models, zip(*by_seed, strict=True), strict=True)
    ]


def averaged(
    kind: str, grid: Floats, known: Sequence[Any], at: Callable[[Any, float], Point], name: str = ""
) -> list[Mark]:
    return [mean_mark(kind, name, float(value), [at(one, float(value)) for one in known]) for value in grid if known]


def oracle_marks(measured: MeasuredGroup) -> list[Mark]:
    def at(errors: Floats, multiplier: float) -> Point:
        return points.point(points.least_decisions(errors, measured.prices, multiplier), errors, measured.prices)

    return averaged("oracle", points.multipliers(measured.prices), list(measured.errors.values()), at)


def cascade_marks(measured: MeasuredGroup) -> list[Mark]:
    def at(known: tuple[Floats, Floats], threshold: float) -> Point:
        chances, errors = known
        return points.point(points.cascade_decisions(chances, measured.prices, threshold), errors, measured.prices)

    return averaged("cascade", THRESHOLDS, list(measured.chances.values()), at)


def repriced_marks(measured: MeasuredGroup, method: str) -> list[Mark]:
    """One run's points at all prices, and where each lies on the validation rows."""
    grid, known = points.multipliers(measured.prices), measured.expected[method]

    def at(one: tuple[Floats, Floats], multiplier: float) -> Point:
        return points.point(points.least_decisions(one[0], measured.prices, multiplier), one[1], measured.prices)

    marks = averaged("repriced", grid, list(known.values()), at, method)
    held = measured.held_out[method]
    if held.keys() != known.keys() or measured.prices.ndim == 2:  # of other rows than the prices are
        return marks
    there = averaged("repriced", grid, list(held.values()), at, method)
    return [
        replace(mark, validation_price=one.price, validation_error=one.error)
        for mark, one in zip(marks, there, strict=True)
    ]


def router_mark(measured: MeasuredGroup, scale: float) -> Mark:
    runs = measured.runs[scale].values()
    found = [points.point(run.decisions, run.errors, measured.prices) for run in runs]
    validation = [run.metrics.validation for run in runs]
    prices = [validation_price(one, scale, measured.prices) for one in validation]
    gaps = [value for seed in measured.runs[scale] if (value := apgr_of_run(measured, scale, seed)) is not None]
    return mean_mark(
        "router",
        "",
        scale,
        found,
        validation_price=None if None in prices else statistics.fmean(price for price in prices if price is not None),
        validation_error=statistics.fmean(one.error_rate for one in validation),
        apgr=statistics.fmean(gaps) if gaps else None,
    )


def validation_price(score: Score, scale: float, prices: Floats) -> float | None:
    """By the list. At scale 0 the run itself paid nothing; its shares tell the price, unless each row has its own."""
    if scale:
        return score.mean_price / scale
    return float(np.dot(score.ratios, prices)) if prices.ndim == 1 else None


def apgr_of_run(measured: MeasuredGroup, scale: float, seed: int) -> float | None:
    run = measured.runs[scale][seed]
    if len(measured.models) != 2 or run.preference.shape[1] != 2:
        return None
    strong = points.strong_of(points.singles(run.errors, measured.prices))
    preference = run.preference[:, strong] - run.preference[:, 1 - strong]
    return points.apgr(preference, run.errors[:, 1 - strong], run.errors[:, strong])


def area_by_seed(measured: MeasuredGroup) -> list[float]:
    """The router's area for each seed that has all scales."""
    whole = set.intersection(*(set(runs) for runs in measured.runs.values()))
    found = []
    for seed in sorted(whole):
        errors = measured.errors[seed]
        own = [points.point(runs[seed].decisions, errors, measured.prices) for runs in measured.runs.values()]
        area = points.area(own, points.ends_of(points.singles(errors, measured.prices)))
        found += [] if area is None else [area]
    return found


def points_by_curve(marks: Iterable[Mark], with_router: bool) -> dict[str, list[Point]]:
    """The points of each curve: of the router, mixtures and cascade, perhaps none; of the oracle and of each repriced method."""
    found: dict[str, list[Point]] = {kind: [] for kind in ("router", "mixture", "cascade")}
    for mark in marks:
        if mark.kind != "single":
            found.setdefault(mark.name if mark.kind == "repriced" else mark.kind, []).append(mark.point)
    return {kind: own for kind, own in found.items() if kind != "router" or with_router}


def summarise_curve(group: CurveGroup, measured: MeasuredGroup, marks: Sequence[Mark]) -> dict[str, Any]:
    """Plain numbers; areas are mean accuracies over prices between the cheapest and the dearest model (points.area)."""
    singles = [mark for mark in marks if mark.kind == "single"]
    models = [mark.point for mark in singles]
    ends, strong = points.ends_of(models), points.strong_of(models)
    wanted = REACHED * (1 - models[strong][1])
    drawn = points_by_curve(marks, with_router=len(measured.runs) > 1)  # a single point of it is no curve
    by_seed = area_by_seed(measured) if "router" in drawn else []
    return runs_behind(group, measured) | {
        "rows": len(next(iter(measured.errors.values()))),
        "models": [{"name": mark.name, "price": mark.price, "error_rate": mark.error} for mark in singles],
        "strong": measured.models[strong],
        "auc": {kind: points.area(found, ends) if found else None for kind, found in drawn.items()},
        "auc_std": statistics.stdev(by_seed) if len(by_seed) > 1 else None,
        "accuracy_to_reach": wanted,
        "price_to_reach": {
            kind: points.price_to_reach(found, wanted) if found else None for kind, found in drawn.items()
        },
        "apgr": {f"{mark.at:g}": mark.apgr for mark in marks if mark.kind == "router"} if len(models) == 2 else None,
    }


def runs_behind(group: CurveGroup, measured: MeasuredGroup) -> dict[str, Any]:
    """Which runs a curve is made of."""
    return {
        **dict(zip(("dataset", "setup", "experts", "cost", "method"), group.names, strict=True)),
        "runs": {f"{scale:g}": str(cell.folder) for scale, cell in group.cells.items()},
        "scales": list(measured.runs),
        "seeds": measured.seeds,
        "cascade": str(group.cascade.folder) if measured.chances and group.cascade is not None else None,
        "repriced": {name: str(group.repriced[name].folder) for name in measured.expected},
    }
