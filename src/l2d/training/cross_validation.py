"""Judges a router on every row: five routers, each on the fifth of the rows that it did not see; then one router of all rows."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from l2d.assembly.assemble import Splits
from l2d.assembly.build import assemble_rows, expert_cache, load_rows, make_splits, without_epochs
from l2d.assembly.fingerprints import data_fingerprint, with_fingerprints
from l2d.assembly.make import find, make_dataset
from l2d.config import Experiment
from l2d.config.schema import Component
from l2d.core.results import RunMetrics
from l2d.data.arrays import Arrays
from l2d.data.splits import cross_validation_fold, pooled, with_test_fold
from l2d.runs.folder import RunFolder
from l2d.training.fold_scores import Fold, read_fold, score_fold, score_out_of_fold
from l2d.training.walk import Source, Tell, holding, is_main_process, train
from l2d.utils.errors import Busy, L2DError, ParameterError
from l2d.utils.seeding import derive_seed
from l2d.utils.text import counted, say

FOLDS = 5
MOST_ROWS = 20_000  # of a table that is cross-validated by default
LEAST = 30  # rows: fewer say nothing, however they are divided
# A fold is no run of its own on W&B.
CSV = Component("logger", "csv", "l2d.runs.tracking.CsvTracker", {})


def train_and_judge(experiment: Experiment, run: RunFolder | None = None, tell: Tell = say) -> RunMetrics | None:
    """Train a run, judged as `evaluation` says. None if stop_after ended it early."""
    experiment = with_fingerprints(experiment)
    run = run or RunFolder.of(experiment.plain)
    if (run.finished and not experiment.settings.force) or not cross_validates(experiment):
        return train(experiment, run, tell=tell)
    with holding(run):
        if is_main_process():
            if experiment.settings.force:
                run.clear()
            run.check_data(data_fingerprint(experiment))  # finished folds are of the same rows
        try:
            return train_folds(replace(experiment, settings=replace(experiment.settings, force=False)), run, tell)
        except L2DError as error:
            begun = [*run.path.glob("config.yaml"), *run.folds.glob("*/config.yaml")]
            if is_main_process() and not begun and not isinstance(error, Busy):
                run.remove()  # it had to be there before the first fold was assembled, which was refused
            raise


def train_folds(experiment: Experiment, run: RunFolder, tell: Tell) -> RunMetrics | None:
    rows, folds = fold_rows(experiment), list[Fold]()
    for number in range(1, FOLDS + 1):
        part = RunFolder(run.folds / str(number))
        fold = rows.fold(number, part, tell)
        if fold is None:
            if is_main_process():
                run.pause(part.paused_after)
            return None
        folds.append(fold)
    metrics = train(experiment, run, rows.source(folds), tell)
    if metrics is not None and is_main_process():
        shutil.rmtree(run.folds, ignore_errors=True)
    return metrics


def cross_validates(experiment: Experiment) -> bool:
    """True if every row is judged. By default: outcomes in a table whose test rows would be drawn, unless it is large or tiny."""
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
    if not make_dataset(experiment).divisible:
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
    """The rows that a run's router learned from."""
    experiment = with_fingerprints(experiment)
    if not cross_validates(experiment):
        return make_splits(experiment)
    return fold_rows(experiment).source(()).splits(experiment)


def fold_rows(experiment: Experiment) -> "FoldedRows":
    arrays, data = load_rows(experiment)
    return FoldedRows(experiment, pooled(arrays), data)


@dataclass(frozen=True)
class FoldedRows:
    """All rows of a run, divided into folds by the run's seed. data: their fingerprint."""

    experiment: Experiment
    whole: Arrays
    data: str

    def fold(self, number: int, run: RunFolder, tell: Tell) -> Fold | None:
        """Train a router without a fold's rows and judge it there, unless that is done already. None if stop_after ended it."""
        seed = derive_seed(self.experiment.settings.seed, "test folds")
        fold, next_fold = (f"{one}/{FOLDS}" for one in (number, number % FOLDS + 1))
        arrays, rows = with_test_fold(self.whole, fold, seed)
        if not run.finished:
            tell(f"fold {number} of {FOLDS}: {counted(len(rows), 'row')} held out")
            others, _ = cross_validation_fold(self.whole, fold, seed)
            _, following = cross_validation_fold(self.whole, next_fold, seed)
            splits = partial(self.splits, arrays, f"fold {fold} of {seed}")
            source = Source(splits, partial(score_fold, others, following))
            if train(replace(self.experiment, logger=CSV), run, source, tell=lambda _: None) is None:
                return None
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
