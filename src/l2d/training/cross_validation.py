"""Judges a router on every row: five routers, each on the fifth of the rows that it did not see; then one router of all rows."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.assembly.build import assemble_rows, expert_cache, load_rows, without_epochs
from l2d.assembly.fingerprints import data_fingerprint, with_fingerprints
from l2d.assembly.make import find, make_dataset
from l2d.config import Experiment
from l2d.config.schema import Component
from l2d.core import metrics as metrics_
from l2d.core.decisions import DECISIONS
from l2d.core.results import DecisionLosses, RowCounts, RunMetrics, Score
from l2d.data.arrays import Arrays
from l2d.data.splits import cross_validation_fold, pooled, with_test_fold
from l2d.methods.method import Method
from l2d.runs.folder import RunFolder
from l2d.training.fitted import Fitted, LearnedRows, learned_rows, rivals, with_plan_names
from l2d.training.score import Judged, RoutedRows, Scored, guard_of, held_out, measured, score_router
from l2d.training.walk import Source, holding, is_main_process, train
from l2d.utils.errors import Busy, L2DError, ParameterError
from l2d.utils.seeding import derive_seed
from l2d.utils.text import counted

FOLDS = 5
MOST_ROWS = 20_000  # of a table that is cross-validated by default
LEAST = 30  # rows: fewer say nothing, however they are divided
# A fold is no run of its own on W&B.
CSV = Component("logger", "csv", "l2d.runs.tracking.CsvTracker", {})
SIMPLE = ("nearest_neighbours", "category_table")


@dataclass(frozen=True)
class Fold:
    rows: Tensor  # that were held out, numbered among all
    routed: RoutedRows
    learned: LearnedRows | None  # the next fold's rows that its router learned from
    metrics: RunMetrics


def train_and_judge(experiment: Experiment, run: RunFolder | None = None) -> RunMetrics:
    """Train a run, judged as `evaluation` says."""
    experiment = with_fingerprints(experiment)
    run = run or RunFolder.of(experiment.plain)
    if (run.finished and not experiment.settings.force) or not cross_validates(experiment):
        return train(experiment, run)
    with holding(run):
        if is_main_process():
            if experiment.settings.force:
                run.clear()
            run.check_data(data_fingerprint(experiment))  # finished folds are of the same rows
        try:
            return train_folds(replace(experiment, settings=replace(experiment.settings, force=False)), run)
        except L2DError as error:
            begun = [*run.path.glob("config.yaml"), *run.folds.glob("*/config.yaml")]
            if is_main_process() and not begun and not isinstance(error, Busy):
                run.remove()  # it had to be there before the first fold was assembled, which was refused
            raise


def train_folds(experiment: Experiment, run: RunFolder) -> RunMetrics:
    rows = fold_rows(experiment)
    folds = [rows.fold(number, RunFolder(run.folds / str(number))) for number in range(1, FOLDS + 1)]
    metrics = train(experiment, run, rows.source(folds))
    if is_main_process():
        shutil.rmtree(run.folds, ignore_errors=True)
    return metrics


def cross_validates(experiment: Experiment) -> bool:
    """True if every row is judged. By default: outcomes in a table whose test rows would be drawn, unless it is large or tiny."""
    settings = experiment.settings
    if settings.evaluation == "holdout" or settings.fold is not None:
        return False
    wanted, problem = settings.evaluation == "cross_validate", why_not(experiment)
    if wanted and problem:
        raise ParameterError("evaluation", f"{problem}; use holdout", settings.evaluation)
    if wanted or problem:
        return wanted
    arrays, _ = load_rows(experiment)
    return arrays.panel is not None and len(arrays.train_labels) + len(arrays.test_labels) <= MOST_ROWS


def why_not(experiment: Experiment) -> str:
    if not make_dataset(experiment).divisible:
        return "these data (dataset.split, dataset.split_by) say which rows are for testing"
    if find(experiment.cost).from_rows:
        return f"the prices of cost={experiment.cost.name} follow from the training rows"
    arrays, _ = load_rows(experiment)
    units = len(arrays.train_labels) + len(arrays.test_labels)
    if arrays.groups is not None and arrays.test_groups is not None:
        units = len(torch.cat([arrays.groups, arrays.test_groups]).unique())
    return f"{units:,} different rows are too few, {LEAST} are needed" if units < LEAST else ""


def fold_rows(experiment: Experiment) -> "FoldedRows":
    arrays, data = load_rows(experiment)
    return FoldedRows(experiment, pooled(arrays), data)


@dataclass(frozen=True)
class FoldedRows:
    """All rows of a run, divided into folds by the run's seed. data: their fingerprint."""

    experiment: Experiment
    whole: Arrays
    data: str

    def fold(self, number: int, run: RunFolder) -> Fold:
        """Train a router without a fold's rows and judge it there, unless that is done already."""
        seed = derive_seed(self.experiment.settings.seed, "test folds")
        fold, next_fold = (f"{one}/{FOLDS}" for one in (number, number % FOLDS + 1))
        arrays, rows = with_test_fold(self.whole, fold, seed)
        if not run.finished:
            print(f"fold {number} of {FOLDS}: {counted(len(rows), 'row')} held out")
            others, _ = cross_validation_fold(self.whole, fold, seed)
            _, following = cross_validation_fold(self.whole, next_fold, seed)
            splits = partial(self.splits, arrays, f"fold {fold} of {seed}")
            train(replace(self.experiment, logger=CSV), run, Source(splits, partial(score_fold, others, following)))
            # If several processes train one run: until the main one has written the fold, which all read.
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.barrier()
        return read_fold(run, rows)

    def splits(self, arrays: Arrays, which: str, experiment: Experiment, *, everything: bool = False) -> Splits:
        """which: tells the experts' cache which rows these are."""
        cache = expert_cache(experiment, renew=False)
        return assemble_rows(experiment, arrays, f"{self.data} {which}", cache, everything=everything)

    def source(self, folds: Sequence[Fold]) -> Source:
        """For the router that is used in the end. It learns from all rows but, if they choose its epoch, the validation rows."""
        chosen = without_epochs(self.experiment)
        everything = chosen.settings.checkpoint == "last" and chosen.recipe.patience is None
        splits = partial(self.splits, self.whole, "all", everything=everything)
        return Source(splits, partial(score_out_of_fold, folds, self.whole))


