import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest
import torch
from omegaconf import DictConfig

from l2d.config import compose

# One thread each: tests that start processes would otherwise slow each other many times over.
torch.set_num_threads(1)
hypothesis.settings.register_profile("l2d", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("l2d")

# A router and a schedule small enough that a whole run takes about a second.
TINY = ["router.width=2", "recipe.epochs=3", "recipe.batch_size=512", "trainer.accelerator=cpu", "progress=false"]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., DictConfig]:
    """A config for a run of about a second, in a folder of the test's own."""
    return lambda *overrides: compose([*TINY, f"runs_dir={tmp_path / 'runs'}", *overrides])


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m l2d.train`, tiny, as a person would, in an empty folder."""

    def run(*arguments: str, module: str = "l2d.train", tiny: bool = True) -> subprocess.CompletedProcess[str]:
        flags = [argument for argument in arguments if argument.startswith("-")]  # Hydra wants them first
        given = [*flags, *(TINY if tiny else []), *(argument for argument in arguments if argument not in flags)]
        return subprocess.run(
            [sys.executable, "-m", module, *given],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    return run


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
