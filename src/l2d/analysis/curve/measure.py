"""Groups of finished runs that make up one curve, with their decisions and estimates on the test split."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from l2d.analysis.curve.points import Floats, Ints, Point, chances_of, point
from l2d.analysis.report.read import FinishedCell
from l2d.config.identity import variant
from l2d.core.results import RunMetrics
from l2d.utils.errors import L2DError

SCALE = "cost.scale"
# A cascade uses estimates of correctness; the prices of the run that made them do not matter.
OF_THE_DECISION = ("method.", "cost.name", "cost.prices", SCALE, "decision")
# As in l2d.runs.artifact.exported, which imports torch: the file of the weights, and fields of a HeldOut (core/guard.py) in it.
WEIGHTS, HELD_OUT = "model.safetensors", ("held_out.expected", "held_out.errors")
READ = ("costs", "prices", "scores", "decisions", "expected_errors")  # of test.npz
HELD_OUT_PRICES = ("held_out.expected_prices", "held_out.prices")
Decide = Callable[[Floats, Floats, float], Ints]  # by estimates [N, p] and prices, at a threshold or λ


@dataclass(frozen=True, eq=False)
class CurveGroup:
    names: tuple[str, ...]  # one for each of NAMED
    name: str
    cells: dict[float, FinishedCell]  # by cost.scale, their only difference
    cascade: FinishedCell | None  # its estimates are those of the confidence cascade
    repriced: dict[str, FinishedCell]  # by method: cells whose estimates hold for all prices


def scale_of(cell: FinishedCell) -> float | None:
    """The factor of a cell's prices; None if it has no prices."""
    if SCALE in cell.settings:
        return float(cell.settings[SCALE])
    return 1.0 if any(any(run.prices) for run in cell.runs.values()) else None


def find_groups(cells: Sequence[FinishedCell]) -> list[CurveGroup]:
    """All sets of two or more cells that differ only in cost.scale, and all cells whose prices may change after training."""
    found: dict[str, dict[float, FinishedCell]] = {}
    for cell in cells:
        if (scale := scale_of(cell)) is not None:
            shared = json.dumps([cell.names[:5], cell.settings_but(SCALE)], sort_keys=True)
            found.setdefault(shared, {})[scale] = cell
    return [
        _group(dict(sorted(members.items())), cells)
        for members in found.values()
        if len(members) > 1 or any(cell.capabilities.takes_prices_later for cell in members.values())
    ]


def _group(members: dict[float, FinishedCell], cells: Sequence[FinishedCell]) -> CurveGroup:
    first = next(iter(members.values()))
    cost = first.config["cost"]
    at_list_prices = variant({**first.config, "cost": {**cost, "scale": 1.0} if "scale" in cost else cost})
    same = [cell for cell in cells if cell.names[:3] == first.names[:3]]
    usable = [cell for cell in same if cell.settings_but(*OF_THE_DECISION) == first.settings_but(*OF_THE_DECISION)]
    # Those trained without prices come first, but where rows have their own prices, which they do not estimate.
    none = float("inf") if first.names[3] == "columns" else 0.0
    alike = sorted(usable, key=lambda cell: (scale_of(cell) or none, cell.names[:4] != first.names[:4], cell.names))
    later = [cell for cell in reversed(alike) if cell.capabilities.takes_prices_later]
    repriced = {cell.method: cell for cell in later if cell.method != first.method or cell in members.values()}
    cascade = next((cell for cell in alike if cell.capabilities.estimates_costs), None)
    name = "-".join([*first.names[:5], at_list_prices])
    return CurveGroup(first.names[:5], name, members, cascade, dict(sorted(repriced.items())))


@dataclass(frozen=True)
class Estimated:
    """N rows. estimates: of the errors, or of the chances of being right [N, p]. errors [N, p]. told, prices: to decide by and to
    pay, those of the list, [p] or [N, p]."""

    estimates: Floats
    errors: Floats
    told: Floats
    prices: Floats

    def point(self, decide: Decide, at: float) -> Point:
        """at: a threshold or λ."""
        return point(decide(self.estimates, self.told, at), self.errors, self.prices)


Estimates = dict[int, Estimated]  # by seed


@dataclass(frozen=True)
class MeasuredRun:
    """One run on the N rows of the test split."""

    errors: Floats  # [N, p]
    prices: Floats  # times its scale; [p] or [N, p]
    decisions: Ints
    scores: Floats
    expected: Floats | None  # estimated errors [N, p]; None if the run has none
    told: Floats | None  # estimated prices [N, p], times its scale, if they differ between rows
    metrics: RunMetrics


