"""Train and score one router: python -m l2d.train dataset=digits setup=III method=mild."""

import dataclasses
import inspect
import logging
import time
import warnings
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning.callbacks import TQDMProgressBar
from pytorch_lightning.utilities.exceptions import MisconfigurationException
from torch import Tensor

from l2d import metrics as metrics_
from l2d.checkpoints import EpochCheckpoint, load_weights, read_checkpoint
from l2d.cli import run_command
from l2d.config import check_keys
from l2d.datamodule import DeferralData
from l2d.errors import L2DError, check_choice
from l2d.files import write_atomically
from l2d.router import Router
from l2d.runs import RunFolder, cell, choices
from l2d.seeding import derive_seed
from l2d.summary import figure, format_table
from l2d.tracking import CsvTracker, RunInfo

Metrics = dict[str, Any]


def train(cfg: DictConfig) -> Metrics:
    """Build, fit, test the chosen checkpoint once, write the run folder, return what metrics.json holds."""
    started = time.perf_counter()
    config = to_plain(cfg)
    run = RunFolder.of(config)
    if run.finished and not cfg.force:
        return report_finished(run)
    data, router = build(cfg)  # before the folder is made: a bad value leaves nothing behind
    with run.locked():
        if run.finished and not cfg.force:
            return report_finished(run)
        if cfg.force:
            run.clear()
        run.write_config(config)
        info = RunInfo(run.path, cell(config), f"seed={cfg.seed}", list(choices(config).values()), config)
        with make(cfg.logger, info=info) as tracker:
            trainer = make_trainer(cfg, run, tracker, data)
            fit_started = time.perf_counter()
            fit(trainer, router, data, run)
            fit_seconds = time.perf_counter() - fit_started
            load_weights(router, run.checkpoints / f"{cfg.checkpoint}.ckpt")
            metrics, arrays = evaluate(trainer, router, data)
            metrics |= {"checkpoint": cfg.checkpoint, "epochs": cfg.recipe.epochs}
            tracker.report(metrics)
        picture = figure(metrics)
        write_atomically(run.path / "deferral.png", lambda path: picture.savefig(path))
        timing = {
            "fit_seconds": fit_seconds,
            "total_seconds": time.perf_counter() - started,
            "torch": torch.__version__,
        }
        run.finish(metrics, {name: array.numpy() for name, array in arrays.items()}, timing)
    print(f"\n{format_table(metrics)}\n\n{run.path}")
    return metrics


def to_plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved config as plain dicts and lists."""
    config = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def make(node: DictConfig, **arguments: Any) -> Any:
    """The object that a config group names, from the group's own keys and what only the run knows."""
    factory = make_partial(node)
    try:
        inspect.signature(factory.func).bind(**factory.keywords, **arguments)
    except TypeError as error:
        raise L2DError(f"{node._get_full_key('')}: {error} ({factory.func.__qualname__})") from None
    return factory(**arguments)


def make_partial(node: DictConfig) -> Any:
    """As `make`, with arguments still to come."""
    own = {key: value for key, value in to_plain(node).items() if key != "name"}
    return instantiate(own, _partial_=True, _convert_="all")


def build(cfg: DictConfig) -> tuple[DeferralData, Router]:
    """dataset -> experts -> costs -> method -> router."""
    check_keys(cfg)
    check_choice("checkpoint", cfg.checkpoint, ("last", "best"))
    if cfg.recipe.epochs < 1:
        raise L2DError(f"recipe.epochs={cfg.recipe.epochs}: must be at least 1")
    data = DeferralData(
        dataset=make(cfg.dataset),
        experts=make(cfg.experts),
        coverage=list(cfg.setup.coverage),
        prices=to_plain(cfg.cost)["prices"],
        validation_fraction=cfg.validation_fraction,
        batch_size=cfg.recipe.batch_size,
        seed=cfg.seed,
    )
    pl.seed_everything(derive_seed(cfg.seed, "weights"), verbose=False)
    method = make(cfg.method, costs=data.train.costs, num_classes=data.num_classes, decision=cfg.decision)
    mean, std = data.pixel_statistics()
    network = make(cfg.router, mean=mean, std=std, num_outputs=method.num_outputs, head=method.head)
    optimizer = make_partial(cfg.recipe.optimizer)
    try:
        optimizer(network.parameters())
    except (TypeError, ValueError) as error:
        raise L2DError(f"recipe.optimizer={to_plain(cfg.recipe.optimizer)}: {error}") from error
    return data, Router(network=network, method=method, optimizer=optimizer, schedule=cfg.recipe.schedule)