def read_fold(run: RunFolder, rows: Tensor) -> Fold:
    with np.load(run.path / "test.npz") as found:
        known = {name: torch.from_numpy(found[name]) for name in found if name not in ("ids", "train_ids")}
    routed: dict[str, Any] = {field.name: known.get(field.name) for field in fields(RoutedRows)}
    learned: dict[str, Any] = {field.name: known.get(f"learned_{field.name}") for field in fields(LearnedRows)}
    return Fold(rows, RoutedRows(**routed), LearnedRows(**learned) if "learned_rows" in known else None, run.metrics())


def score_fold(others: Tensor, following: Tensor, fitted: Fitted) -> Scored:
    """others: the rows that are not in the fold, counted among all rows. following: those of the next fold."""
    scored, learned = score_router(fitted), learned_rows(fitted, others, following)
    parts = {} if learned is None else vars(learned)
    kept = {f"learned_{name}": value for name, value in parts.items() if value is not None}
    return replace(scored, arrays=scored.arrays | kept)


def score_out_of_fold(folds: Sequence[Fold], whole: Arrays, fitted: Fitted) -> Scored:
    """The scores are those of the folds' routers. The best single expert is chosen on all rows, which favours it. The guard that is
    deployed is fitted to all rows; the guarded decisions on a fold's rows are those of a guard that did not see them."""
    method, splits = fitted.method, with_plan_names(fitted, fitted.splits)
    if {fold.routed.costs.shape[1] for fold in folds} != {len(splits.panel.names)}:
        problem = "the log has too few second answers for a plan in every fold; use method=auto until it has more"
        raise ParameterError("method", problem)
    rows, found, n = gathered(folds), [fold.metrics for fold in folds], len(whole.train_labels)
    splits = replace(splits, train_costs=rivals(fitted, rows.costs))
    best = metrics_.best_single(splits.train_costs)
    guard = guard_of(method, rows, best)
    guarded = guarded_by_the_others(method, folds, best)
    metrics = measured(
        *(fitted, splits, rows, guard, guarded, whole.train_categories, mean_simple(found)),
        evaluation="cross_validate",
        rows=RowCounts(train=len(splits.train), validation=n, test=n),
        validation=mean_score([one.validation for one in found], [one.rows.validation for one in found]),
        by_decision=mean_losses(found) if method.has_posterior else None,
    )
    kept = held_out(method, rows, splits, splits.train_costs, whole.groups, learned_by_both(folds, fitted))
    kept = kept and {"learned": torch.arange(0), **kept}  # says, even if there is none, that folds judged the rows
    return Scored(metrics, rows.arrays() | {"guarded": guarded}, Judged(guard, kept), whole.train_ids)


