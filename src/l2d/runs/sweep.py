"""Many runs from one command. What is finished, begun or missing is read off the run folders, never remembered."""

import logging
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from l2d.config import to_plain
from l2d.routing.build import check_without_data
from l2d.runs.cells import Cell, listing, make_cells, results, without_seed
from l2d.runs.summary import aligned
from l2d.runs.tracking import report_sweep
from l2d.utils.errors import L2DError

# A run that ends without result and without error was killed; one that kills its worker twice is left alone.
ATTEMPTS = 2
POLL_SECONDS = 2.0


class Workshop:
    """What Hydra gives a sweeper: a way to compose a run's config, and a launcher for runs."""

    def __init__(self, sweeper: BasicSweeper, arguments: list[str]) -> None:
        assert sweeper.config is not None
        assert sweeper.hydra_context is not None
        assert sweeper.launcher is not None
        self.config, self.loader, self.launcher = sweeper.config, sweeper.hydra_context.config_loader, sweeper.launcher
        given = [*(f"{key}={value}" for key, value in (sweeper.params or {}).items()), *arguments]
        for text in given:
            if re.match(r"experiment=.*,", text):
                raise L2DError(f"{text}: one experiment at a time")
        parsed = OverridesParser.create(config_loader=self.loader).parse_overrides(given)
        self.grid: list[list[str]] = sweeper.split_arguments(parsed, None)[0]
        self.place = Path(self.config.hydra.sweep.dir).expanduser().absolute()

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """A run's config, without Hydra's own settings."""
        config = self.loader.load_sweep_config(self.config, list(overrides))
        return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])

    def cells(self, grid: Sequence[Sequence[str]]) -> list[Cell]:
        return make_cells(grid, self.compose)

    def open(self) -> Path:
        """A new folder, beside hydra.sweep.dir, for what workers have to say."""
        self.place.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{self.place.name}_", dir=self.place.parent))
        OmegaConf.save(self.config, folder / "multirun.yaml")
        logging.getLogger("hydra").setLevel(logging.WARNING)  # it prints a line for every run
        return folder

    def run(self, cells: Sequence[Cell], folder: Path) -> dict[Cell, str]:
        """What is not done yet of these. Returns the failed with their reasons."""
        with open_dict(self.config):
            self.config.hydra.sweep.dir = str(folder)

        def launch(todo: Sequence[Cell], first: int) -> None:
            said = f"hydra.sweep.dir='{folder}'"
            self.launcher.launch([[*cell.overrides, *cell.places, said] for cell in todo], initial_job_idx=first)

        return run_cells(cells, launch, folder, bool(self.config.force))


def sweep(sweeper: BasicSweeper, arguments: list[str]) -> None:
    """What `l2d train -m` does: list the cells, run those that are not finished, say how it went."""
    shop = Workshop(sweeper, arguments)
    config = shop.config
    if config.dry_run:
        list_only(shop)
        return
    cells = shop.cells(shop.grid)
    folder = shop.open()
    failed = shop.run(cells, folder)
    header, rows = results(cells)
    print(f"\n{aligned(header, rows)}")
    if failed:
        lines = []
        for cell, reason in failed.items():
            lines += [f"  {cell.title}: {reason}", *([f"    {cell.run.path}"] if cell.run.path.exists() else [])]
        print("\nfailed:\n" + "\n".join(lines) + f"\n(what Python said: {folder}/*.error)")
    try:
        report_sweep(to_plain(config.logger), folder, header, rows)
    except (L2DError, OSError) as error:
        print(f"warning: the sweep's table did not reach Weights & Biases ({error})")
    if failed:
        raise L2DError(f"{len(failed)} of {len(cells)} runs failed; the same command tries them again")


