"""Finished runs off the disk: metrics.json of each, config.yaml of one per cell, nothing else."""

import csv
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DEPTH = 7  # dataset/setup/experts/cost/method/variant/seed=s
Names = tuple[str, str, str, str, str, str]
NEEDED = ("deferral_loss", "error_rate", "mean_price", "ratios", "baselines", "confusion", "prices")
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is there


@dataclass(frozen=True, eq=False)
class Cell:
    """All finished seeds of one setting. names: dataset, setup, experts, cost, method, variant."""

    names: Names
    folder: Path
    wanted: tuple[int, ...] = ()
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def block(self) -> tuple[str, str, str, str]:
        """What methods are compared within."""
        return self.names[:4]

    @property
    def method(self) -> str:
        return self.names[4]

    @cache  # noqa: B019 (a report lives as long as its cells)
    def config(self) -> dict[str, Any]:
        for seed in sorted(self.runs):
            try:
                text = (self.folder / f"seed={seed}" / "config.yaml").read_text(encoding="utf-8")
                return dict(yaml.load(text, Loader=LOADER))
            except (OSError, yaml.YAMLError, TypeError, ValueError) as error:
                print(
                    f"warning: {self.folder}/seed={seed}/config.yaml: unreadable ({type(error).__name__})",
                    file=sys.stderr,
                )
        return {}

    def curve(self) -> list[tuple[int, float]]:
        """Validation deferral loss by epoch, mean over the seeds that have that epoch."""
        sums: dict[int, list[float]] = {}
        for seed in self.runs:
            try:
                with (self.folder / f"seed={seed}" / "history.csv").open(newline="", encoding="utf-8") as lines:
                    for row in csv.DictReader(lines):
                        if value := row.get("val/deferral_loss"):
                            sums.setdefault(int(row["epoch"]), []).append(float(value))
            except (OSError, ValueError, KeyError):
                continue  # a curve is an ornament; the result is in metrics.json
        return [(epoch, sum(values) / len(values)) for epoch, values in sorted(sums.items())]


def read_cells(runs_dir: Path) -> list[Cell]:
    """Every cell with at least one finished run. What cannot be read is named on stderr and left out."""
    cells: dict[Names, Cell] = {}
    for folder in _seed_folders(str(runs_dir), DEPTH):
        path = Path(folder)
        try:
            with open(f"{folder}/metrics.json", "rb") as content:  # noqa: PTH123 (ten thousand of them)
                metrics = json.loads(content.read(), parse_constant=_refuse)
            seed, _ = int(path.name.removeprefix("seed=")), [metrics[key] for key in NEEDED]
        except FileNotFoundError:
            continue  # not finished
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"warning: {folder}/metrics.json: unreadable ({type(error).__name__}), left out", file=sys.stderr)
            continue
        names: Any = path.parent.relative_to(runs_dir).parts
        cells.setdefault(names, Cell(names, path.parent)).runs[seed] = metrics
    return [cells[names] for names in sorted(cells)]


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN, Infinity


def _seed_folders(folder: str, depth: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            below = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        print(f"warning: {folder}: unreadable ({error.strerror}), left out", file=sys.stderr)
        return
    for name in below:
        if depth == 1:
            if name.startswith("seed="):
                yield f"{folder}/{name}"
        else:
            yield from _seed_folders(f"{folder}/{name}", depth - 1)
