"""Which finished runs make up one curve, and what they decided on the test split."""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zipfile import BadZipFile

import numpy as np
from safetensors import SafetensorError, safe_open

from l2d.analysis.curve.points import Floats, Ints, chances_of
from l2d.analysis.report.read import Cell
from l2d.runs.folder import settings_of, variant
from l2d.utils.errors import L2DError

SCALE = "cost.scale"
ONE_VS_ALL = (
    "l2d.methods.one_vs_all.OneVsAll"  # whose scores estimate each model's chance of being right; torch stays unloaded
)
PRICED = "l2d.methods.priced."  # methods that expect errors and add prices to decide: one run is a curve
# Of l2d.serving.exported, which loads torch: a run's weights, and in them the validation rows' estimates and errors.
WEIGHTS, HELD_OUT = "model.safetensors", ("held_out.expected", "held_out.errors")
# A cascade goes by estimates of correctness, so the prices of the run that they come from do not matter.
OF_THE_DECISION = ("method.", "cost.name", "cost.prices", SCALE, "decision")


@dataclass(frozen=True, eq=False)
class Group:
    """Cells that differ in cost.scale alone, by it. cascade: the cell whose estimates a confidence cascade goes by. repriced: by
    method, those whose estimates do for all prices."""

    names: tuple[str, ...]
    name: str
    cells: dict[float, Cell]
    cascade: Cell | None = None
    repriced: Mapping[str, Cell] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One run on the test split. errors [N, p]; prices, times its scale, [p] or [N, p]; preference [N, p]: what it decides by."""

    errors: Floats
    prices: Floats
    decisions: Ints
    preference: Floats
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """A group's runs by scale and seed, the experts' errors by seed, and the list's prices. chances: P(correct) by seed, with the
    errors that there were; expected: estimates of the errors, likewise, by method; held_out: those of validation rows."""

    runs: dict[float, dict[int, Run]]
    errors: dict[int, Floats]
    prices: Floats
    models: list[str]
    chances: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)
    expected: dict[str, dict[int, tuple[Floats, Floats]]] = field(default_factory=dict)
    held_out: dict[str, dict[int, tuple[Floats, Floats]]] = field(default_factory=dict)

    @property
    def seeds(self) -> list[int]:
        return sorted(self.errors)


def scale_of(config: Mapping[str, Any]) -> float:
    return float(config["cost"].get("scale", 1.0))


def find_groups(cells: Sequence[Cell]) -> list[Group]:
    """Every two cells or more with prices that differ in their scale alone, and every one whose prices may change afterwards."""
    found: dict[str, dict[float, Cell]] = {}
    for cell in cells:
        config = cell.config()
        if isinstance(config.get("cost"), Mapping) and config["cost"].get("prices") is not None:
            rest = {key: value for key, value in settings_of(config).items() if key != SCALE}
            found.setdefault(json.dumps([cell.names[:5], rest], sort_keys=True), {})[scale_of(config)] = cell
    return [
        _group(members, cells) for members in found.values() if len(members) > 1 or any(map(priced, members.values()))
    ]


def priced(cell: Cell) -> bool:
    return str(cell.config().get("method", {}).get("_target_")).startswith(PRICED)


def _group(members: Mapping[float, Cell], cells: Sequence[Cell]) -> Group:
    by_scale = dict(sorted(members.items()))
    first = next(iter(by_scale.values()))
    config = first.config()
    one = variant(
        {**config, "cost": {**config["cost"], "scale": 1.0}}
    )  # the folder of the run at the list's own prices
    return Group(
        first.names[:5],
        "-".join([*first.names[:5], one]),
        by_scale,
        _alike(first, [cell for cell in cells if cell.config().get("method", {}).get("_target_") == ONE_VS_ALL]),
        _repriced(by_scale, cells),
    )


def _repriced(members: Mapping[float, Cell], cells: Sequence[Cell]) -> dict[str, Cell]:
    """For each method that takes other prices, one cell: the group's own where it is of that method."""
    first = next(iter(members.values()))
    usable = [cell for cell in cells if priced(cell) and (cell.method != first.method or cell in members.values())]
    found = {
        name: _alike(first, [cell for cell in usable if cell.method == name])
        for name in sorted({cell.method for cell in usable})
    }
    return {name: cell for name, cell in found.items() if cell is not None}


def _alike(of: Cell, cells: Sequence[Cell]) -> Cell | None:
    """The cell with the group's data, router and recipe; one that learned errors alone before one with prices in it."""

    def rest(cell: Cell) -> dict[str, Any]:
        found = settings_of(cell.config())
        return {key: value for key, value in found.items() if not key.startswith(OF_THE_DECISION)}

    def scale(cell: Cell) -> float:
        config = cell.config()
        return 0.0 if config["cost"].get("prices") is None else scale_of(config)

    wanted = rest(of)
    usable = [cell for cell in cells if cell.names[:3] == of.names[:3] and rest(cell) == wanted]
    return min(usable, key=lambda cell: (scale(cell), cell.names[:4] != of.names[:4], cell.names), default=None)


