"""Train and score one router: l2d train dataset=digits setup=III method=mild."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any

import pytorch_lightning as pl
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from pytorch_lightning.callbacks import TQDMProgressBar
from pytorch_lightning.utilities import rank_zero_only

from l2d.commands.hydra_command import run_command
from l2d.config import to_plain
from l2d.core.guard import Guard
from l2d.data.batches import even_batch
from l2d.learning.checkpoints import MONITORS, EpochCheckpoint, read_checkpoint
from l2d.learning.learner import ended_by_signals, make_trainer, speed
from l2d.learning.timing import Timer
from l2d.networks.text import KEPT, TextEncoder
from l2d.routing.advice import remarks
from l2d.routing.build import build, check_stop, check_without_data, fingerprint, make, switched_off
from l2d.routing.datamodule import DeferralData
from l2d.routing.module import Router
from l2d.runs.folder import RunFolder, cell, choices
from l2d.runs.summary import figure, format_table
from l2d.runs.sweep import check_devices
from l2d.runs.tracking import CsvTracker, RunInfo
from l2d.serving.exported import FILE, HELD_OUT, Description, write_weights
from l2d.training.score import Metrics, evaluate
from l2d.utils.errors import Busy, L2DError
from l2d.utils.files import write_atomically
from l2d.utils.out_of_memory import forget_earlier_runs, is_out_of_memory, more_parts


class OutOfMemory(Exception):
    """The run's folder now says that batches have to come in more parts."""


def train(cfg: DictConfig) -> Metrics:
    """Build, fit, test the chosen checkpoint once, write the run folder, return what metrics.json holds. Where memory does not
    suffice, the run goes on as a killed one would, with batches in more parts."""
    timer, force = Timer(), cfg.force
    check_stop(cfg)
    while True:
        try:
            return attempt(cfg, timer, force)
        except OutOfMemory:
            force = False


def attempt(cfg: DictConfig, timer: Timer, force: bool) -> Metrics:
    config = to_plain(cfg)
    run = RunFolder.of(config)
    if run.finished and not force:
        run.check_data(fingerprint(cfg))
        return report_finished(run)
    if cfg.stop_after is not None and run.paused_after >= cfg.stop_after and run.last_checkpoint:
        run.check_data(fingerprint(cfg))
        print(f"stopped after epoch {run.paused_after} already, nothing done (stop_after={cfg.stop_after})\n{run.path}")
        return {}
    if cfg.dry_run:
        check_without_data(cfg)
        print(f"{'begun' if run.last_checkpoint else 'missing'}, nothing done (dry_run=true)\n{run.path}")
        return {}
    main = getattr(rank_zero_only, "rank", 0) == 0  # of several processes on one run, one holds and writes the folder
    if main and run.held:  # before data and router are built for nothing
        raise Busy(f"{run.path}: another process is working on this run")
    forget_earlier_runs()
    parts = 1 if force else run.batch_parts
    if parts > 1:  # before they are taken for those of other data
        run.check_data(fingerprint(cfg))
    data, router = build(cfg, parts)  # before the folder is made: a bad value leaves nothing behind
    timer.leave_out(data.expert_seconds)
    with run.locked() if main else nullcontext():
        if main and run.finished and not force:
            return report_finished(run)
        if main and force:
            run.clear()
        if main:
            run.check_data(fingerprint(cfg))
            run.write_config(config)
            if isinstance(router.network, TextEncoder):  # now: the model may be gone when training is over
                router.network.keep(run.path / KEPT)
            if off := switched_off(cfg):
                print(f"no GPU here, so as if with {off}")
            for line in remarks(cfg, router.method, data.panel.names):
                print(line)
        info = RunInfo(run.path, cell(config), f"seed={cfg.seed}", list(choices(config).values()), config)
        with make(cfg.logger, info=info) if main else CsvTracker(info) as tracker, sparing(run, data, cfg):
            patience = cfg.recipe.get("patience")
            checkpoint = EpochCheckpoint(run.checkpoints, MONITORS[cfg.checkpoint], cfg.stop_after, patience)
            trainer = trainer_of(cfg, tracker, [checkpoint, timer], data)
            fit(trainer, router, data, run)
            if trainer.current_epoch < cfg.recipe.epochs and not checkpoint.out_of_patience:
                if main:
                    run.pause(trainer.current_epoch)
                    print(f"stopped after epoch {trainer.current_epoch} of {cfg.recipe.epochs}, as told\n{run.path}")
                return {}
            if main and trainer.current_epoch < cfg.recipe.epochs:
                print(f"stopped after epoch {trainer.current_epoch} of {cfg.recipe.epochs}: recipe.patience={patience}")
            if checkpoint.monitor:
                router.load_state_dict(checkpoint.best_weights)
            metrics, arrays, guard, held = evaluate(trainer, router, data)
            kept = checkpoint.best_epoch if checkpoint.monitor else trainer.current_epoch
            metrics |= {"checkpoint": cfg.checkpoint, "epochs": trainer.current_epoch, "kept_epoch": kept}
            tracker.report(metrics)
        if main:
            picture = figure(metrics)
            write_atomically(run.path / "deferral.png", lambda path: picture.savefig(path))
            weights = router.weights() | {f"{HELD_OUT}.{name}": value for name, value in held.items()}
            write_weights(run.path / FILE, weights, describe(config, data, guard))
            timing = timer.record(len(data.train)) | {"batch_parts": parts}
            run.finish(metrics, {name: array.numpy() for name, array in arrays.items()}, timing)
            print(f"\n{format_table(metrics)}\n\n{run.path}")
    return metrics


