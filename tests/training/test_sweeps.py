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
GIVEN = ["dataset=table", "trainer.accelerator=cpu", "progress=false"]


def write_table(folder: Path) -> Path:
    file = folder / "t.csv"
    lines = [f"{i},{i % 7},{i % 2},{(i // 3) % 2}" for i in range(120)]
    file.write_text("\n".join(["size,digits,correct_a,correct_b", *lines]))
    return file


@pytest.mark.full
def test_first_second_and_fifth_give_the_same_bytes(tmp_path: Path, tiny: Callable[..., DictConfig]) -> None:
    """Between them runs of another dataset, router, method and seed."""
    file = write_table(tmp_path)

    def on_table(place: int, *more: str) -> list[bytes]:
        given = [*GIVEN, "method=mild", f"dataset.path={file}", "recipe.epochs=3"]
        cfg = compose([*given, f"runs_dir={tmp_path / str(place)}", *more])
        running.train(cfg)
        names = ("model.safetensors", "metrics.json", "history.csv")
        return [(running.folder_of(cfg) / name).read_bytes() for name in names]

    first, second = on_table(1), on_table(2)
    running.train(tiny("method=plugin", "seed=3"))
    on_table(4, "method=cost_regression", "seed=1", "recipe.batch_size=16")
    torch.rand(5)  # nor does it depend on the global random state
    assert first == second == on_table(5)


@pytest.mark.full
def test_memory_does_not_grow_over_twenty_runs(tmp_path: Path) -> None:
    file = write_table(tmp_path)
    peaks = []
    for seed in range(20):
        given = [*GIVEN, f"dataset.path={file}", "evaluation=holdout", "recipe.epochs=1", f"seed={seed}"]
        running.train(compose([*given, f"runs_dir={tmp_path / 'runs'}"]))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    assert peaks[-1] - peaks[9] < 20, peaks  # MiB; the first runs load libraries