def load(group: Group) -> Measured:
    """What a group's runs decided; a line that says which of them do not belong together."""
    others = [*group.repriced.values(), *([group.cascade] if group.cascade is not None else [])]
    data = {text for cell in [*group.cells.values(), *others] for seed in cell.runs if (text := _data(cell, seed))}
    if len(data) > 1:
        raise L2DError(f"{group.name}: its runs are of different data (data.txt)")
    runs = {
        scale: {seed: read_run(cell, seed, scale) for seed in sorted(cell.runs)} for scale, cell in group.cells.items()
    }
    if not max(runs):
        raise L2DError(f"{group.name}: cost.scale=0 alone does not say what models cost; train with cost.scale=1")
    dearest = next(iter(runs[max(runs)].values()))
    errors: dict[int, Floats] = {}
    for scale, by_seed in runs.items():
        for seed, run in by_seed.items():
            known = errors.setdefault(seed, run.errors)
            if known.shape != run.errors.shape or not np.array_equal(known, run.errors):
                raise L2DError(
                    f"{group.cells[scale].folder}/seed={seed}: its experts are not those of the other scales"
                )
    models = [str(expert["name"]) for expert in dearest.metrics["experts"]]
    measured = Measured(runs, errors, dearest.prices / max(runs), models)
    if group.cascade is not None:
        for seed in sorted(group.cascade.runs):
            scores, reward_scale, run = _estimates(group.cascade, seed)
            if run.errors.shape == errors[min(errors)].shape:
                measured.chances[seed] = chances_of(scores, reward_scale, run.prices), run.errors
    for method, cell in group.repriced.items():
        for seed in sorted(cell.runs):
            arrays, run = _arrays(cell, seed), read_run(cell, seed, scale_of(cell.config()))
            if "expected_errors" in arrays and run.errors.shape == errors[min(errors)].shape:
                expected = np.asarray(arrays["expected_errors"], dtype=np.float64)
                measured.expected.setdefault(method, {})[seed] = expected, run.errors
                if (held := _held_out(cell, seed)) is not None:
                    measured.held_out.setdefault(method, {})[seed] = held
    return measured


def _held_out(cell: Cell, seed: int) -> tuple[Floats, Floats] | None:
    """What a run keeps of its validation rows for the guard at other prices: expected errors and errors."""
    try:
        with safe_open(cell.folder / f"seed={seed}" / WEIGHTS, framework="np") as saved:
            if not {*HELD_OUT} <= {*saved.keys()}:
                return None
            expected, errors = (np.asarray(saved.get_tensor(name), dtype=np.float64) for name in HELD_OUT)
    except (OSError, SafetensorError):
        return None
    return expected, errors


def _data(cell: Cell, seed: int) -> str:
    file = cell.folder / f"seed={seed}" / "data.txt"
    return file.read_text(encoding="utf-8").strip() if file.exists() else ""


def _arrays(cell: Cell, seed: int) -> dict[str, Any]:
    file = cell.folder / f"seed={seed}" / "test.npz"
    try:
        with np.load(file) as saved:
            return dict(saved)
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise L2DError(f"{file}: unreadable ({type(error).__name__}); force=true runs it anew") from error


def read_run(cell: Cell, seed: int, scale: float) -> Run:
    """Errors are costs less prices, as they were trained with, and free of its rounding."""
    arrays, metrics, config = _arrays(cell, seed), cell.runs[seed], cell.config()
    if "prices" in arrays:
        prices = arrays["prices"]
    elif config["cost"].get("prices") == "columns" and scale:
        raise L2DError(f"{cell.folder}/seed={seed}: of before prices were kept in test.npz; force=true runs it anew")
    else:
        prices = np.array(metrics["prices"])
    by_posterior = metrics.get("decision") == "posterior" and "posterior" in arrays
    if "expected_errors" in arrays:
        preference = -np.asarray(arrays["expected_errors"] + prices, dtype=np.float64)
    else:
        preference = np.asarray(arrays["posterior" if by_posterior else "scores"], dtype=np.float64)
    errors = np.round(arrays["costs"] - prices, 12) + 0.0  # no negative zero
    return Run(errors, np.asarray(prices, dtype=np.float64), arrays["decisions"], preference, metrics)


def _estimates(cell: Cell, seed: int) -> tuple[Floats, float, Run]:
    run = read_run(cell, seed, scale_of(cell.config()))
    scores = np.asarray(_arrays(cell, seed)["scores"], dtype=np.float64)
    return scores, float(run.metrics["method_buffers"]["reward_scale"]), run
