"""Judges a router on every row: five routers, each on the fifth of the rows that it did not see; then one router of all rows."""

import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.assembly.build import assemble_rows, expert_cache, load_rows, make_dataset, make_splits, without_epochs
from l2d.assembly.datamodule import DeferralData
from l2d.assembly.fingerprints import data_fingerprint
from l2d.assembly.make import find, make
from l2d.assembly.module import RouterModule
from l2d.config import Experiment
from l2d.config.schema import Component
from l2d.core import metrics as metrics_
from l2d.core.results import DecisionLosses, RowCounts, RunMetrics, Score
from l2d.data.arrays import Arrays
from l2d.data.folds import pooled, with_test_fold
from l2d.data.splits import cross_validation_fold
from l2d.methods.method import Method
from l2d.runs.cells import duration
from l2d.runs.folder import RunFolder
from l2d.training.learned_rows import LearnedRows, joined, learned_rows, read_learned
from l2d.training.score import (
    RoutedRows,
    Scored,
    about_the_log,
    about_the_routing,
    about_the_run,
    held_out,
    hold,
    score_router,
)
from l2d.training.walk import Source, holding, is_main_process, train
from l2d.utils.errors import Busy, L2DError, ParameterError, under
from l2d.utils.seeding import derive_seed
from l2d.utils.text import counted, say

FOLDS = 5
SIMPLE = ("nearest_neighbours", "category_table")
MOST_ROWS = 20_000  # of a table that is cross-validated by default
LONG = 10  # seconds to go that are worth a line
LEAST = 30  # rows: fewer say nothing, however they are divided
# A fold is no run of its own on W&B.
CSV = Component("logger", "csv", "l2d.runs.tracking.CsvTracker", {})


@dataclass(frozen=True)
class Fold:
    """A finished fold. rows: which of all rows were held out. learned: the next fold's rows that its router learned from."""

    rows: Tensor
    routed: RoutedRows
    learned: LearnedRows | None
    metrics: RunMetrics


def train_and_judge(
    experiment: Experiment, run: RunFolder | None = None, tell: Callable[[str], None] = say
) -> RunMetrics | None:
    """Train a run, judged as `evaluation` says. None if stop_after ended it early."""
    run = run or RunFolder.of(experiment.plain)
    if (run.finished and not experiment.settings.force) or not cross_validates(experiment):
        return train(experiment, run, tell=tell)
    with holding(run):
        if is_main_process():
            if experiment.settings.force:
                run.clear()
            run.check_data(data_fingerprint(experiment))  # finished folds are of the same rows
        with gone_if_refused(run):
            return train_folds(replace(experiment, settings=replace(experiment.settings, force=False)), run, tell)


@contextmanager
def gone_if_refused(run: RunFolder) -> Iterator[None]:
    """The folder must be there before the first fold is assembled. If that is then refused, the same
    command would be refused again: nothing is left that looks like a run."""
    try:
        yield
    except Busy:
        raise
    except L2DError:
        begun = [*run.path.glob("config.yaml"), *run.folds.glob("*/config.yaml")]
        if is_main_process() and not begun:
            run.remove()
        raise


def train_folds(experiment: Experiment, run: RunFolder, tell: Callable[[str], None]) -> RunMetrics | None:
    rows, folds, told = FoldedRows(experiment), [], False
    check_cost(experiment, rows.whole)
    for number in range(1, FOLDS + 1):
        part, begun = RunFolder(run.folds / str(number)), time.monotonic()
        fold = rows.fold(number, part, tell)
        if fold is None:
            if is_main_process():
                run.pause(part.paused_after)
            return None
        folds.append(fold)
        left = (time.monotonic() - begun) * (FOLDS - number + 1)  # the other folds, and the router of all rows
        if left >= LONG and not told and is_main_process():
            tell(f"about {duration(left)} to go")
            told = True
    metrics = train(experiment, run, rows.source(folds), tell)
    if metrics is not None and is_main_process():
        shutil.rmtree(run.folds, ignore_errors=True)
    return metrics


def check_cost(experiment: Experiment, whole: Arrays) -> None:
    """Refuse prices that these experts do not have before the first fold, not in it."""
    cost, panel = make(experiment.cost), whole.panel
    if panel is None:
        return
    with under("cost"):
        cost.check_panel(panel)
        if cost.by_row:
            cost.row_prices(panel.train)
        else:
            cost.prices(panel, torch.arange(len(whole.train_labels)))