def list_only(shop: Workshop) -> None:
    """What there is to do, and what of it would be refused for its values."""
    refused: dict[tuple[str, ...], str] = {}

    def checked(overrides: Sequence[str]) -> DictConfig:
        config = shop.compose(overrides)
        try:
            check_devices(config)
            check_without_data(config)
        except L2DError as error:
            refused[tuple(overrides)] = str(error)
        return config

    cells = make_cells(shop.grid, checked)
    print(listing(cells, bool(shop.config.force)))
    to_do = {without_seed(cell.overrides) for cell in cells if shop.config.force or not cell.done}
    lines = [
        f"  {' '.join(text for text in overrides if not text.startswith('dry_run='))}: {reason}"
        for overrides, reason in refused.items()
        if overrides in to_do
    ]
    if lines:
        print("\nwould fail:\n" + "\n".join(lines))
        raise L2DError(f"{len(lines)} of the combinations would fail")


def run_cells(
    cells: Sequence[Cell], launch: Callable[[Sequence[Cell], int], None], folder: Path, force: bool = False
) -> dict[Cell, str]:
    """Launch what is not finished until everything is, has failed, or died too often. Returns the failed with their reasons.

    A cell that another process holds is left to it, waited for at the end, and taken over if that process dies.
    launch(todo, number): runs some cells, the first under that number. A run leaves folder/<number>.started, and what went wrong in
    folder/<number>.error; one that only started was killed, one that did not even start may be launched again and again, as
    long as others get on.
    """
    stamps = {cell: cell.run.stamp for cell in cells}
    failed = {cell: reason for cell in cells if not force and (reason := wrong_data(cell))}
    todo = [cell for cell in cells if force or (not cell.done and cell not in failed)]
    print(f"{len(cells)} {'run' if len(cells) == 1 else 'runs'}, {len(cells) - len(todo)} of them finished already")
    attempts: Counter[Cell] = Counter()
    number, stuck, said = 0, 0, False

    def done(cell: Cell) -> bool:
        return cell.done and not (force and cell.run.stamp == stamps[cell])

    while todo:
        numbers = {cell: number + i for i, cell in enumerate(todo)}
        number += len(todo)
        trouble = ""
        try:
            launch(todo, number - len(todo))
        except Exception as error:  # the launcher's own: a worker was killed, a cluster went away
            trouble = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            print(f"the launcher stopped ({trouble}); what is not finished is tried again")
        waiting: list[Cell] = []
        started = [cell for cell in todo if (folder / f"{numbers[cell]}.started").exists()]
        for cell in todo:
            if (error_line := read_error(folder, numbers[cell])) is not None:
                failed[cell] = error_line
            elif not done(cell) and cell.run.held:
                waiting.append(cell)
            elif not done(cell) and cell in started:
                attempts[cell] += 1
                if attempts[cell] >= ATTEMPTS:
                    failed[cell] = (
                        f"ended without a result, {ATTEMPTS} times{f' ({trouble})' if trouble else ''}; killed?"
                    )
        stuck = 0 if started or waiting or any(map(done, todo)) else stuck + 1
        todo = [cell for cell in todo if not (done(cell) or cell in failed or cell in waiting)]
        if stuck >= ATTEMPTS:
            failed |= dict.fromkeys(todo, f"never started ({trouble or 'the launcher did nothing'})")
            todo = []
        while waiting and not todo:
            if not said:
                print(f"{len(waiting)} runs are in the hands of another process; waiting for it")
                said = True
            time.sleep(POLL_SECONDS)
            todo = [cell for cell in waiting if not done(cell) and not cell.run.held]
            waiting = [cell for cell in waiting if not done(cell) and cell not in todo]
        todo += waiting
    return failed


def wrong_data(cell: Cell) -> str:
    """Why a finished run cannot be taken for this one, or nothing."""
    try:
        if cell.run.finished:
            cell.run.check_data(cell.data)
    except L2DError as error:
        return str(error)
    return ""


def check_devices(cfg: DictConfig) -> None:
    if cfg.trainer.devices > 1:
        raise L2DError("trainer.devices: a sweep gives each run one device; several devices work on one run only")


def read_error(folder: Path, number: int) -> str | None:
    """The first line of what went wrong, if anything did."""
    try:
        lines = (folder / f"{number}.error").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return lines[0] if lines else "failed, and there was no room to say why"


def write_error(folder: Path, number: Any, text: str) -> None:
    """Where the sweep looks. A full disk must not hide the error that it caused, which is on stderr already."""
    with suppress(OSError):
        (folder / f"{number}.error").write_text(text, encoding="utf-8")
