"""Reads finished runs, and the searches of `l2d tune` among them: each winner is a cell, trials are none."""

import csv
import glob
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from l2d.analysis.report.averages import Floats, Losses
from l2d.config.composing import LOADER
from l2d.config.identity import settings_of
from l2d.core.results import Capabilities, RunMetrics, read_metrics
from l2d.utils.errors import L2DError

LEVELS = ("dataset", "setup", "experts", "cost", "method", "variant")  # the folders above seed=<s>


@dataclass(frozen=True)
class Tuned:
    search: str  # its folder's name
    tried: int  # so many settings
    chosen: tuple[str, ...]  # key=value
    start: str  # absolute paths, like the next two
    winner: str
    trial_runs: frozenset[str]
    seeds: tuple[int, ...]  # of the winner


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

    @cached_property
    def losses(self) -> tuple[Losses, Losses]:
        """The router's and the best single expert's: the cost of each test row by seed. Means by seed if the seeds have different
        test rows, since the means then vary with the rows too, or if rows are not known."""
        found = {seed: row_costs(self.run_folder(seed), run) for seed, run in self.runs.items()}
        known = [rows for rows in found.values() if rows is not None]
        if len(known) < len(found) or any(not np.array_equal(rows[0], known[0][0]) for rows in known):
            means = {seed: run.deferral_loss for seed, run in self.runs.items()}
            return means, {seed: run.baselines.best_single.deferral_loss for seed, run in self.runs.items()}
        _, routers, singles = zip(*known, strict=True)
        return dict(zip(found, routers, strict=True)), dict(zip(found, singles, strict=True))

    def learning_curve(self) -> list[tuple[int, float]]:
        """Validation deferral loss by epoch, mean over the seeds that have that epoch."""
        losses: dict[int, list[float]] = defaultdict(list)
        for seed in self.runs:
            with suppress(OSError), (self.run_folder(seed) / "history.csv").open(newline="", encoding="utf-8") as lines:
                for row in csv.DictReader(lines):
                    if loss := row.get("val/deferral_loss"):
                        losses[int(row["epoch"])].append(float(loss))
        return [(epoch, sum(values) / len(values)) for epoch, values in sorted(losses.items())]


def row_costs(folder: Path, run: RunMetrics) -> tuple[Any, Floats, Floats] | None:
    """The ids of the test rows, or their number; their costs for the router and for the best single expert. None if the run's loss
    is not the mean of its rows' costs (a log's is estimated), or if they cannot be read."""
    try:
        with np.load(folder / "test.npz", allow_pickle=False) as found:
            decisions, costs, ids = found["decisions"], found["costs"], found.get("ids", len(found["decisions"]))
            router = costs[np.arange(len(decisions)), decisions]
    except (OSError, KeyError, ValueError, IndexError):
        return None
    if not np.isclose(router.mean(dtype=np.float64), run.deferral_loss, atol=1e-5):
        return None
    return ids, router, costs[:, np.argmax(run.baselines.best_single.ratios)]


def folder_among(words: Sequence[str]) -> tuple[Path, list[str]]:
    """The folder among the words of a command, by default "runs"; and the other words, key=value."""
    # Folders of runs have a "=" in them too: seed=0. But only Hydra's keys have a "/".
    folders = [word for word in words if not re.match(r"(hydra/)?[^/]*=", word) or Path(word).is_dir()]
    if len(folders) > 1:
        raise L2DError(f"{folders[1]}: one folder at a time; {folders[0]} was given before")
    given = os.path.normpath(*folders or ["runs"])
    folder = Path(_path(given) if given.startswith(".") else given)
    if not folder.is_dir():
        raise L2DError(f"{folder}: no such folder; l2d train makes runs/")
    return folder, [word for word in words if word not in folders]


