"""Finished runs for the tests of serving: trained ones, whose data are gone, and folders as training leaves them, without it."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from tests.conftest import TINY_ON_ROWS
from tests.data.sets.test_table import Cells, write

from l2d.assembly.assemble import Splits
from l2d.assembly.build import make_router, make_splits
from l2d.assembly.make import make_dataset
from l2d.assembly.module import RouterModule
from l2d.config import check, compose
from l2d.core.guard import Guard
from l2d.core.metrics import best_single
from l2d.runs.artifact.exported import FILE, READING, write_weights
from l2d.runs.folder import RunFolder
from l2d.training.score import RoutedRows, guard_of
from l2d.training.walk import describe, train
from l2d.utils.files import write_json

SMALL = [*TINY_ON_ROWS, "router.width=8", "recipe.epochs=2", "recipe.batch_size=32"]
N, TEST = 80, 20
WORDS = ("apples", "rivers", "triangles", "kings", "matrices", "birds")
ASKED = Guard(None, None, 0, 0.1, 0.01)  # leaves decisions to the router
PRICED = ("cost=error_plus_cost", "cost.prices=[0.5,0.1,0.3]")


def table() -> Cells:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, N)).round(3)
    kind = (x > 0).astype(int) + (y > 0.5).astype(int)
    return {
        "id": list(range(N)),
        "y": y.tolist(),
        "prompt": [f"how many {WORDS[2 * k]} and {WORDS[2 * k + i % 2]} of {i}" for i, k in enumerate(kind)],
        "flag": [bool(k == 2) for k in kind],
        "topic": [WORDS[k] for k in kind],
        "x": x.tolist(),
        **{f"correct_{name}": (kind == k).astype(int).tolist() for k, name in enumerate("abc")},
        "split": ["train"] * (N - TEST) + ["test"] * TEST,
    }


CELLS = table()
SPLIT = ["dataset=table", "dataset.split=split"]


def query_rows(*columns: str) -> list[dict[str, Any]]:
    return [{column: CELLS[column][i] for column in columns} for i in range(N - TEST, N)]


def write_queries(folder: Path, *columns: str, name: str = "queries.csv") -> Path:
    return write(folder, {column: CELLS[column][N - TEST :] for column in columns or ("x", "y", "flag")}, name)


@dataclass(frozen=True)
class Ran:
    """A finished run whose data are gone; queries: its test rows."""

    path: Path
    queries: Any

    def saved(self) -> dict[str, np.ndarray]:
        with np.load(self.path / "test.npz") as saved:
            return dict(saved)


def trained(folder: Path, queries: Any, *overrides: str) -> Ran:
    """queries: None for the texts of the dataset itself."""
    file = write(folder, CELLS)
    given = [f"dataset.path={file}"] if "dataset=table" in overrides else []
    places = [f"runs_dir={folder / 'runs'}", f"data_dir={folder / 'data'}"]
    experiment = check(compose([*SMALL, *overrides, *given, *places]))
    train(experiment)
    if queries is None:
        texts: Any = make_dataset(experiment).load(folder / "data").texts
        queries = texts[1]
    file.unlink()
    shutil.rmtree(folder / "data", ignore_errors=True)
    return Ran(RunFolder.of(experiment.plain).path, queries)


@dataclass(frozen=True)
class Untrained:
    """A run's folder as training leaves it, without the training, and what it was made from."""

    path: Path
    splits: Splits
    router: RouterModule

    @property
    def outputs(self) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = self.router(self.splits.test.inputs)
        return found

    @property
    def queries(self) -> np.ndarray:
        found: np.ndarray = self.splits.test.inputs.numpy()
        return found


def untrained(
    folder: Path,
    *overrides: str,
    guard: Guard | None = ASKED,
    kept: Mapping[str, torch.Tensor] = MappingProxyType({}),
    cells: Cells = CELLS,
    small: Sequence[str] = SMALL,
) -> Untrained:
    """guard: None for the one that its validation rows ask for. kept: what guards for other prices are fitted to."""
    given = [*SPLIT, f"dataset.path={write(folder, cells)}", f"runs_dir={folder / 'runs'}"]
    experiment = check(compose([*given, *small, *overrides]))
    splits = make_splits(experiment)
    router = make_router(experiment, splits)
    router.eval()
    run = RunFolder.of(experiment.plain)
    with run.locked():
        run.write_config(experiment.plain)
        network: Any = router.network
        network.keep(run.path)
        kept_guard = guard or held(splits, router)[0]
        reading = {f"{READING}.{name}": torch.from_numpy(array) for name, array in splits.arrays.reading.items()}
        about = describe(experiment, splits, router, kept_guard)
        write_weights(run.path / FILE, {**router.state_dict(), **kept, **reading}, about)
        write_json(run.path / "metrics.json", {})
    return Untrained(run.path, splits, router)


def held(splits: Splits, router: RouterModule) -> tuple[Guard, torch.Tensor]:
    """The guard of the run, and what it would decide on its test rows."""
    with torch.no_grad():
        validation, test = router(splits.validation.inputs), router(splits.test.inputs)
    parts = ((splits.validation, validation), (splits.test, test))
    held_out, asked = (RoutedRows.of(router.method, split, outputs) for split, outputs in parts)
    guard = guard_of(router.method, held_out, best_single(splits.train_costs))
    return guard, guard.decide(asked.utilities, asked.decisions)
