"""Finished runs off the disk: metrics.json of each, config.yaml of one per cell, nothing else."""

import csv
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from l2d.core.results import Capabilities, RunMetrics, read_metrics
from l2d.utils.errors import L2DError

LEVELS = ("dataset", "setup", "experts", "cost", "method", "variant")  # the folders above seed=<s>
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is there


@dataclass(frozen=True, eq=False)
class FinishedCell:
    """All finished seeds of one setting. names: one for each of LEVELS. wanted: the seeds that were asked for."""

    names: tuple[str, ...]
    folder: Path
    wanted: tuple[int, ...] = ()
    runs: dict[int, RunMetrics] = field(default_factory=dict)

    @property
    def block(self) -> tuple[str, ...]:
        """What methods are compared within."""
        return self.names[:4]

    @property
    def method(self) -> str:
        return self.names[4]

    @property
    def capabilities(self) -> Capabilities:
        return next(iter(self.runs.values())).capabilities

    @cache  # noqa: B019 (a report lives as long as its cells)
    def config(self) -> dict[str, Any]:
        for seed in sorted(self.runs):
            file = self.folder / f"seed={seed}" / "config.yaml"
            try:
                return dict(yaml.load(file.read_text(encoding="utf-8"), Loader=LOADER))
            except (OSError, yaml.YAMLError, TypeError, ValueError) as error:
                print(f"warning: {file}: unreadable ({type(error).__name__})", file=sys.stderr)
        return {}

    def learning_curve(self) -> list[tuple[int, float]]:
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


def folder_among(words: Sequence[str]) -> tuple[Path, list[str]]:
    """The folder that a command was given, "runs" where there is none, and the other words, which are key=value.

    Folders of runs have a "=" in them too: seed=0. But no key has a "/", other than those of Hydra.
    """

    def is_folder(word: str) -> bool:
        key, equals, _ = word.partition("=")
        return not equals or Path(word).is_dir() or ("/" in key and not key.startswith("hydra/"))

    folders = [word for word in words if is_folder(word)]
    if len(folders) > 1:
        raise L2DError(f"{folders[1]}: one folder at a time; {folders[0]} was given before")
    given = os.path.normpath(Path(*folders or ["runs"]).expanduser())
    folder = Path(os.path.abspath(given) if given.startswith(".") else given)  # noqa: PTH100 (links keep their names)
    if not folder.is_dir():
        raise L2DError(f"{folder}: no such folder; l2d train makes runs/")
    return folder, [word for word in words if not is_folder(word)]


def read_cells(folder: Path) -> list[FinishedCell]:
    """Every cell with a finished run in a folder: runs/, any folder below it, or a single run's. What cannot be read is named on
    stderr and left out."""
    cells: dict[tuple[str, ...], FinishedCell] = {}
    for run in _seed_folders(str(folder), len(LEVELS) + 1):
        try:
            metrics = read_metrics(f"{run}/metrics.json")
        except FileNotFoundError:
            continue  # not finished
        except (L2DError, OSError) as error:
            print(f"warning: {error}; left out", file=sys.stderr)
            continue
        above, seed = Path(run).parent, int(run.rpartition("=")[2])
        names = above.absolute().parts[-len(LEVELS) :]
        if len(names) < len(LEVELS):
            raise L2DError(f"{run}: runs are kept in {'/'.join(f'<{level}>' for level in LEVELS)}/seed=<s>")
        cells.setdefault(names, FinishedCell(names, above)).runs[seed] = metrics
    return [cells[names] for names in sorted(cells)]


def _seed_folders(folder: str, depth: int) -> Iterator[str]:
    """The folders seed=<s> at most so many levels down; the folder itself, if it is one."""
    if re.search(r"(^|/)seed=\d+$", folder):
        yield folder
        return
    try:
        with os.scandir(folder) as entries:
            below = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        print(f"warning: {folder}: unreadable ({error.strerror}); left out", file=sys.stderr)
        return
    if depth:
        for name in below:
            yield from _seed_folders(f"{folder}/{name}", depth - 1)