def cross_validates(experiment: Experiment) -> bool:
    """Whether every row is judged. By default: outcomes in a table whose test rows would be drawn, unless it is large or tiny."""
    settings = experiment.settings
    if settings.evaluation == "holdout" or settings.fold is not None:
        return False
    problem = why_not(experiment)
    if settings.evaluation == "cross_validate" and problem:
        raise ParameterError("evaluation", f"{problem}; use holdout", settings.evaluation)
    if settings.evaluation == "cross_validate" or problem:
        return not problem
    arrays, _ = load_rows(experiment)
    return arrays.panel is not None and len(arrays.train_labels) + len(arrays.test_labels) <= MOST_ROWS


def why_not(experiment: Experiment) -> str:
    """Why rows cannot be cross-validated; empty if they can."""
    if not getattr(make_dataset(experiment), "divisible", False):
        given = experiment.dataset.arguments
        named = [f"dataset.{key}={given[key]} says" for key in ("split", "split_by") if given.get(key) is not None]
        return f"{[*named, 'these data say'][0]} which rows are for testing"
    if find(experiment.cost).from_rows:
        return f"the prices of cost={experiment.cost.name} follow from the training rows, and folds would have different ones"
    arrays, _ = load_rows(experiment)
    units = len(arrays.train_labels) + len(arrays.test_labels)
    if arrays.groups is not None and arrays.test_groups is not None:
        units = len(torch.cat([arrays.groups, arrays.test_groups]).unique())
    if units < LEAST:
        return f"too few rows, {units:,}, counting those with the same text once; there must be {LEAST}"
    return ""


def splits_of_router(experiment: Experiment) -> Splits:
    """What a run's router learned from."""
    return (
        FoldedRows(experiment).source(()).splits(experiment) if cross_validates(experiment) else make_splits(experiment)
    )


class FoldedRows:
    """The rows of a run and their folds, which the run's seed draws."""

    def __init__(self, experiment: Experiment) -> None:
        arrays, self.data = load_rows(experiment)
        self.experiment, self.whole = experiment, pooled(arrays)

    def fold(self, number: int, run: RunFolder, tell: Callable[[str], None]) -> Fold | None:
        """Train a router without a fold's rows and judge it there, unless that is done already. None if stop_after ended it."""
        seed = derive_seed(self.experiment.settings.seed, "test folds")
        fold, next_fold = (f"{one}/{FOLDS}" for one in (number, number % FOLDS + 1))
        arrays, rows = with_test_fold(self.whole, fold, seed)
        if not run.finished:
            tell(f"fold {number} of {FOLDS}: {counted(len(rows), 'row')} held out")
            others, _ = cross_validation_fold(self.whole, fold, seed)
            _, following = cross_validation_fold(self.whole, next_fold, seed)
            source = Source(
                splits=partial(self.splits, arrays, f"fold {fold} of {seed}"),
                score=partial(score_fold, others, following),
            )
            if train(replace(self.experiment, logger=CSV), run, source, tell=lambda _: None) is None:
                return None
            wait_for_others()
        return Fold(rows, read_routed(run), read_learned(run.path / "test.npz"), run.metrics())

    def splits(self, arrays: Arrays, which: str, experiment: Experiment, *, everything: bool = False) -> Splits:
        """which: tells the experts' cache which rows these are."""
        cache = expert_cache(experiment, renew=False)
        return assemble_rows(experiment, arrays, f"{self.data} {which}", cache, everything=everything)

    def source(self, folds: Sequence[Fold]) -> Source:
        """For the router that is used in the end. It learns from all rows but, if they choose its epoch, the validation rows."""
        chosen = without_epochs(self.experiment)
        everything = chosen.settings.checkpoint == "last" and chosen.recipe.patience is None
        return Source(
            splits=partial(self.splits, self.whole, "all", everything=everything),
            score=partial(score_out_of_fold, folds, self.whole.train_categories, self.whole.train_ids),
        )


