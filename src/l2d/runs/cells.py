"""The cells of a sweep, one per run folder, and the tables of their states."""

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from l2d.assembly.fingerprints import data_fingerprint, with_listed_prices
from l2d.config import check, to_plain
from l2d.config.checking import normalised
from l2d.config.identity import apart, choices, places, settings_of
from l2d.core.prices import ERRORS, Prices
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError
from l2d.utils.text import aligned, counted

Compose = Callable[[list[str]], Any]


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a sweep: the overrides that make it, where it lives, and what it is called. problem: why it cannot be run."""

    overrides: tuple[str, ...]
    run: RunFolder
    names: dict[str, str]
    seed: int
    epochs: int = 0
    data: str = ""
    places: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    own_modules: frozenset[str] = frozenset()
    prices: Prices = ERRORS

    @property
    def variant(self) -> str:
        return self.run.path.parent.name

    @property
    def title(self) -> str:
        return " ".join([*self.names.values(), f"seed={self.seed}"])


def make_cells(grid: Sequence[Sequence[str]], compose: Compose) -> list[Cell]:
    """One cell per run folder. Combinations that differ in the seed alone share a config."""
    frames = list(dict.fromkeys(without_seed(overrides) for overrides in grid))
    drafts = {frame: draft(config) for frame, config in compose_all(frames, compose).items()}
    cells: dict[Path, Cell] = {}
    for overrides in grid:
        frame = without_seed(overrides)
        cell = replace(drafts[frame], overrides=tuple(overrides))
        for text in (text for text in overrides if text not in frame):
            cell = replace(cell, seed=int(text.removeprefix("seed=")), run=RunFolder(cell.run.path.with_name(text)))
        cells.setdefault(cell.run.path, cell)
    return list(cells.values())


def without_seed(overrides: Sequence[str]) -> tuple[str, ...]:
    """Without seed=N. A seed that may be refused stays: with a leading zero, or more than nine digits."""
    return tuple(text for text in overrides if not re.fullmatch(r"seed=(0|[1-9]\d{0,8})", text))


def draft(config: dict[str, Any]) -> Cell:
    """A cell without its overrides; `problem` says what is wrong with its config."""
    plain, found = normalised(config), dict[str, Any]()
    try:
        experiment = with_listed_prices(check(config))
        plain = dict(experiment.plain)
        if experiment.trainer.devices > 1:
            raise L2DError("trainer.devices: a sweep gives each run one device; several devices work on one run only")
        found = {"epochs": experiment.recipe.epochs, "data": data_fingerprint(experiment)}
        found |= {"own_modules": frozenset(experiment.own_modules), "prices": Prices.of(plain)}
    except L2DError as error:
        found["problem"] = str(error)
    where: dict[str, Any] = {"places": places(plain), "settings": settings_of(plain)}
    return Cell((), RunFolder.of(plain), choices(plain), plain["seed"], **where, **found)


def compose_all(frames: Sequence[tuple[str, ...]], compose: Compose) -> dict[tuple[str, ...], dict[str, Any]]:
    """The resolved config of each combination. Composing takes a tenth of a second, and a table has 84 combinations: if the method
    and the other choices do not depend on each other, one config for each method and each rest is enough."""

    @cache
    def composed(frame: tuple[str, ...]) -> tuple[dict[str, Any], bool]:
        raw = compose(list(frame))
        return to_plain(raw), is_interpolated(raw)

    parts = {frame: split_method(frame) for frame in frames}
    whole = {part: frame for frame, part in parts.items()}
    found = {}
    for frame, (rest, method) in parts.items():
        first_rest, first_method = parts[frames[0]]
        along, across = whole.get((rest, first_method)), whole.get((first_rest, method))
        if along is None or across is None or frame in (along, across):
            found[frame] = composed(frame)[0]
            continue
        (others, one), (methods, two), (corner, _) = composed(along), composed(across), composed(frames[0])
        alike = others["method"] == corner["method"] and {**methods, "method": 0} == {**corner, "method": 0}
        mixed = {**others, "method": methods["method"]}
        found[frame] = mixed if alike and not one and not two else composed(frame)[0]
    return found


def split_method(overrides: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The overrides of the other groups, and those of the method."""
    method = tuple(text for text in overrides if re.match(r"[+~]*method\b", text))
    return tuple(text for text in overrides if text not in method), method


