import contextlib
import gc
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
import hypothesis
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from l2d.commands.main import main
from l2d.config import compose
from l2d.lightning.quick_imports import import_quickly

if TYPE_CHECKING:
    from tests.forker import Child, Forker

# What is slow to import.
LIBRARIES = (
    *("torch", "torchvision", "pytorch_lightning", "timm", "matplotlib.figure", "pydantic"),
    *("sklearn.datasets", "sklearn.model_selection", "scipy.io", "scipy.stats", "pyarrow.csv", "pyarrow.parquet"),
)


def import_libraries() -> None:
    import_quickly()
    for name in LIBRARIES:
        import_module(name)


def compose_once(
    name: str, overrides: list[str], return_hydra_config: bool, compose: Any = hydra.compose
) -> DictConfig:
    """A copy takes a thirtieth of the time, and tests compose the same configs again and again. Paths, which differ from test to
    test, and seeds are set in the copy."""
    places = str(GlobalHydra.instance().config_loader().get_search_path())
    others = {text.partition("=")[0] for text in overrides if return_hydra_config or not SIMPLE.fullmatch(text)}
    later = [text for text in overrides if SIMPLE.fullmatch(text) and text.partition("=")[0] not in others]
    now = [text for text in overrides if text not in later]
    key = (places, name, str(return_hydra_config), *now)
    if key not in COMPOSED:
        COMPOSED[key] = compose(name, overrides=now, return_hydra_config=return_hydra_config)
    config = deepcopy(COMPOSED[key])
    for place, value in (text.split("=") for text in later):
        OmegaConf.update(config, place, int(value) if place == "seed" else value)
    return config


COMPOSED: dict[tuple[str, ...], DictConfig] = {}
SIMPLE = re.compile(r"seed=(0|[1-9]\d{0,8})|(runs_dir|data_dir|dataset\.path)=/[\w/.-]+")
hydra.compose = compose_once  # type: ignore[assignment]


if "PYTEST_XDIST_WORKER" in os.environ:  # otherwise as tests need them
    import_quickly()

hypothesis.settings.register_profile("l2d", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("l2d")

# A router and a schedule small enough that a whole run takes about a second.
QUICK = ["recipe.epochs=3", "recipe.batch_size=512", "trainer.accelerator=cpu", "progress=false"]
TINY = ["router.width=2", "router.stem=7x7", *QUICK]
METHOD = "method=mild"
TINY_ON_ROWS = [METHOD, "router.width=2", "evaluation=holdout", *QUICK]  # of numbers: no convolutions, hence no stem


def tiny_for(arguments: Sequence[str]) -> list[str]:
    """Overrides that make the runs of a command tiny."""
    if not any(argument.startswith("dataset=") for argument in arguments):
        return TINY
    named = any(argument.startswith("method=") for argument in arguments)
    return [one for one in TINY_ON_ROWS if not named or one != METHOD]


# These files start first, so that no process is left with one of them while the others have nothing to do.
LONGEST = ("test_sweep", "test_train", "test_study", "test_trained")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # several processes: otherwise nobody waits for the longest
        items.sort(key=lambda item: item.path.stem not in LONGEST)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make the process that runs commands while nothing has been trained in this one. (pytest-xdist's own process has no tests.)"""
    named = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if named & {"forker", "start", "command"}:
        from tests.forker import Forker

        FORKERS.append(Forker())


FORKERS: list["Forker"] = []


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Not earlier: where CUDA has been asked for, a copy of the process cannot use it."""
    if item.get_closest_marker("gpu") and not on_gpu():
        pytest.skip("needs a CUDA device")


def pytest_sessionfinish() -> None:
    gc.unfreeze()
    for server in FORKERS:
        server.close()


@cache
def on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True, scope="module")  # before fixtures that a file's tests share
def _one_thread() -> None:
    """Tests that start processes would otherwise slow each other many times over."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """Every run collects garbage before it begins. Spare it the many objects that imports and earlier files keep alive."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A command run within a test may take over Ctrl-C, and Ray takes over SIGTERM."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., DictConfig]:
    """A config for a run of about a second, in a folder of the test's own."""
    return lambda *overrides: compose([*tiny_for(overrides), f"runs_dir={tmp_path / 'runs'}", *overrides])


@pytest.fixture
def forker() -> "Forker":
    return FORKERS[0]


@pytest.fixture
def start(tmp_path: Path, forker: "Forker") -> Callable[..., "Child"]:
    """Start a command, tiny, as a person would, in an empty folder."""

    def run(*arguments: str, name: str = "train", tiny: bool = True, cwd: Path = tmp_path) -> "Child":
        return forker.start(given_to(name, arguments, tiny), cwd)

    return run


@pytest.fixture
def command(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run it to its end; within this process if coverage is to see it."""
    if request.node.get_closest_marker("measured") is None:
        start = request.getfixturevalue("start")
        return lambda *arguments, **options: start(*arguments, **options).wait()
    monkeypatch.chdir(tmp_path)
    return lambda *arguments, name="train", tiny=True: run_inside(given_to(name, arguments, tiny))


def given_to(name: str, arguments: Sequence[str], tiny: bool) -> list[str]:
    flags = [argument for argument in arguments if argument.startswith("-")]  # Hydra wants them first
    return [
        name,
        *flags,
        *(tiny_for(arguments) if tiny else []),
        *(argument for argument in arguments if argument not in flags),
    ]


def run_inside(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    from tests.running import no_pictures

    code, out, err = 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), no_pictures():
        try:
            main(arguments)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
            if isinstance(leave.code, str):
                print(leave.code, file=sys.stderr)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"}
