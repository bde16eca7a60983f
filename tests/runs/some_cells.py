"""Cells of a sweep, without the sweep."""

import json
from pathlib import Path

from tests.metrics_example import example_metrics

from l2d.runs.cells import Cell
from l2d.runs.folder import RunFolder
from l2d.utils.files import write_json


def some_cells(folder: Path, n: int = 3) -> list[Cell]:
    names = {"dataset": "digits", "method": "mild"}
    return [Cell((f"seed={seed}",), RunFolder(folder / f"seed={seed}"), names, seed, 3) for seed in range(n)]


def finish(cell: Cell, loss: float = 0.25) -> None:
    cell.run.path.mkdir(parents=True, exist_ok=True)
    (cell.run.path / "timing.json").write_text(json.dumps({"total_seconds": 100.0}))
    write_json(cell.run.path / "metrics.json", example_metrics(loss).as_json())