def make_trainer(cfg: DictConfig, run: RunFolder, tracker: CsvTracker, data: DeferralData) -> pl.Trainer:
    quieten()
    try:
        return pl.Trainer(
            accelerator=cfg.trainer.accelerator,
            devices=cfg.trainer.devices,
            precision=cfg.trainer.precision,
            deterministic=cfg.trainer.deterministic,
            max_epochs=cfg.recipe.epochs,
            logger=tracker.loggers,
            callbacks=[EpochCheckpoint(run.checkpoints), *([TQDMProgressBar()] if cfg.progress else [])],
            enable_progress_bar=cfg.progress,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            log_every_n_steps=min(50, len(data.train_dataloader())),
        )
    except (MisconfigurationException, TypeError, ValueError) as error:
        raise L2DError(f"trainer={to_plain(cfg.trainer)}: {str(error).splitlines()[0]}") from error


def quieten() -> None:
    """Lightning tells the user about itself; the bars and the table are enough."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*LeafSpec.*", module="pytorch_lightning")  # Lightning 2.6 with torch 2.15


def fit(trainer: pl.Trainer, router: Router, data: DeferralData, run: RunFolder) -> None:
    """Train, from the last finished epoch if there is one."""
    last = run.last_checkpoint
    if last is not None:
        print(f"going on after epoch {read_checkpoint(last)['epoch'] + 1}: {run.path}")
    try:
        trainer.fit(router, datamodule=data, ckpt_path=last, weights_only=True)
    except SystemExit:  # Lightning's answer to Ctrl-C
        raise SystemExit(f"interrupted; the same command goes on after the last finished epoch: {run.path}") from None


def evaluate(trainer: pl.Trainer, router: Router, data: DeferralData) -> tuple[Metrics, dict[str, Tensor]]:
    """The one use of the test split."""
    outputs = predict(trainer, router, data.predict_dataloader())
    decisions = router.method.decide(outputs)
    validation = router.method.decide(predict(trainer, router, data.val_dataloader()))
    buffers = {name: value.tolist() for name, value in router.method.named_buffers()}
    metrics = metrics_.evaluate(decisions, data.train.costs, data.test.costs, data.prices) | {
        "validation": dataclasses.asdict(metrics_.score(validation, data.validation.costs, data.prices)),
        "decision": router.method.decision,
        "method_buffers": buffers,
        "rows": {"train": len(data.train.labels), "validation": len(data.validation.labels), "test": len(decisions)},
    }
    return metrics, {"scores": outputs, "costs": data.test.costs, "decisions": decisions}


def predict(trainer: pl.Trainer, router: Router, batches: Any) -> Tensor:
    outputs = trainer.predict(router, dataloaders=batches)
    assert outputs is not None
    return torch.cat([torch.as_tensor(batch) for batch in outputs]).cpu()


def report_finished(run: RunFolder) -> Metrics:
    metrics = run.metrics()
    print(f"{format_table(metrics)}\n\nfinished already, nothing done (force=true runs it anew)\n{run.path}")
    return metrics


def job(cfg: DictConfig) -> None:
    train(cfg)


if __name__ == "__main__":
    run_command(job, "Train a router over fixed experts, score it on the test split, keep everything in runs/.")