@dataclass(frozen=True)
class MeasuredGroup:
    runs: dict[float, dict[int, MeasuredRun]]  # by scale and seed
    errors: dict[int, Floats]  # the experts', by seed
    prices: Floats  # the list's
    models: list[str]
    chances: Estimates  # P(correct), for a cascade
    expected: dict[str, Estimates]  # errors, by method
    held_out: dict[str, Estimates]  # the same on validation rows


def measure_group(group: CurveGroup) -> MeasuredGroup:
    """Raises L2DError if the group's runs do not belong together."""
    cells = [*group.cells.values(), *group.repriced.values(), *([group.cascade] if group.cascade is not None else [])]
    files = (cell.run_folder(seed) / "data.txt" for cell in cells for seed in cell.runs)
    if len({file.read_text(encoding="utf-8").strip() for file in files if file.exists()}) > 1:
        raise L2DError(f"{group.name}: its runs used different data (data.txt)")
    runs = {scale: read_runs(cell) for scale, cell in group.cells.items()}
    if not max(runs):
        raise L2DError(f"{group.name}: cost.scale=0 alone does not say what models cost; train with cost.scale=1")
    errors: dict[int, Floats] = {}
    for scale, by_seed in runs.items():
        for seed, run in by_seed.items():
            if not np.array_equal(errors.setdefault(seed, run.errors), run.errors):
                raise L2DError(f"{group.cells[scale].run_folder(seed)}: its experts differ from the other scales'")
    dearest = next(iter(runs[max(runs)].values()))
    prices, models = dearest.prices / max(runs), [expert.name for expert in dearest.metrics.experts]
    chances = {}
    for seed, run in read_runs(group.cascade).items() if group.cascade is not None else ():
        sure = chances_of(run.scores, float(run.metrics.method_buffers["reward_scale"]), run.prices)
        chances[seed] = Estimated(sure, run.errors, prices, prices)
    found = {name: expected_errors(cell, prices) for name, cell in group.repriced.items()}
    expected = {name: estimates for name, estimates in found.items() if estimates}
    held_out = {name: validation_estimates(group.repriced[name], seeds, prices) for name, seeds in expected.items()}
    return MeasuredGroup(runs, errors, prices, models, chances, expected, held_out)


def read_runs(cell: FinishedCell) -> dict[int, MeasuredRun]:
    return {seed: read_run(cell.run_folder(seed) / "test.npz", metrics) for seed, metrics in sorted(cell.runs.items())}


def read_run(file: Path, metrics: RunMetrics) -> MeasuredRun:
    try:
        with np.load(file) as saved:
            arrays = {name: saved[name].astype(np.float64) for name in READ if name in saved}
    except Exception as error:  # of zipfile, zlib and numpy
        raise L2DError(f"{file}: unreadable ({type(error).__name__}); force=true re-runs it") from error
    prices, expected = arrays["prices"], arrays.get("expected_errors")
    # Where prices differ between rows, the router decides by those that it expects: the last of its outputs.
    told = None if prices.ndim == 1 or expected is None else arrays["scores"][:, -prices.shape[1] :]
    errors = np.round(arrays["costs"] - prices, 12) + 0.0  # without rounding errors, and no negative zero
    decisions = arrays["decisions"].astype(np.int64)
    return MeasuredRun(errors, prices, decisions, arrays["scores"], expected, told, metrics)


def expected_errors(cell: FinishedCell, prices: Floats) -> Estimates:
    """prices: the list's. If they differ between rows, a run decides by those that it expects; without any it is left out."""
    found, scale = {}, scale_of(cell)
    for seed, run in read_runs(cell).items():
        if run.expected is not None and prices.ndim == 1:
            found[seed] = Estimated(run.expected, run.errors, prices, prices)
        elif run.expected is not None and run.told is not None and scale:
            found[seed] = Estimated(run.expected, run.errors, run.told / scale, run.prices / scale)
    return found


def validation_estimates(cell: FinishedCell, seeds: Iterable[int], prices: Floats) -> Estimates:
    """The validation rows that runs keep for the guard at other prices; none unless all keep some. prices: the list's."""
    found: Estimates = {}
    wanted, scale = HELD_OUT if prices.ndim == 1 else (*HELD_OUT, *HELD_OUT_PRICES), scale_of(cell) or 1.0
    for seed in seeds:
        with suppress(OSError, SafetensorError), safe_open(cell.run_folder(seed) / WEIGHTS, framework="np") as saved:
            if {*wanted} <= {*saved.keys()}:
                expected, errors, *priced = (saved.get_tensor(name).astype(np.float64) for name in wanted)
                told, paid = (part / scale for part in priced) if priced else (prices, prices)
                found[seed] = Estimated(expected, errors, told, paid)
    return found if found.keys() == {*seeds} else {}