def read_cells(folder: Path) -> list[FinishedCell]:
    """The cells with finished runs in runs/, a folder below it, or a single run's. What cannot be read is named and left out."""
    cells: dict[tuple[str, ...], FinishedCell] = {}
    patterns = [f"{glob.escape(str(folder))}/{'*/' * depth}seed=*" for depth in range(len(LEVELS) + 1)]
    below = sorted(Path(run) for pattern in patterns for run in glob.glob(pattern))  # noqa: PTH207 (Path's finds hidden ones)
    for run in [folder] if folder.name.startswith("seed=") else below:
        names = run.parent.absolute().parts[-len(LEVELS) :]
        if len(names) < len(LEVELS) or not run.name.removeprefix("seed=").isdecimal():
            continue
        try:
            metrics = read_metrics(run / "metrics.json")
        except FileNotFoundError:
            continue  # not finished
        except (L2DError, OSError) as error:
            print(f"warning: {error}; left out", file=sys.stderr)
            continue
        cells.setdefault(names, FinishedCell(names, run.parent)).runs[int(run.name.removeprefix("seed="))] = metrics
    for names, cell in sorted(cells.items()):
        with suppress(OSError, yaml.YAMLError, UnicodeDecodeError):
            if isinstance(cell.config, dict):
                continue
        print(f"warning: {cell.folder}: config.yaml cannot be read; left out", file=sys.stderr)
        del cells[names]
    return [cells[names] for names in sorted(cells)]


def with_tuned(cells: Sequence[FinishedCell]) -> list[FinishedCell]:
    """The cells, with the winner of each finished search after the others of its method; see `stays`."""
    known = {_path(cell.folder): cell for cell in cells}
    tuned = {search: cell for search in searches_beside(cells) if (cell := winner_of(search, known)) is not None}
    places = {cell: place for place, cell in enumerate(cells)}
    last = {cell.names[:5]: place for cell, place in places.items()}  # of each method
    places |= {cell: last.get(cell.names[:5], len(cells)) for cell in tuned.values()}
    kept = [cell for cell in cells if stays(cell, [*tuned])]
    return sorted([*kept, *tuned.values()], key=places.__getitem__)


def searches_beside(cells: Sequence[FinishedCell]) -> Iterator[Tuned]:
    for method in sorted({cell.folder.parent for cell in cells}):
        for file in sorted(method.glob("tune-*/result.json")):
            try:
                result, folder = json.loads(file.read_text(encoding="utf-8")), file.parent
                start, winner = (_path(folder / result[name]) for name in ("start", "winner"))
                runs = frozenset(_path(folder / run) for run in result["trial_runs"])
                seeds = tuple(map(int, result["test_deferral_loss"]["tuned"]))
                yield Tuned(folder.name, result["trials"], tuple(result["overrides"]), start, winner, runs, seeds)
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"{file}: cannot be read ({type(error).__name__}); left out", file=sys.stderr)


def winner_of(search: Tuned, known: Mapping[str, FinishedCell]) -> FinishedCell | None:
    """The winner with the seeds of the search; None if neither it nor a start that a sweep asked for is known, or without runs."""
    cell, start = known.get(search.winner), known.get(search.start)
    if cell is None and not (start and start.wanted):
        return None
    if cell is None or cell.wanted:  # a sweep's cells lack the seeds that it did not ask for
        cell = next(iter(read_cells(Path(search.winner))), None)
    runs = {seed: cell.runs[seed] for seed in search.seeds if seed in cell.runs} if cell else {}
    return replace(cell, wanted=search.seeds, runs=runs, tuned=search) if cell and runs else None


def stays(cell: FinishedCell, searches: Sequence[Tuned]) -> bool:
    """True if a cell is shown beside the winners: always if a sweep asked for it. A winner's own cell is shown only if a search
    began there, any other only if it has runs that were not trials."""
    if cell.wanted or not cell.runs:
        return True
    path = _path(cell.folder)
    if path in [search.winner for search in searches]:
        return path in [search.start for search in searches]
    trials = {run for search in searches for run in search.trial_runs}
    return any(_path(cell.run_folder(seed)) not in trials for seed in cell.runs)


def _path(path: Path | str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 (links keep their names)
