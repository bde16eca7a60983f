"""A group's curve: the router's points over seeds, its rivals, and summary numbers."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from l2d.analysis.curve import points
from l2d.analysis.curve.measure import CurveGroup, Decide, Estimated, MeasuredGroup
from l2d.analysis.curve.points import Floats, Point
from l2d.analysis.report.averages import lower_hull, mean_std
from l2d.config.identity import NAMED
from l2d.core.prices import Prices

REACHED = 0.95  # of the strong model's accuracy


@dataclass(frozen=True)
class Mark:
    """A point of the curve, mean over seeds."""

    kind: str  # router, single, mixture, cascade, repriced, oracle
    name: str  # of a model, or of the method that was repriced
    at: float | None  # cost.scale, threshold or λ
    price: float
    error: float
    seeds: int
    price_std: float | None = None
    error_std: float | None = None
    validation_price: float | None = None
    validation_error: float | None = None

    @property
    def point(self) -> Point:
        return self.price, self.error


@dataclass(frozen=True)
class Curve:
    marks: list[Mark]
    summary: dict[str, Any]
    prices: Prices  # the unit of the list

    def of(self, kind: str, name: str | None = None) -> list[Mark]:
        return [mark for mark in self.marks if mark.kind == kind and name in (None, mark.name)]


def trace_curve(group: CurveGroup, measured: MeasuredGroup) -> Curve:
    prices = measured.prices
    by_seed = [points.singles(errors, prices) for errors in measured.errors.values()]
    by_model = zip(measured.models, zip(*by_seed, strict=True), strict=True)
    models = [mean_mark("single", name, None, found) for name, found in by_model]
    hull = lower_hull(mark.point for mark in models)
    known = {seed: Estimated(errors, errors, prices, prices) for seed, errors in measured.errors.items()}
    if any(not run.metrics.baselines.oracle for by_seed in measured.runs.values() for run in by_seed.values()):
        known = {}  # errors are doubly robust: there is no oracle
    marks = [
        *(router_mark(measured, scale) for scale in measured.runs),
        *models,
        *(Mark("mixture", "", None, price, error, len(measured.errors)) for price, error in hull),
        *estimated("cascade", "", np.linspace(0, 1, 101), points.cascade_decisions, measured.chances),
        *(mark for method in measured.expected for mark in repriced_marks(measured, method)),
        *estimated("oracle", "", points.multipliers(prices), points.least_decisions, known),
    ]
    unit = Prices.shared(cell.config for cell in group.cells.values())
    return Curve(marks, summarise_curve(group, measured, marks, unit), unit)


def mean_mark(kind: str, name: str, at: float | None, found: Sequence[Point]) -> Mark:
    (price, price_std), (error, error_std) = (mean_std(values) for values in zip(*found, strict=True))
    return Mark(kind, name, at, price, error, len(found), price_std, error_std)


def estimated(kind: str, name: str, grid: Floats, decide: Decide, known: Mapping[int, Estimated]) -> list[Mark]:
    values = grid.tolist() if known else []
    return [mean_mark(kind, name, at, [one.point(decide, at) for one in known.values()]) for at in values]


def repriced_marks(measured: MeasuredGroup, method: str) -> list[Mark]:
    """One run's points at all prices, and where each lies on the validation rows."""
    grid, both = points.multipliers(measured.prices), (measured.expected[method], measured.held_out[method])
    marks, there = (estimated("repriced", method, grid, points.least_decisions, rows) for rows in both)
    pairs = zip(marks, there, strict=True) if there else ()
    return [replace(mark, validation_price=one.price, validation_error=one.error) for mark, one in pairs] or marks


def router_mark(measured: MeasuredGroup, scale: float) -> Mark:
    runs, prices = measured.runs[scale].values(), measured.prices
    mark = mean_mark("router", "", scale, [points.point(run.decisions, run.errors, prices) for run in runs])
    scores, paid = [run.metrics.validation for run in runs], None
    if scale:  # at list prices
        paid = statistics.fmean(score.mean_price / scale for score in scores)
    elif prices.ndim == 1:  # these runs paid nothing: the price follows from their shares, unless each row has its own
        paid = statistics.fmean(float(np.dot(score.ratios, prices)) for score in scores)
    error = statistics.fmean(score.error_rate for score in scores)
    return replace(mark, validation_price=paid, validation_error=error)


def points_by_curve(marks: Sequence[Mark]) -> dict[str, list[Point]]:
    """The router, the mixtures, the cascade, each repriced method, the oracle."""
    found: dict[str, list[Point]] = {"router": [], "mixture": [], "cascade": []}
    for mark in marks:
        if mark.kind != "single":
            found.setdefault(mark.name or mark.kind, []).append(mark.point)
    if len(found["router"]) == 1:  # a single point is no curve
        del found["router"]
    return found


def summarise_curve(group: CurveGroup, measured: MeasuredGroup, marks: Sequence[Mark], unit: Prices) -> dict[str, Any]:
    """Plain numbers; areas are mean accuracies over prices between the cheapest and the dearest model (points.area)."""
    singles = [mark for mark in marks if mark.kind == "single"]
    models = [mark.point for mark in singles]
    ends, strong = points.ends_of(models), points.strong_of(models)
    wanted = REACHED * (1 - models[strong][1])
    drawn = points_by_curve(marks)
    return {
        **dict(zip(NAMED, group.names, strict=True)),
        "runs": {f"{scale:g}": str(cell.folder) for scale, cell in group.cells.items()},
        "scales": list(measured.runs),
        "seeds": sorted(measured.errors),
        "cascade": None if group.cascade is None else str(group.cascade.folder),
        "repriced": {name: str(group.repriced[name].folder) for name in measured.expected},
        **{name: getattr(unit, name) for name in ("error_price", "latency_price")},
        "rows": len(next(iter(measured.errors.values()))),
        "models": [{"name": mark.name, "price": mark.price, "error_rate": mark.error} for mark in singles],
        "strong": measured.models[strong],
        "auc": {kind: points.area(found, ends) if found else None for kind, found in drawn.items()},
        "accuracy_to_reach": wanted,
        "price_to_reach": {kind: points.price_to_reach(found, wanted) for kind, found in drawn.items()},
        **points.benchmark_figures(drawn, models, ends),
    }
