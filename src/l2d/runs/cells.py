"""What a sweep is made of: one cell per run folder, and the tables that say how they stand."""

import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from l2d.config import to_plain
from l2d.routing.build import fingerprint
from l2d.runs.folder import RunFolder, absolute, apart, choices, settings_of
from l2d.runs.summary import aligned

# Keys that name a place; workers, which may start in another folder, get them absolute.
PLACES = (
    "runs_dir",
    "data_dir",
    "dataset.path",
    "experts.table",
    "experts.models",
    "router.model",
    "router.reads.model",
)


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a sweep: the overrides that make it, where it lives, and what it is called."""

    overrides: tuple[str, ...]
    run: RunFolder
    names: dict[str, str]
    seed: int
    epochs: int
    data: str = ""
    places: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    stop_after: int | None = None

    @property
    def done(self) -> bool:
        """Finished, or stopped where it was told to."""
        stopped = self.stop_after is not None and self.run.paused_after >= self.stop_after
        return self.run.finished or (stopped and self.run.last_checkpoint is not None)

    @property
    def variant(self) -> str:
        return self.run.path.parent.name

    @property
    def title(self) -> str:
        return " ".join([*self.names.values(), f"seed={self.seed}"])

    @property
    def state(self) -> str:
        if self.run.finished:
            return "finished"
        return "begun" if self.run.last_checkpoint else "missing"


def make_cells(grid: Sequence[Sequence[str]], compose: Callable[[list[str]], DictConfig]) -> list[Cell]:
    """One cell per run folder. Composing takes a tenth of a second, so combinations that differ in the seed share it."""
    composed: dict[tuple[str, ...], tuple[dict[str, Any], str]] = {}
    cells: dict[Path, Cell] = {}
    for overrides in grid:
        others = without_seed(overrides)
        if others not in composed:
            config = compose(list(others))
            composed[others] = to_plain(config), fingerprint(config)
        seeds = [int(text.removeprefix("seed=")) for text in overrides if text not in others]
        plain, data = composed[others]
        plain = plain | ({"seed": seeds[-1]} if seeds else {})
        run = RunFolder.of(plain)
        epochs = int(plain["recipe"]["epochs"])
        cell = Cell(
            tuple(overrides),
            run,
            choices(plain),
            int(plain["seed"]),
            epochs,
            data,
            places(plain),
            settings_of(plain),
            plain["stop_after"],
        )
        cells.setdefault(run.path, cell)
    return list(cells.values())


def without_seed(overrides: Sequence[str]) -> tuple[str, ...]:
    """Any longer than nine digits stays: such a seed may be refused."""
    return tuple(text for text in overrides if not re.fullmatch(r"seed=\d{1,9}", text))


def places(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Overrides that make the places absolute."""
    said = []
    for key in PLACES:
        given: Any = config
        for part in key.split("."):
            given = given.get(part) if isinstance(given, Mapping) else None
        if (place := absolute(key, given)) != given:
            words = ",".join(f"'{one}'" for one in (place if isinstance(place, list) else [place]))
            said.append(f"{key}=[{words}]" if isinstance(place, list) else f"{key}={words}")
    return tuple(said)


def named(cells: Sequence[Cell]) -> dict[Cell, list[str]]:
    """The names of each cell, the method's with what tells apart the variants that share them."""
    groups: dict[tuple[str, ...], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        groups[tuple(cell.names.values())].setdefault(cell.variant, cell)
    said = {}
    for names, variants in groups.items():
        texts = apart([cell.settings for cell in variants.values()]) if len(variants) > 1 else [""]
        for variant, text in zip(variants, texts, strict=True):
            said[names, variant] = f" ({text})" if text else ""
    found = {}
    for cell in cells:
        *others, method = cell.names.values()
        found[cell] = [*others, method + said[tuple(cell.names.values()), cell.variant]]
    return found


def results(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Header and one row per cell of the sweep: how many seeds, mean and standard deviation of the test deferral loss; where a
    guard changed something, the mean with it too."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    guarded: dict[tuple[str, ...], list[float]] = defaultdict(list)
    wanted: Counter[tuple[str, ...]] = Counter()
    for cell, names in named(cells).items():
        key = (*names, cell.variant)
        wanted[key] += 1
        if cell.run.finished:
            try:
                metrics = cell.run.metrics()
                loss, held = (float(of["deferral_loss"]) for of in (metrics, metrics.get("guarded") or metrics))
                found[key].append(loss)
                guarded[key].append(held)
            except (ValueError, KeyError, TypeError):
                print(f"warning: {cell.run.path}/metrics.json: damaged; force=true runs it anew", file=sys.stderr)
    rows = []
    for key, number in wanted.items():
        losses = found[key]
        mean = f"{statistics.mean(losses):.4f}" if losses else "-"
        spread = f"{statistics.stdev(losses):.4f}" if len(losses) > 1 else "-"
        rows.append([*key, f"{len(losses)}/{number}", mean, spread])
    header = [*(cells[0].names if cells else []), "variant", "seeds", "deferral loss", "std"]
    if any(found[key] != guarded[key] for key in wanted):
        header.append("guarded")
        for key, row in zip(wanted, rows, strict=True):
            row.append(f"{statistics.mean(guarded[key]):.4f}" if guarded[key] else "-")
    return header, rows


def listing(cells: Sequence[Cell], force: bool = False) -> str:
    """Every cell, its state, and what the rest should take, judged by finished runs of the same dataset and length.

    Runs that shared a device took longer than they would have alone; so may those to come.
    """
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    for cell in cells:
        with suppress(OSError, ValueError):
            if cell.run.finished and (taken := cell.run.timing().get("total_seconds")):
                seconds[cell.names["dataset"], cell.epochs].append(float(taken))
    rows, total, unknown = [], 0.0, 0
    for cell, names in named(cells).items():
        known = seconds.get((cell.names["dataset"], cell.epochs))
        left = 0.0 if cell.state == "finished" and not force else statistics.mean(known) if known else None
        total += left or 0.0
        unknown += left is None
        took = "?" if left is None else f"{left:.0f} s" if left else ""
        rows.append([*names, str(cell.seed), cell.state, took])
    states = Counter(cell.state for cell in cells)
    text = ", ".join(f"{states[state]} {state}" for state in ("finished", "begun", "missing"))
    estimate = f"about {duration(total)} one after the other" if total or not unknown else "no estimate"
    if unknown:
        estimate += f"; {unknown} without a finished neighbour in this sweep (same dataset, same epochs) to judge by"
    header = [*(cells[0].names if cells else []), "seed", "state", "still takes"]
    return f"{aligned(header, rows)}\n\n{len(cells)} {'run' if len(cells) == 1 else 'runs'}: {text}; left to do: {estimate}"


def duration(seconds: float) -> str:
    return (
        f"{seconds / 3600:.1f} h"
        if seconds >= 3600
        else f"{seconds / 60:.0f} min"
        if seconds >= 100
        else f"{seconds:.0f} s"
    )
