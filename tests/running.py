"""Runs of a composed config within a test, step by step or as a whole."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from l2d.assembly.assemble import Splits
from l2d.assembly.build import make_data, make_router, make_splits
from l2d.assembly.datamodule import DeferralData
from l2d.assembly.fingerprints import with_listed_prices
from l2d.assembly.module import RouterModule
from l2d.commands import train as commands
from l2d.commands.train import answered
from l2d.config import check
from l2d.runs.folder import RunFolder
from l2d.training.cross_validation import train_and_judge


def no_pictures() -> Any:
    """A picture takes a fifth of a tiny run."""
    return patch.object(commands, "run_figure", lambda _: SimpleNamespace(savefig=Path.touch))


def folder_of(cfg: Any) -> Path:
    """The run's folder, whether it is there or not."""
    return RunFolder.of(with_listed_prices(check(cfg)).plain).path


def train(cfg: Any) -> dict[str, Any]:
    """As `l2d train` does it; what metrics.json holds, nothing after a dry run."""
    experiment = with_listed_prices(check(cfg))
    run = RunFolder.of(experiment.plain)
    if answered(experiment, run):
        return run.metrics().as_json() if run.finished else {}
    return train_and_judge(experiment, run).as_json()


def build(cfg: Any, parts: int = 1) -> tuple[DeferralData, RouterModule]:
    experiment = check(cfg)
    splits = make_splits(experiment)
    return make_data(experiment, splits, parts), make_router(experiment, splits, parts)


def assembled(cfg: Any, *, renew_experts: bool = False) -> Splits:
    """The rows that the router of this config would learn from and be judged by."""
    return make_splits(check(cfg), renew_experts=renew_experts)