def learned_by_both(folds: Sequence[Fold], fitted: Fitted) -> tuple[LearnedRows, LearnedRows] | None:
    """The expectations of the final router and of the folds' on the same rows, for budgets; None: prices are fixed."""
    found = [fold.learned for fold in folds if fold.learned is not None]
    if not found:
        return None
    rows, order = torch.cat([one.rows for one in found]).sort()
    own = learned_rows(fitted, torch.arange(len(fitted.splits.train.source)), rows)
    if own is None:
        return None
    places, parts = order[torch.searchsorted(rows, own.rows)], zip(*(vars(one).values() for one in found), strict=True)
    return own, LearnedRows(*(torch.cat(part)[places] for part in parts if part[0] is not None))


def gathered(folds: Sequence[Fold]) -> RoutedRows:
    order, parts = torch.cat([fold.rows for fold in folds]).argsort(), [fold.routed.arrays() for fold in folds]
    by_row = [name for name in parts[0] if name != "prices" or parts[0]["prices"].ndim == 2]  # else one list for all
    whole = {name: torch.cat([part[name] for part in parts])[order] for name in by_row}
    return RoutedRows(**{"prices": parts[0]["prices"], **whole})


def guarded_by_the_others(method: Method, folds: Sequence[Fold], best: int) -> Tensor:
    """Each fold's decisions under a guard that is fitted to the rows of the other folds, in the order of all rows."""
    found = []
    for fold in folds:
        guard = guard_of(method, gathered([other for other in folds if other is not fold]), best)
        found.append(guard.decide(fold.routed.utilities, fold.routed.decisions))
    return torch.cat(found)[torch.cat([fold.rows for fold in folds]).argsort()]


def mean_score(scores: Sequence[Score], rows: Sequence[int]) -> Score:
    """rows: the number behind each score. The squared standard error of the mean is Σ (n_i·s_i)² / (Σ n_i)²."""
    parts = ("deferral_loss", "error_rate", "mean_price", "ratios")
    means = {part: np.average([getattr(one, part) for one in scores], axis=0, weights=rows).tolist() for part in parts}
    sums = [n * one.standard_error for n, one in zip(rows, scores, strict=True) if one.standard_error is not None]
    error = math.hypot(*sums) / sum(rows) if len(sums) == len(scores) else None
    return Score(**means, standard_error=error)


def mean_simple(folds: Sequence[RunMetrics]) -> dict[str, Score]:
    found = {name: [getattr(fold.baselines, name) for fold in folds] for name in SIMPLE}
    rows = [fold.rows.test for fold in folds]
    return {name: mean_score(scores, rows) for name, scores in found.items() if None not in scores}


def mean_losses(folds: Sequence[RunMetrics]) -> dict[str, DecisionLosses]:
    def mean(name: str, part: str) -> float:
        losses = [getattr((fold.by_decision or {})[name], part) for fold in folds]
        return float(np.average(losses, weights=[getattr(fold.rows, part) for fold in folds]))

    return {name: DecisionLosses(mean(name, "validation"), mean(name, "test")) for name in DECISIONS}
