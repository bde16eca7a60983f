"""Scores of a cross-validated run, from the routers of its folds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core import metrics as metrics_
from l2d.core.results import DecisionLosses, RowCounts, RunMetrics, Score
from l2d.data.arrays import Arrays
from l2d.methods.method import Method
from l2d.runs.folder import RunFolder
from l2d.training import score
from l2d.training.fitted import Fitted, LearnedRows, joined, learned_rows
from l2d.training.plans import plan_evidence, rivals, with_plan_names
from l2d.training.score import Judged, RoutedRows, Scored, guard_of, held_out, score_router

SIMPLE = ("nearest_neighbours", "category_table")


@dataclass(frozen=True)
class Fold:
    """A finished fold. rows: which of all rows were held out. learned: the next fold's rows that its router learned from."""

    rows: Tensor
    routed: RoutedRows
    learned: LearnedRows | None
    metrics: RunMetrics


def read_fold(run: RunFolder, rows: Tensor) -> Fold:
    """rows: see Fold."""
    with np.load(run.path / "test.npz") as found:
        known = {name: torch.from_numpy(found[name]) for name in found if name not in ("ids", "train_ids")}
    routed: dict[str, Any] = {field.name: known.get(field.name) for field in fields(RoutedRows)}
    learned: dict[str, Any] = {field.name: known.get(f"learned_{field.name}") for field in fields(LearnedRows)}
    return Fold(rows, RoutedRows(**routed), LearnedRows(**learned) if "learned_rows" in known else None, run.metrics())


def score_fold(others: Tensor, following: Tensor, fitted: Fitted) -> Scored:
    """others: the rows that are not in the fold, counted among all rows. following: those of the next fold."""
    scored = score_router(fitted)
    learned = learned_rows(fitted, others, following)
    return replace(scored, arrays=scored.arrays | (learned.arrays() if learned else {}))


def score_out_of_fold(folds: Sequence[Fold], whole: Arrays, fitted: Fitted) -> Scored:
    """The scores are those of the folds' routers. The best single expert is chosen on all rows, which favours it. The guard that is
    deployed is fitted to all rows; the guarded decisions on a fold's rows are those of a guard that did not see them."""
    rows = gathered(folds)
    method, splits = fitted.method, with_plan_names(fitted, fitted.splits)
    splits = replace(splits, train_costs=rivals(fitted, rows.costs))
    best = metrics_.best_single(splits.train_costs)
    guard = guard_of(method, rows, best)
    guarded = guarded_by_the_others(method, folds, best)
    n, found = len(rows), [fold.metrics for fold in folds]
    metrics = RunMetrics(
        **score.about_the_routing(method, splits, rows, whole.train_categories, mean_simple(found)),
        log=score.about_the_log(splits, rows, guarded, guard),
        **score.about_the_run(fitted),
        evaluation="cross_validate",
        rows=RowCounts(train=len(splits.train), validation=n, test=n),
        validation=mean_score([one.validation for one in found], [one.rows.validation for one in found]),
        by_decision=mean_losses(found) if method.has_posterior else None,
        guarded=metrics_.guarded_score(guard, guarded, rows.costs, rows.prices, splits.panel.names),
        plans=plan_evidence(splits, rows.costs, rows.prices, guarded),
    )
    kept = held_out(method, rows, splits, splits.train_costs, learned_by_both(folds, fitted))
    kept = kept and {"learned": torch.arange(0), **kept}  # says, even if there is none, that folds judged the rows
    return Scored(metrics, rows.arrays() | {"guarded": guarded}, Judged(guard, kept), whole.train_ids)


def learned_by_both(folds: Sequence[Fold], fitted: Fitted) -> tuple[LearnedRows, LearnedRows] | None:
    """The expectations of the final router and of the folds' routers on the same rows: a budget must hold for the final router.
    None if the method's prices cannot change."""
    found = [fold.learned for fold in folds if fold.learned is not None]
    if not found:
        return None
    theirs = joined(found)
    own = learned_rows(fitted, torch.arange(len(fitted.splits.train.source)), theirs.rows)
    return None if own is None else (own, theirs.take(own.rows))


def gathered(folds: Sequence[Fold]) -> RoutedRows:
    """The decisions of the folds' routers, in the order of all rows."""
    order = torch.cat([fold.rows for fold in folds]).argsort()
    parts = [fold.routed.arrays() for fold in folds]
    whole = {name: torch.cat([part[name] for part in parts])[order] for name in parts[0] if name != "prices"}
    prices = [part["prices"] for part in parts]
    listed = prices[0].ndim == 1  # one list of prices for all rows
    return RoutedRows(**whole, prices=prices[0] if listed else torch.cat(prices)[order])


def guarded_by_the_others(method: Method, folds: Sequence[Fold], best: int) -> Tensor:
    """Each fold's decisions under a guard that is fitted to the rows of the other folds, in the order of all rows."""
    found = []
    for fold in folds:
        guard = guard_of(method, gathered([other for other in folds if other is not fold]), best)
        found.append(guard.decide(fold.routed.utilities, fold.routed.decisions))
    return torch.cat(found)[torch.cat([fold.rows for fold in folds]).argsort()]


def mean_score(scores: Sequence[Score], rows: Sequence[int]) -> Score:
    """rows: the number behind each score. Folds that keep equal texts together have different numbers. The squared standard error
    of the mean is Σ (n_i·s_i)² / (Σ n_i)²."""

    def mean(name: str) -> Any:
        return np.average([getattr(one, name) for one in scores], axis=0, weights=rows).tolist()

    sums = [n * one.standard_error for n, one in zip(rows, scores, strict=True) if one.standard_error is not None]
    error = math.hypot(*sums) / sum(rows) if len(sums) == len(scores) else None
    return Score(mean("deferral_loss"), mean("error_rate"), mean("mean_price"), mean("ratios"), error)


def mean_simple(folds: Sequence[RunMetrics]) -> dict[str, Score]:
    """The mean scores of the simple routers that every fold has."""
    found = {name: [getattr(fold.baselines, name) for fold in folds] for name in SIMPLE}
    rows = [fold.rows.test for fold in folds]
    return {name: mean_score(scores, rows) for name, scores in found.items() if None not in scores}


def mean_losses(folds: Sequence[RunMetrics]) -> dict[str, DecisionLosses] | None:
    """None if some fold's method had no posterior."""
    found = [fold.by_decision for fold in folds if fold.by_decision is not None]
    if len(found) < len(folds):
        return None

    def mean(name: str, part: str) -> float:
        losses = [getattr(one[name], part) for one in found]
        return float(np.average(losses, weights=[getattr(fold.rows, part) for fold in folds]))

    return {name: DecisionLosses(mean(name, "validation"), mean(name, "test")) for name in found[0]}