@contextmanager
def sparing(run: RunFolder, data: DeferralData, cfg: DictConfig) -> Iterator[None]:
    """Where memory does not suffice within, have the run begin again with batches in more parts."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        setting = f"recipe.batch_size={data.batch_size}"
        if cfg.trainer.devices > 1:  # the other processes wait for the step that this one broke off
            half = max(1, data.batch_size // 2)
            raise L2DError(f"{setting}: out of memory; try recipe.batch_size={half}") from error
        run.divide_batches(more_parts(error, setting, even_batch(len(data.train), data.batch_size), data.parts))
        raise OutOfMemory from error


def trainer_of(cfg: DictConfig, tracker: CsvTracker, callbacks: list[pl.Callback], data: DeferralData) -> pl.Trainer:
    return make_trainer(
        accelerator=cfg.trainer.accelerator,
        devices=cfg.trainer.devices,
        strategy="ddp" if cfg.trainer.devices > 1 else "auto",
        precision=speed(cfg.recipe, cfg.trainer.accelerator)["precision"],
        deterministic=cfg.trainer.deterministic,
        max_epochs=cfg.recipe.epochs,
        logger=tracker.loggers,
        callbacks=[*callbacks, *([TQDMProgressBar(refresh_rate=10)] if cfg.progress else [])],
        enable_progress_bar=cfg.progress,
        num_sanity_val_steps=0,
        log_every_n_steps=min(50, len(data.train_dataloader())),
        accumulate_grad_batches=data.parts,
    )


def fit(trainer: pl.Trainer, router: Router, data: DeferralData, run: RunFolder) -> None:
    """Train, from the last finished epoch if there is one."""
    last = run.last_checkpoint
    if last is not None:
        print(f"going on after epoch {read_checkpoint(last)['epoch'] + 1}: {run.path}")
    trainer.fit(router, datamodule=data, ckpt_path=last, weights_only=True)


def describe(config: Mapping[str, Any], data: DeferralData, guard: Guard) -> Description:
    """What l2d route has to know beside the weights and the config: it has no data to learn it from."""
    return Description(
        experts=data.panel.names,
        prices=None if data.prices is None else tuple(data.prices.tolist()),
        num_classes=data.num_classes,
        shape=tuple(data.train.source.shape[1:]),
        seen=data.seen,
        encoder=None if data.seen.text is None else config["dataset"].get("encoder"),
        guard=guard,
    )


def report_finished(run: RunFolder) -> Metrics:
    metrics = run.metrics()
    print(f"{format_table(metrics)}\n\nfinished already, nothing done (force=true runs it anew)\n{run.path}")
    return metrics


def job(cfg: DictConfig) -> None:
    hydra_cfg = HydraConfig.get()
    if hydra_cfg.mode != RunMode.MULTIRUN and (experiment := hydra_cfg.runtime.choices.get("experiment")):
        raise L2DError(f"experiment={experiment}: is a sweep; put -m before it")
    searching = hydra_cfg.mode == RunMode.MULTIRUN and hydra_cfg.sweeper.get("tune", {}).get("search") is not None
    if hydra_cfg.mode == RunMode.MULTIRUN:
        check_devices(cfg)
    # A search says what its trials came to on validation; the test figures of each are not for its reader.
    with ended_by_signals(), redirect_stdout(io.StringIO()) if searching else nullcontext():
        train(cfg)


def main(_: list[str]) -> None:
    run_command(job, "Train a router over fixed experts, score it on the test split, keep everything in runs/.")
