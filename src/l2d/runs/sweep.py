"""Many runs from one command. The run folders alone say what is finished, begun or missing."""

import logging
import os
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf, open_dict

from l2d.config.hydra_adapter import split_grid
from l2d.config.identity import quoted
from l2d.runs.cells import Cell, listing, make_cells, results_table, without_seed
from l2d.utils.errors import L2DError
from l2d.utils.own_modules import changed_since
from l2d.utils.text import aligned, counted

ATTEMPTS = 2  # after so many, a run that ends without a result and without an error, so was killed, is not retried
POLL_SECONDS = 2.0
Launch = Callable[[Sequence[Cell], int], None]
printed: set[str] = set()  # the reasons of failures that this process has printed


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
        config = self.loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            del config["hydra"]
        return config

    def cells(self, grid: Sequence[Sequence[str]]) -> list[Cell]:
        return make_cells(grid, self.compose)

    def open(self) -> Path:
        """A new folder, beside hydra.sweep.dir, for the status files of the workers."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{self.place.name}_", dir=self.place.parent))
        OmegaConf.save(self.config, folder / "multirun.yaml")
        logging.getLogger("hydra").setLevel(logging.WARNING)  # launchers print a line for every run
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
    cells, force = shop.cells(shop.grid), bool(shop.config.force)
    if shop.config.dry_run:
        list_only(cells, force)
        return
    if cells and all(problems := [first_problem(cell, force) for cell in cells]):
        raise L2DError(problems[0])
    folder = shop.open()
    printed.clear()
    failed = shop.run(cells, folder)
    if len(failed) == len(cells) and len(reasons := {*failed.values()}) == 1:
        why = "for the reason above" if reasons <= printed else reasons.pop()
        raise L2DError(f"{len(cells)} of {len(cells)} runs failed: {why} (tracebacks: {folder}/*.error)")
    print(f"\n{aligned(*results_table(cells))}")
    if len(failed) < len(cells):
        narrowest = os.path.commonpath([cell.run.path.parent for cell in cells]) or "."
        print(f"\nnext:\n  l2d report {shlex.quote(narrowest)}")
    if failed:
        print("\nfailed:", *(f"  {cell.title}: {reason}" for cell, reason in failed.items()), sep="\n")
        print(f"(tracebacks: {folder}/*.error)")
        raise L2DError(f"{len(failed)} of {len(cells)} runs failed; the same command tries them again")


def list_only(cells: Sequence[Cell], force: bool) -> None:
    """List the runs, and the combinations that would be refused."""
    print(listing(cells, force))
    wrong: dict[str, str] = {}
    for cell in cells:
        if problem := first_problem(cell, force):
            wrong[" ".join(text for text in without_seed(cell.overrides) if not text.startswith("dry_run="))] = problem
    if wrong:
        print("\nwould fail:", *(f"  {said}: {problem}" for said, problem in wrong.items()), sep="\n")
        raise L2DError(f"{len(wrong)} of the combinations would fail")


def first_problem(cell: Cell, force: bool) -> str:
    """Why a cell cannot be run, or its result not be used; empty if nothing is wrong."""
    if force or not cell.run.finished:
        return cell.problem
    try:
        cell.run.check_data(cell.data)
    except L2DError as error:
        return str(error)
    return ""


def run_cells(cells: Sequence[Cell], launch: Launch, folder: Path, force: bool = False) -> dict[Cell, str]:
    """Launch cells until all are done or have failed; return those that failed, with their reasons. A cell that another process
    holds is polled, and taken over if that process dies. launch(todo, number): the first cell gets this launch number. A run that
    wrote <number>.started, but neither a result nor <number>.error, was killed."""
    old = {cell: cell.run.stamp if force else 0 for cell in cells}  # of results that do not count
    failed = {cell: problem for cell in cells if (problem := first_problem(cell, force))}

    def is_done(cell: Cell) -> bool:
        return cell.run.finished and not (old[cell] and cell.run.stamp == old[cell])

    kept = [cell for cell in cells if cell not in failed and is_done(cell)]
    print(f"{counted(len(cells), 'run')}, {len(kept)} of them finished already")
    for file in sorted({file for cell in kept for file in changed_since({*cell.own_modules}, cell.run.stamp / 1e9)}):
        print(f"WARNING: {file} was changed after some runs were finished; force=true trains them with the new code")
    number, idle_rounds, kills, told = 0, 0, Counter[Cell](), False
    while left := [cell for cell in cells if cell not in failed and not is_done(cell)]:
        todo, unmoved = [cell for cell in left if not cell.run.held], 0
        if not todo:
            if not told:
                print(f"another process works on {len(left)} of the runs; waiting for it")
                told = True
            time.sleep(POLL_SECONDS)
            continue
        trouble = launched(launch, todo, number)
        for place, cell in enumerate(todo, start=number):
            if (error := read_error(folder, place)) is not None:
                failed[cell] = error
            elif not (is_done(cell) or cell.run.held):
                was_started = (folder / f"{place}.started").exists()
                unmoved += not was_started
                kills[cell] += was_started
                if kills[cell] == ATTEMPTS:
                    told_why = f" ({trouble})" if trouble else ""
                    failed[cell] = f"ended without a result, {ATTEMPTS} times{told_why}; killed?"
        number += len(todo)
        idle_rounds = idle_rounds + 1 if unmoved == len(todo) else 0
        if idle_rounds == ATTEMPTS:
            failed |= dict.fromkeys(todo, f"never started ({trouble or 'the launcher did nothing'})")
    return {cell: failed[cell] for cell in cells if cell in failed}


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