def wait_for_others() -> None:
    """If several processes train one run: until the main one has written the fold, which all read."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()


def read_routed(run: RunFolder) -> RoutedRows:
    with np.load(run.path / "test.npz") as found:
        names = [field.name for field in fields(RoutedRows) if field.name in found]
        return RoutedRows(**{name: torch.from_numpy(found[name]) for name in names})


def score_fold(
    others: Tensor,
    following: Tensor,
    trainer: pl.Trainer,
    router: RouterModule,
    data: DeferralData,
    checkpoint: str,
    kept_epoch: int,
) -> Scored:
    """others: the rows that are not in the fold, counted among all rows. following: those of the next fold."""
    scored = score_router(trainer, router, data, checkpoint, kept_epoch)
    learned = learned_rows(trainer, router, data, others, following)
    return replace(scored, arrays=scored.arrays | (learned.arrays() if learned else {}))


def score_out_of_fold(
    folds: Sequence[Fold],
    categories: Sequence[str] | None,
    ids: np.ndarray | None,
    trainer: pl.Trainer,
    router: RouterModule,
    data: DeferralData,
    checkpoint: str,
    kept_epoch: int,
) -> Scored:
    """The scores are those of the folds' routers. The best single expert is chosen on all rows, which favours it.

    A guard that falls back does so on every row. Otherwise its decisions on a fold's rows are those of a guard that did not see
    them.
    """
    rows = gathered(folds)
    method, splits = router.method, replace(data.splits, train_costs=rows.costs)
    best = metrics_.best_single(splits.train_costs)
    guard, guarded = hold(method, rows, rows, best)
    if guard.constant is None:
        guarded = guarded_by_the_others(method, folds, best)
    n, found = len(rows), [fold.metrics for fold in folds]
    metrics = RunMetrics(
        **about_the_routing(method, splits, rows, categories, mean_simple(found)),
        log=about_the_log(splits, rows, guarded, best),
        **about_the_run(router, splits),
        evaluation="cross_validate",
        rows=RowCounts(train=len(splits.train), validation=n, test=n),
        validation=mean_score([one.validation for one in found], [one.rows.validation for one in found]),
        by_decision=mean_losses(found) if method.has_posterior else None,
        guarded=metrics_.guarded_score(guard, guarded, rows.costs, rows.prices, splits.panel.names),
        checkpoint=checkpoint,
        epochs=trainer.current_epoch,
        kept_epoch=kept_epoch,
    )
    kept = held_out(method, rows, splits, splits.train_costs, learned_by_both(folds, trainer, router, data))
    kept = kept and {"learned": torch.arange(0), **kept}  # says, even if there is none, that folds judged the rows
    return Scored(metrics, rows.arrays() | {"guarded": guarded}, guard, kept, ids)


def learned_by_both(
    folds: Sequence[Fold], trainer: pl.Trainer, router: RouterModule, data: DeferralData
) -> tuple[LearnedRows, LearnedRows] | None:
    """What the final router and the folds' routers expect on the same rows: a budget must hold for the final router. None if the
    method's prices cannot change."""
    found = [fold.learned for fold in folds if fold.learned is not None]
    if not found:
        return None
    theirs = joined(found)
    own = learned_rows(trainer, router, data, torch.arange(len(data.splits.train.source)), theirs.rows)
    return None if own is None else (own, theirs.take(own.rows))


def gathered(folds: Sequence[Fold]) -> RoutedRows:
    """What the folds' routers did, in the order of all rows."""
    order = torch.cat([fold.rows for fold in folds]).argsort()
    parts = [fold.routed.arrays() for fold in folds]
    whole = {name: torch.cat([part[name] for part in parts])[order] for name in parts[0] if name != "prices"}
    prices = [part["prices"] for part in parts]
    listed = prices[0].ndim == 1  # one list of prices for all rows
    return RoutedRows(**whole, prices=prices[0] if listed else torch.cat(prices)[order])


def guarded_by_the_others(method: Method, folds: Sequence[Fold], best: int) -> Tensor:
    """Each fold's decisions under a guard that is fitted to the rows of the other folds."""
    found = []
    for fold in folds:
        others = [other for other in folds if other is not fold]
        found.append(hold(method, gathered(others), fold.routed, best)[1])
    return torch.cat(found)[torch.cat([fold.rows for fold in folds]).argsort()]


def mean_score(scores: Sequence[Score], rows: Sequence[int]) -> Score:
    """rows: how many each score is of. Folds that keep equal texts together have different numbers. The squared standard error of
    the mean is Σ (n_i·s_i)² / (Σ n_i)²."""

    def mean(name: str) -> Any:
        return np.average([getattr(one, name) for one in scores], axis=0, weights=rows).tolist()

    sums = [n * one.standard_error for n, one in zip(rows, scores, strict=True) if one.standard_error is not None]
    error = math.hypot(*sums) / sum(rows) if len(sums) == len(scores) else None
    return Score(mean("deferral_loss"), mean("error_rate"), mean("mean_price"), mean("ratios"), error)


def mean_simple(folds: Sequence[RunMetrics]) -> dict[str, Score]:
    """Of the simple routers that every fold has."""
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
