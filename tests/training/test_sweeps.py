"""Runs in one process, one after the other: none depends on those before it, and none leaves anything behind."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from tests import running

from l2d.config import compose

pytestmark = pytest.mark.slow


def write_table(folder: Path) -> Path:
    file = folder / "t.csv"
    lines = [f"{i},{i % 7},{i % 2},{(i // 3) % 2}" for i in range(120)]
    file.write_text("\n".join(["size,digits,correct_a,correct_b", *lines]))
    return file


def outcome(cfg: DictConfig) -> list[bytes]:
    """Weights, metrics and what each test row got."""
    running.train(cfg)
    folder = running.folder_of(cfg)
    return [(folder / name).read_bytes() for name in ("model.safetensors", "metrics.json", "history.csv")]


def test_first_second_and_fifth_give_the_same_bytes(tmp_path: Path, tiny: Callable[..., DictConfig]) -> None:
    """Between them runs of another dataset, router, method and seed."""
    file = write_table(tmp_path)

    def on_table(place: int, *more: str) -> list[bytes]:
        given = (
            "dataset=table",
            f"dataset.path={file}",
            "recipe.epochs=3",
            "trainer.accelerator=cpu",
            "progress=false",
        )
        return outcome(compose([*given, f"runs_dir={tmp_path / str(place)}", *more]))

    first = on_table(1)
    second = on_table(2)
    running.train(tiny("method=plugin", "seed=3"))
    on_table(4, "method=cost_regression", "seed=1", "recipe.batch_size=16")
    torch.rand(5)  # nor does it depend on the global random state
    fifth = on_table(5)
    assert first == second == fifth


def test_memory_does_not_grow_over_twenty_runs(tmp_path: Path) -> None:
    file = write_table(tmp_path)
    peaks = []
    for seed in range(20):
        given = (
            "dataset=table",
            f"dataset.path={file}",
            "evaluation=holdout",
            "recipe.epochs=1",
            "trainer.accelerator=cpu",
            "progress=false",
        )
        running.train(compose([*given, f"runs_dir={tmp_path / 'runs'}", f"seed={seed}"]))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    assert peaks[-1] - peaks[9] < 20, peaks  # MiB; the first runs load libraries