def is_interpolated(config: Any) -> bool:
    """True if the method takes values from other groups, or they from it."""
    from omegaconf import OmegaConf

    parts = OmegaConf.to_container(config, resolve=False)
    assert isinstance(parts, dict)
    method, rest = str(parts.pop("method")), str(parts)
    return "${" in method or re.search(r"\$\{[^}]*\bmethod\b", rest) is not None


def named(cells: Sequence[Cell]) -> dict[Cell, list[str]]:
    """The names of each cell. If variants share all names, the method's name gets the settings in which they differ."""
    groups: dict[tuple[str, ...], dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        groups[tuple(cell.names.values())].setdefault(cell.variant, cell)
    said = {}
    for names, variants in groups.items():
        texts = apart([cell.settings for cell in variants.values()]) if len(variants) > 1 else [""]
        for variant, text in zip(variants, texts, strict=True):
            said[names, variant] = [*names[:-1], f"{names[-1]} ({text})" if text else names[-1]]
    return {cell: said[tuple(cell.names.values()), cell.variant] for cell in cells}


def results_table(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """Header, and a row per cell."""
    members = defaultdict[tuple[str, ...], list[Cell]](list)
    for cell, names in named(cells).items():
        members[*names, cell.variant].append(cell)
    rows, acts = [], False
    for key, own in members.items():
        found = [cell.run.metrics() for cell in own if cell.run.finished]
        losses, guarded = [run.deferral_loss for run in found], [run.guarded.deferral_loss for run in found]
        acts = acts or losses != guarded
        shown = *mean_and_spread(losses, own[0].prices), mean_and_spread(guarded, own[0].prices)[0]
        rows.append([*key, f"{len(found)}/{len(own)}", *shown])
    header = [*(cells[0].names if cells else []), "variant", "seeds", "deferral loss", "std", "guarded"]
    return (header, rows) if acts else (header[:-1], [row[:-1] for row in rows])


def mean_and_spread(losses: Sequence[float], prices: Prices) -> tuple[str, str]:
    mean = prices.show(statistics.mean(losses)) if losses else "-"
    return mean, prices.show(statistics.stdev(losses)) if len(losses) > 1 else "-"


def listing(cells: Sequence[Cell], force: bool = False) -> str:
    """Every cell with its state, and an estimate of the remaining time from finished runs of the same dataset and epochs."""
    seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
    for cell in cells:
        with suppress(OSError, ValueError):
            if cell.run.finished and (taken := cell.run.timing().get("total_seconds")):
                seconds[cell.names["dataset"], cell.epochs].append(float(taken))
    rows, total, states = [], 0.0, Counter[str]()
    for cell, names in named(cells).items():
        state = cell.run.standing
        states[state] += 1
        known = seconds.get((cell.names["dataset"], cell.epochs))
        left = 0.0 if state == "finished" and not force else statistics.mean(known) if known else None
        total += left or 0.0
        rows.append([*names, str(cell.seed), state, "?" if left is None else f"{left:.0f} s" if left else ""])
    text = ", ".join(f"{states[state]} {state}" for state in ("finished", "begun", "missing") if states[state])
    header = [*(cells[0].names if cells else []), "seed", "state", "still takes"]
    left_to_do = f"those whose time is known take {timedelta(seconds=round(total))}, one after the other"
    return f"{aligned(header, rows)}\n\n{counted(len(cells), 'run')}: {text}; {left_to_do}"
