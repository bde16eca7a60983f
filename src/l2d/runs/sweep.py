"""Many runs from one command. The run folders alone say what is finished, begun or missing."""

import os
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf, open_dict

from l2d.config.hydra_adapter import compose_for, quiet_launchers, split_grid
from l2d.config.identity import quoted
from l2d.runs.cells import Cell, listing, make_cells, results_table, without_seed
from l2d.utils.errors import L2DError
from l2d.utils.own_modules import changed_since
from l2d.utils.text import aligned, counted, say

ATTEMPTS = 2  # after so many, a run that ends without a result and without an error, so was killed, is not retried
POLL_SECONDS = 2.0
Launch = Callable[[Sequence[Cell], int], None]


class Workshop:
    """The tools that Hydra gives a sweeper: a way to compose a run's config, and a launcher for runs."""

    def __init__(self, config: DictConfig, loader: ConfigLoader, launcher: Launcher, overrides: Sequence[str]) -> None:
        for text in overrides:
            if text.startswith("experiment=") and "," in text:
                raise L2DError(f"{text}: one experiment at a time")
        self.config, self.loader, self.launcher = config, loader, launcher
        self.grid = split_grid(overrides, loader)
        self.place = Path(config.hydra.sweep.dir).expanduser().absolute()

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """A run's config, without Hydra's own settings."""
        return compose_for(self.loader, self.config, overrides)

    def cells(self, grid: Sequence[Sequence[str]]) -> list[Cell]:
        return make_cells(grid, self.compose)

    def open(self) -> Path:
        """A new folder, beside hydra.sweep.dir, for the status files of the workers."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{self.place.name}_", dir=self.place.parent))
        OmegaConf.save(self.config, folder / "multirun.yaml")
        quiet_launchers()
        return folder

    def run(self, cells: Sequence[Cell], folder: Path) -> dict[Cell, str]:
        """Run the cells that are not done yet. Returns those that failed, with their reasons."""
        with open_dict(self.config):
            self.config.hydra.sweep.dir = str(folder)

        def launch(todo: Sequence[Cell], first: int) -> None:
            said = f"hydra.sweep.dir={quoted(str(folder))}"
            self.launcher.launch([[*cell.overrides, *cell.places, said] for cell in todo], initial_job_idx=first)

        return run_cells(cells, launch, folder, bool(self.config.force))


def sweep(shop: Workshop) -> None:
    """Run `l2d train -m`: list the cells, run those that are not finished, print the results."""
    cells = shop.cells(shop.grid)
    if shop.config.dry_run:
        list_only(cells, bool(shop.config.force))
        return
    if cells and all(would_fail(cell, bool(shop.config.force)) for cell in cells):
        raise L2DError(cells[0].problem)
    folder = shop.open()
    failed = shop.run(cells, folder)
    if len(failed) == len(cells) and len(reasons := {*failed.values()}) == 1:
        raise L2DError(f"{len(cells)} of {len(cells)} runs failed: {reasons.pop()} (tracebacks: {folder}/*.error)")
    header, rows, damaged = results_table(cells)
    failed |= damaged
    print(f"\n{aligned(header, rows)}")
    if len(failed) < len(cells):
        narrowest = os.path.commonpath([cell.run.path.parent for cell in cells]) or "."
        print(f"\nnext:\n  l2d report {shlex.quote(narrowest)}")
    if failed:
        print("\nfailed:", *(f"  {cell.title}: {reason}" for cell, reason in failed.items()), sep="\n")
        print(f"(tracebacks: {folder}/*.error)")
        raise L2DError(f"{len(failed)} of {len(cells)} runs failed; the same command tries them again")


def would_fail(cell: Cell, force: bool) -> bool:
    """Because its config is invalid. A cell that is done is not run, so it does not fail."""
    return bool(cell.problem) and (force or not cell.run.finished)


def list_only(cells: Sequence[Cell], force: bool) -> None:
    """List the runs, and the combinations whose config is invalid."""
    print(listing(cells, force))
    wrong: dict[str, str] = {}
    for cell in cells:
        if would_fail(cell, force):
            said = " ".join(text for text in without_seed(cell.overrides) if not text.startswith("dry_run="))
            wrong[said] = cell.problem
    if wrong:
        print("\nwould fail:", *(f"  {said}: {problem}" for said, problem in wrong.items()), sep="\n")
        raise L2DError(f"{len(wrong)} of the combinations would fail")


class State(Enum):
    """The state of a cell in a sweep. held: another process works on it."""

    TO_DO = "to do"
    HELD = "held"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Progress:
    state: State
    stamp: int = 0  # with force, the time of a result from before the sweep, which does not count
    kills: int = 0  # how often it started and left neither a result nor an error
    reason: str = ""


def first_progress(cell: Cell, force: bool) -> Progress:
    if cell.run.finished and not force:
        try:
            cell.run.check_data(cell.data)
        except L2DError as error:
            return Progress(State.FAILED, reason=str(error))
        return Progress(State.DONE)
    stamp = cell.run.stamp if force else 0
    return Progress(State.FAILED if cell.problem else State.TO_DO, stamp, reason=cell.problem)


def step(cell: Cell, before: Progress, folder: Path, number: int | None, trouble: str = "") -> Progress:
    """The new progress of a cell. number: the launch number, if it was launched. trouble: the launcher's own error. A run that
    wrote <number>.started, but neither a result nor <number>.error, was killed. One that never started is retried."""
    if number is not None and (error := read_error(folder, number)) is not None:
        return replace(before, state=State.FAILED, reason=error)
    if cell.run.finished and not (before.stamp and cell.run.stamp == before.stamp):
        return replace(before, state=State.DONE)
    if cell.run.held:
        return replace(before, state=State.HELD)
    if number is None or not was_started(folder, number):
        return replace(before, state=State.TO_DO)
    before = replace(before, kills=before.kills + 1)
    if before.kills < ATTEMPTS:
        return replace(before, state=State.TO_DO)
    reason = f"ended without a result, {before.kills} times{f' ({trouble})' if trouble else ''}; killed?"
    return replace(before, state=State.FAILED, reason=reason)


def run_cells(cells: Sequence[Cell], launch: Launch, folder: Path, force: bool = False) -> dict[Cell, str]:
    """Launch cells until all are done or have failed; return those that failed, with their reasons. A cell that another process
    holds is polled, and taken over if that process dies. launch(todo, number): the first cell gets this launch number."""
    progress = {cell: first_progress(cell, force) for cell in cells}
    kept = [cell for cell, one in progress.items() if one.state is State.DONE]
    print(f"{counted(len(cells), 'run')}, {len(kept)} of them finished already")
    results = [cell for cell in kept if cell.run.finished]
    for file in sorted({file for cell in results for file in changed_since({*cell.own_modules}, cell.run.stamp / 1e9)}):
        say(f"WARNING: {file} was changed after some runs were finished; force=true trains them with the new code")
    number, idle_rounds, told = 0, 0, False
    while left := [cell for cell, one in progress.items() if one.state in (State.TO_DO, State.HELD)]:
        todo = [cell for cell in left if progress[cell].state is State.TO_DO]
        numbers = {cell: number + place for place, cell in enumerate(todo)}
        trouble = launched(launch, todo, number) if todo else ""
        if not todo:
            if not told:
                print(f"another process works on {len(left)} of the runs; waiting for it")
                told = True
            time.sleep(POLL_SECONDS)
        number += len(todo)
        for cell in left:
            progress[cell] = step(cell, progress[cell], folder, numbers.get(cell), trouble)
        moved = any(was_started(folder, numbers[cell]) or progress[cell].state is not State.TO_DO for cell in todo)
        idle_rounds = 0 if moved or not todo else idle_rounds + 1
        if idle_rounds >= ATTEMPTS:
            reason = f"never started ({trouble or 'the launcher did nothing'})"
            progress |= {cell: Progress(State.FAILED, reason=reason) for cell in todo}
    return {cell: one.reason for cell, one in progress.items() if one.state is State.FAILED}


def launched(launch: Launch, todo: Sequence[Cell], number: int) -> str:
    """Launch cells. Returns the launcher's own error, if any: a worker was killed, a cluster went away."""
    try:
        launch(todo, number)
    except Exception as error:
        trouble = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        print(f"the launcher stopped ({trouble}); retrying what is not finished")
        return trouble
    return ""


def mark_started(folder: Path, number: Any) -> Path:
    started = folder / f"{number}.started"
    with suppress(OSError):  # a full disk will show itself soon enough
        started.touch()
    return started


def was_started(folder: Path, number: int) -> bool:
    return (folder / f"{number}.started").exists()


def read_error(folder: Path, number: int) -> str | None:
    """The first line of what went wrong, if anything did."""
    try:
        lines = (folder / f"{number}.error").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return lines[0] if lines else "failed; the disk had no room for the reason"


def write_error(folder: Path, number: Any, text: str) -> None:
    """Write an error for the sweep to read. A full disk must not hide the original error, which is on stderr already."""
    with suppress(OSError):
        (folder / f"{number}.error").write_text(text, encoding="utf-8")
