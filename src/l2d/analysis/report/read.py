"""Read finished runs: metrics.json of each, config.yaml of one per cell, history.csv for learning curves."""

import csv
import glob
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from l2d.config.identity import settings_of
from l2d.core.results import Capabilities, RunMetrics, read_metrics
from l2d.utils.errors import L2DError

LEVELS = ("dataset", "setup", "experts", "cost", "method", "variant")  # the folders above seed=<s>
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if libyaml is installed


@dataclass(frozen=True)
class Tuned:
    """A setting that a search chose on validation. search: its folder's name. tried: the number of settings. chosen: key=value."""

    search: str
    tried: int
    chosen: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(text.split("=")[0] for text in self.chosen)


@dataclass(frozen=True, eq=False)
class FinishedCell:
    """All finished seeds of one setting."""

    names: tuple[str, ...]  # one for each of LEVELS
    folder: Path
    wanted: tuple[int, ...] = ()  # the seeds that were asked for
    runs: dict[int, RunMetrics] = field(default_factory=dict)
    tuned: Tuned | None = None  # set for the winner of a search

    @property
    def block(self) -> tuple[str, ...]:
        """The names within which methods are compared."""
        return self.names[:4]

    @property
    def method(self) -> str:
        return self.names[4]

    @property
    def capabilities(self) -> Capabilities:
        return next(iter(self.runs.values())).capabilities

    def run_folder(self, seed: int) -> Path:
        return self.folder / f"seed={seed}"

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config of the first seed; the others differ only in the seed. Empty if no run is finished."""
        if not self.runs:
            return {}
        return yaml.load((self.run_folder(min(self.runs)) / "config.yaml").read_text(encoding="utf-8"), Loader=LOADER)

    @cached_property
    def settings(self) -> dict[str, Any]:
        return settings_of(self.config)

    def settings_but(self, *prefixes: str) -> dict[str, Any]:
        return {key: value for key, value in self.settings.items() if not key.startswith(prefixes)}

    def learning_curve(self) -> list[tuple[int, float]]:
        """Validation deferral loss by epoch, mean over the seeds that have that epoch."""
        losses: dict[int, list[float]] = defaultdict(list)
        for seed in self.runs:
            with suppress(OSError), (self.run_folder(seed) / "history.csv").open(newline="", encoding="utf-8") as lines:
                for row in csv.DictReader(lines):
                    if loss := row.get("val/deferral_loss"):
                        losses[int(row["epoch"])].append(float(loss))
        return [(epoch, sum(values) / len(values)) for epoch, values in sorted(losses.items())]


def folder_among(words: Sequence[str]) -> tuple[Path, list[str]]:
    """The folder among the words of a command, by default "runs"; and the other words, key=value."""
    # Folders of runs have a "=" in them too: seed=0. But only Hydra's keys have a "/".
    folders = [word for word in words if not re.match(r"(hydra/)?[^/]*=", word) or Path(word).is_dir()]
    if len(folders) > 1:
        raise L2DError(f"{folders[1]}: one folder at a time; {folders[0]} was given before")
    given = os.path.normpath(*folders or ["runs"])
    folder = Path(os.path.abspath(given) if given.startswith(".") else given)  # noqa: PTH100 (links keep their names)
    if not folder.is_dir():
        raise L2DError(f"{folder}: no such folder; l2d train makes runs/")
    return folder, [word for word in words if word not in folders]


def read_cells(folder: Path) -> list[FinishedCell]:
    """Every cell with a finished run in a folder: runs/, the folder above it, any folder below it, or a single run's. Files that
    cannot be read are named on stderr and left out."""
    cells: dict[tuple[str, ...], FinishedCell] = {}
    for run in _seed_folders(folder):
        try:
            metrics = read_metrics(run / "metrics.json")
        except FileNotFoundError:
            continue  # not finished
        except (L2DError, OSError) as error:
            print(f"warning: {error}; left out", file=sys.stderr)
            continue
        names = run.parent.absolute().parts[-len(LEVELS) :]
        if len(names) < len(LEVELS):
            raise L2DError(f"{run}: runs are kept in {'/'.join(f'<{level}>' for level in LEVELS)}/seed=<s>")
        seed = int(run.name.removeprefix("seed="))
        cells.setdefault(names, FinishedCell(names, run.parent)).runs[seed] = metrics
    return [cells[names] for names in sorted(cells) if _has_config(cells[names])]


def _has_config(cell: FinishedCell) -> bool:
    try:
        return isinstance(cell.config, dict)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        print(f"warning: {cell.folder}: config.yaml cannot be read ({type(error).__name__}); left out", file=sys.stderr)
        return False


def _seed_folders(folder: Path) -> list[Path]:
    """The folder itself, if it is a run's, else the run folders in it, at most as deep as in runs/. If there are none, it may be
    the folder above runs/."""
    if folder.name.startswith("seed="):
        return [folder]
    if found := _seed_folders_below(folder, range(len(LEVELS) + 1)):
        return found
    found = _seed_folders_below(folder, [len(LEVELS) + 1])
    roots = sorted({run.parents[len(LEVELS)] for run in found})
    if len(roots) > 1:  # runs of the same setting in two of them would be mixed
        raise L2DError(f"{folder}: runs in several folders; give one of them: {', '.join(map(str, roots))}")
    return found


def _seed_folders_below(folder: Path, depths: Iterable[int]) -> list[Path]:
    """Hidden folders are skipped."""
    patterns = [f"{glob.escape(str(folder))}/{'*/' * depth}seed=*" for depth in depths]
    return sorted(Path(run) for pattern in patterns for run in glob.glob(pattern))  # noqa: PTH207 (Path's finds hidden ones)
