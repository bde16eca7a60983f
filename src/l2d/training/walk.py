"""The steps of a run: assemble, build, fit, score, write."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.assembly.build import make_data, make_router, make_splits, without_epochs
from l2d.assembly.datamodule import DeferralData
from l2d.assembly.fingerprints import data_fingerprint, with_fingerprints
from l2d.assembly.make import make
from l2d.assembly.module import RouterModule
from l2d.config import Experiment
from l2d.config.identity import cell_path, choices
from l2d.core.guard import Guard
from l2d.core.out_of_memory import free_memory, is_out_of_memory, more_parts
from l2d.core.results import RunMetrics
from l2d.data.batches import even_batch
from l2d.lightning.checkpoints import MONITORS, EpochCheckpoint, read_checkpoint
from l2d.lightning.learner import make_trainer, speed
from l2d.lightning.timing import Timer
from l2d.networks.estimators.planner import planner_of, unplanned
from l2d.runs.artifact.drift import summary_tensors
from l2d.runs.artifact.exported import FILE, HELD_OUT, READING, RouterDescription, write_weights
from l2d.runs.folder import FOLDS, RunFolder
from l2d.runs.tracking import CsvTracker, RunInfo
from l2d.training.fitted import Fitted, deployed
from l2d.training.score import Judged, Scored, judge_validation, score_router
from l2d.utils.errors import Busy, L2DError
from l2d.utils.text import counted


@dataclass(eq=False)
class OutOfMemory(Exception):
    parts: int  # the next number of micro-batches per batch


@dataclass(frozen=True)
class Source:
    splits: Callable[[Experiment], Splits] = make_splits
    score: Callable[[Fitted], Scored] = score_router


def train(
    experiment: Experiment,
    run: RunFolder | None = None,
    source: Source = Source(),  # noqa: B008 (frozen)
) -> RunMetrics:
    """Train, score and write a run. Out of memory, it resumes like a killed one, with smaller micro-batches."""
    experiment = with_fingerprints(experiment)
    run, timer, parts = run or RunFolder.of(experiment.plain), Timer(), 1
    while True:
        free_memory()  # of the attempt before, or of the run before in a sweep
        try:
            return attempt(experiment, run, timer, source, parts)
        except OutOfMemory as error:
            parts = error.parts
            experiment = replace(experiment, settings=replace(experiment.settings, force=False))


def attempt(experiment: Experiment, run: RunFolder, timer: Timer, source: Source, parts: int) -> RunMetrics:
    experiment, force = without_epochs(experiment), experiment.settings.force
    if is_main_process() and run.held:  # before data and router are built for nothing
        raise Busy(f"{run.path}: another process is working on this run")
    splits = source.splits(experiment)
    timer.leave_out(splits.expert_seconds)
    data = make_data(experiment, splits, parts)
    router = make_router(experiment, splits, parts)

    with holding(run):
        if is_main_process() and run.finished and not force:  # by another process, meanwhile
            run.check_data(data_fingerprint(experiment))
            return run.metrics()
        begin(experiment, run, splits, router)
        with make_tracker(experiment, run) as tracker:
            try:
                checkpoint = checkpoint_of(experiment, run.checkpoints)
                trainer = trainer_of(experiment, tracker.loggers, [checkpoint, timer], data)
                run_epochs(trainer, router, data, run)
                if trainer.current_epoch < experiment.recipe.epochs and is_main_process():
                    ended = f"stopped after epoch {trainer.current_epoch} of {experiment.recipe.epochs}"
                    tell(run, f"{ended}: recipe.patience={experiment.recipe.patience}\n{run.path}")
                scored = source.score(with_kept_weights(experiment, trainer, router, data, checkpoint))
                tracker.report(scored.metrics)
            except RuntimeError as error:
                raise OutOfMemory(smaller_batches(error, experiment, data)) from error
        write(experiment, run, splits, router, scored, timer.record(len(splits.train)) | {"batch_parts": parts})
    return scored.metrics


def fit_in_memory(experiment: Experiment, splits: Splits) -> tuple[Fitted, Judged]:
    """Train without a folder, and judge. After running out of memory, training starts again with smaller micro-batches."""
    experiment, parts = without_epochs(experiment), 1
    while True:
        free_memory()  # outside the handler: the error references the tensors that used up the memory
        data, router = make_data(experiment, splits, parts), make_router(experiment, splits, parts)
        try:
            checkpoint = checkpoint_of(experiment, None)
            trainer = trainer_of(experiment, False, [checkpoint], data)
            if experiment.recipe.epochs:
                trainer.fit(router, datamodule=data)
            fitted = with_kept_weights(experiment, trainer, router, data, checkpoint)
            return fitted, judge_validation(fitted)
        except RuntimeError as error:
            parts = smaller_batches(error, experiment, data)


def checkpoint_of(experiment: Experiment, folder: Path | None) -> EpochCheckpoint:
    return EpochCheckpoint(folder, MONITORS[experiment.settings.checkpoint], experiment.recipe.patience)


def with_kept_weights(
    experiment: Experiment, trainer: pl.Trainer, router: RouterModule, data: DeferralData, checkpoint: EpochCheckpoint
) -> Fitted:
    if checkpoint.monitor:
        router.load_state_dict(checkpoint.best_weights)
    kept = checkpoint.best_epoch or trainer.current_epoch
    return Fitted(trainer, router, data, experiment.settings.checkpoint, kept)


def tell(run: RunFolder, text: str) -> None:
    if run.path.parent.name != FOLDS:
        print(text)


def is_main_process() -> bool:
    """If several processes train one run, only the main one locks and writes the folder."""
    return bool(getattr(rank_zero_only, "rank", 0) == 0)


def holding(run: RunFolder) -> AbstractContextManager[None]:
    return run.locked() if is_main_process() else nullcontext()


@rank_zero_only
def begin(experiment: Experiment, run: RunFolder, splits: Splits, router: RouterModule) -> None:
    """Write what is known before training into the folder."""
    if experiment.settings.force:
        run.clear()
    run.check_data(data_fingerprint(experiment))
    run.write_config(experiment.plain)
    router.network.keep(run.path)  # now: what it is built from may be gone when training is over
    if unplanned(router.network) is not None and planner_of(router.network) is None:
        tell(run, "too few rows have several answers, so this router makes one choice (l2d serve --explore-second)")
    what = f"training {experiment.method.name} on {experiment.dataset.name}, seed {experiment.seed}"
    rows = f"{len(splits.train):,} training, {len(splits.validation):,} validation, {counted(len(splits.test), 'test row')}"
    if not len(splits.test):  # after five folds
        rows = f"the router of {counted(len(splits.train), 'row')}"
    epochs = experiment.recipe.epochs
    tell(run, f"{what}: {rows}; {counted(epochs, 'epoch') if epochs else 'computed at once'}")


def make_tracker(experiment: Experiment, run: RunFolder) -> CsvTracker:
    config = dict(experiment.plain)
    info = RunInfo(run.path, cell_path(config), f"seed={experiment.seed}", list(choices(config).values()), config)
    return make(experiment.logger, info=info) if is_main_process() else CsvTracker(info)


def smaller_batches(error: RuntimeError, experiment: Experiment, data: DeferralData) -> int:
    """The next number of micro-batches per batch, after running out of memory. Any other error is re-raised."""
    setting = f"recipe.batch_size={data.batch_size}"
    # With several processes, the others wait for the step that this one broke off.
    if experiment.trainer.devices > 1 and is_out_of_memory(error):
        raise L2DError(f"{setting}: out of memory; try recipe.batch_size={max(1, data.batch_size // 2)}") from error
    return more_parts(error, setting, even_batch(len(data.splits.train), data.batch_size), data.parts)


def is_watched() -> bool:
    """True if somebody can watch a bar, which Lightning writes to stdout: on a terminal or in a notebook."""
    return sys.stdout.isatty() or "ipykernel" in sys.modules


def trainer_of(
    experiment: Experiment, loggers: list[Logger] | Literal[False], callbacks: list[Any], data: DeferralData
) -> pl.Trainer:
    bars = experiment.settings.progress and is_watched()
    return make_trainer(
        accelerator=experiment.trainer.accelerator,
        devices=experiment.trainer.devices,
        strategy="ddp" if experiment.trainer.devices > 1 else "auto",
        precision=speed(experiment.recipe, experiment.trainer.accelerator)["precision"],
        deterministic=experiment.trainer.deterministic,
        max_epochs=experiment.recipe.epochs,
        logger=loggers,
        callbacks=[*callbacks, *([pl.callbacks.TQDMProgressBar(refresh_rate=10)] if bars else [])],
        enable_progress_bar=bars,
        num_sanity_val_steps=0,
        log_every_n_steps=min(50, len(data.train_dataloader())),
        accumulate_grad_batches=data.parts,
    )


def run_epochs(trainer: pl.Trainer, router: RouterModule, data: DeferralData, run: RunFolder) -> None:
    """Train, resuming after the last finished epoch if there is one."""
    if trainer.max_epochs == 0:
        return
    last = run.last_checkpoint
    if last is not None:
        tell(run, f"resuming after epoch {read_checkpoint(last)['epoch'] + 1}: {run.path}")
    trainer.fit(router, datamodule=data, ckpt_path=last, weights_only=True)


@rank_zero_only
def write(
    experiment: Experiment, run: RunFolder, splits: Splits, router: RouterModule, scored: Scored, timing: dict[str, Any]
) -> None:
    """metrics.json comes last: once it exists, all other files are complete."""
    weights = tensors_of(router, splits, scored.judged)
    write_weights(run.path / FILE, weights, describe(experiment, splits, router, scored.judged.guard))
    arrays = {name: array.numpy() for name, array in scored.arrays.items()}
    arrays |= {} if scored.ids is None else {"ids": scored.ids}
    if splits.propensities is not None and splits.arrays.train_ids is not None:
        arrays["train_ids"] = splits.arrays.train_ids  # l2d evaluate leaves these rows of the log out
    run.finish(scored.metrics.as_json(), arrays, timing)


def tensors_of(router: RouterModule, splits: Splits, judged: Judged) -> dict[str, Tensor]:
    """The weights, the rows to fit a guard to, a summary of the training inputs, and what the encoder of texts has learned."""
    kept = {f"{HELD_OUT}.{name}": value for name, value in judged.held_out.items()}
    kept |= {f"{READING}.{name}": torch.from_numpy(array) for name, array in splits.arrays.reading.items()}
    return router.state_dict() | kept | summary_tensors(splits.train.source, splits.train.rows)


def describe(experiment: Experiment, splits: Splits, router: RouterModule, guard: Guard) -> RouterDescription:
    """The facts that `l2d route` needs beside the weights and the config, since it has no data."""
    guard, plan = deployed(router.network, splits, guard)
    return RouterDescription(
        experts=splits.panel.names,
        prices=None if splits.prices is None else tuple(splits.prices.tolist()),
        num_classes=splits.arrays.num_classes,
        shape=tuple(splits.train.source.shape[1:]),
        seen=splits.arrays.seen,
        encoder=None if splits.arrays.seen.text is None else experiment.plain["dataset"].get("encoder"),
        guard=guard,
        plan=plan,
    )
