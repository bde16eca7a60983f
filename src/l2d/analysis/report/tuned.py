"""The searches of `l2d tune` among finished runs: each winner is a cell, trials are none."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from l2d.analysis.report.read import FinishedCell, Tuned, read_cells


@dataclass(frozen=True)
class FinishedSearch:
    """A search with a result. start, winner, trial_runs: absolute paths of cells and runs. seeds: of the winner."""

    start: str
    winner: str
    trial_runs: frozenset[str]
    seeds: tuple[int, ...]
    how: Tuned

    @classmethod
    def of(cls, folder: Path, result: Mapping[str, Any]) -> "FinishedSearch":
        return cls(
            start=_path(folder / result["start"]),
            winner=_path(folder / result["winner"]),
            trial_runs=frozenset(_path(folder / run) for run in result["trial_runs"]),
            seeds=tuple(map(int, result["test_deferral_loss"]["tuned"])),
            how=Tuned(folder.name, result["trials"], tuple(result["overrides"])),
        )


def with_tuned(cells: Sequence[FinishedCell]) -> list[FinishedCell]:
    """The cells, with the winner of each finished search after the others of its method; see `stays`."""
    known = {_path(cell.folder): cell for cell in cells}
    tuned = {search: cell for search in searches_beside(cells) if (cell := winner_of(search, known)) is not None}
    places = {cell: place for place, cell in enumerate(cells)}
    last = {cell.names[:5]: place for cell, place in places.items()}  # of each method
    places |= {cell: last.get(cell.names[:5], len(cells)) for cell in tuned.values()}
    kept = [cell for cell in cells if stays(cell, [*tuned])]
    return sorted([*kept, *tuned.values()], key=places.__getitem__)


def searches_beside(cells: Sequence[FinishedCell]) -> Iterator[FinishedSearch]:
    for method in sorted({cell.folder.parent for cell in cells}):
        for file in sorted(method.glob("tune-*/result.json")):
            try:
                result = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                print(f"warning: {file} cannot be read ({type(error).__name__}); left out", file=sys.stderr)
                continue
            yield FinishedSearch.of(file.parent, result)


def winner_of(search: FinishedSearch, known: Mapping[str, FinishedCell]) -> FinishedCell | None:
    """The winner with the seeds of the search; None if neither it nor a start that a sweep asked for is known, or without runs."""
    cell, start = known.get(search.winner), known.get(search.start)
    if cell is None and not (start and start.wanted):
        return None
    if cell is None or cell.wanted:  # a sweep's cells lack the seeds that it did not ask for
        cell = next(iter(read_cells(Path(search.winner))), None)
    runs = {seed: cell.runs[seed] for seed in search.seeds if seed in cell.runs} if cell else {}
    return replace(cell, wanted=search.seeds, runs=runs, tuned=search.how) if cell and runs else None


def stays(cell: FinishedCell, searches: Sequence[FinishedSearch]) -> bool:
    """True if a cell is shown beside the winners: always if a sweep asked for it. A winner's own cell is shown only if a search
    began there, any other only if it has runs that were not trials."""
    if cell.wanted or not cell.runs:
        return True
    path = _path(cell.folder)
    if any(search.winner == path for search in searches):
        return any(search.start == path for search in searches)
    trials = {run for search in searches for run in search.trial_runs}
    return any(_path(cell.run_folder(seed)) not in trials for seed in cell.runs)


def _path(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 (links keep their names)
