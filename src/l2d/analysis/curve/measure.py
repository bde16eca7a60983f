"""What the runs of a group decided on the test split, and what they estimated."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from safetensors import SafetensorError, safe_open

from l2d.analysis.curve.groups import CurveGroup
from l2d.analysis.curve.points import Floats, Ints, chances_of
from l2d.analysis.report.read import FinishedCell
from l2d.core.results import RunMetrics
from l2d.utils.errors import L2DError

# Of l2d.serving.exported, which loads torch: a run's weights, and in them the validation rows' estimates and errors.
WEIGHTS, HELD_OUT = "model.safetensors", ("held_out.expected", "held_out.errors")
Estimates = dict[int, tuple[Floats, Floats]]  # by seed: what was estimated and the errors that there were, [N, p] each


@dataclass(frozen=True)
class MeasuredRun:
    """One run on the test split. errors [N, p]; prices, times its scale, [p] or [N, p]; preference [N, p]: what it decides by."""

    errors: Floats
    prices: Floats
    decisions: Ints
    preference: Floats
    metrics: RunMetrics


@dataclass(frozen=True)
class MeasuredGroup:
    """A group's runs by scale and seed, the experts' errors by seed, and the list's prices. chances: P(correct); expected: of the
    errors, by method; held_out: the same of validation rows."""

    runs: dict[float, dict[int, MeasuredRun]]
    errors: dict[int, Floats]
    prices: Floats
    models: list[str]
    chances: Estimates
    expected: dict[str, Estimates]
    held_out: dict[str, Estimates]

    @property
    def seeds(self) -> list[int]:
        return sorted(self.errors)


def measure_group(group: CurveGroup) -> MeasuredGroup:
    """What a group's runs decided; a line that says which of them do not belong together."""
    check_same_data(group)
    runs = {scale: {seed: read_run(cell, seed) for seed in sorted(cell.runs)} for scale, cell in group.cells.items()}
    if not max(runs):
        raise L2DError(f"{group.name}: cost.scale=0 alone does not say what models cost; train with cost.scale=1")
    dearest = next(iter(runs[max(runs)].values()))
    errors = errors_by_seed(group, runs)
    shape = errors[min(errors)].shape
    found = {name: expected_errors(cell, shape) for name, cell in group.repriced.items()}
    expected = {name: estimates for name, estimates in found.items() if estimates}
    return MeasuredGroup(
        runs=runs,
        errors=errors,
        prices=dearest.prices / max(runs),
        models=[expert.name for expert in dearest.metrics.experts],
        chances={} if group.cascade is None else chances_by_seed(group.cascade, shape),
        expected=expected,
        held_out={name: validation_estimates(group.repriced[name], seeds) for name, seeds in expected.items()},
    )


def check_same_data(group: CurveGroup) -> None:
    cells = [*group.cells.values(), *group.repriced.values(), *([group.cascade] if group.cascade is not None else [])]
    files = [_folder(cell, seed) / "data.txt" for cell in cells for seed in cell.runs]
    if len({file.read_text(encoding="utf-8").strip() for file in files if file.exists()} - {""}) > 1:
        raise L2DError(f"{group.name}: its runs are of different data (data.txt)")


def errors_by_seed(group: CurveGroup, runs: dict[float, dict[int, MeasuredRun]]) -> dict[int, Floats]:
    """The experts' errors, which must not depend on the scale."""
    errors: dict[int, Floats] = {}
    for scale, by_seed in runs.items():
        for seed, run in by_seed.items():
            if not np.array_equal(errors.setdefault(seed, run.errors), run.errors):
                folder = _folder(group.cells[scale], seed)
                raise L2DError(f"{folder}: its experts are not those of the other scales")
    return errors


def read_run(cell: FinishedCell, seed: int) -> MeasuredRun:
    """Errors are costs less prices, as they were trained with, and free of its rounding."""
    arrays, metrics = _arrays(cell, seed), cell.runs[seed]
    prices = arrays["prices"]
    if "expected_errors" in arrays:
        preference = -(arrays["expected_errors"] + prices)
    else:
        preference = arrays["posterior" if metrics.decision == "posterior" else "scores"]
    errors = np.round(arrays["costs"] - prices, 12) + 0.0  # no negative zero
    decisions = arrays["decisions"]
    return MeasuredRun(errors, _float64(prices), decisions, _float64(preference), metrics)


def chances_by_seed(cell: FinishedCell, shape: tuple[int, ...]) -> Estimates:
    """P(correct) as a run estimates it that a cascade may go by."""
    found: Estimates = {}
    for seed, run in _runs_of_shape(cell, shape):
        scale = float(run.metrics.method_buffers["reward_scale"])
        found[seed] = chances_of(_float64(_arrays(cell, seed)["scores"]), scale, run.prices), run.errors
    return found


def expected_errors(cell: FinishedCell, shape: tuple[int, ...]) -> Estimates:
    """None where prices differ between rows: they were learned with the errors."""
    found: Estimates = {}
    for seed, run in _runs_of_shape(cell, shape):
        arrays = _arrays(cell, seed)
        if "expected_errors" in arrays:
            found[seed] = _float64(arrays["expected_errors"]), run.errors
    return found


def validation_estimates(cell: FinishedCell, seeds: Iterable[int]) -> Estimates:
    """What runs keep of their validation rows for the guard at other prices."""
    found: Estimates = {}
    for seed in seeds:
        try:
            with safe_open(_folder(cell, seed) / WEIGHTS, framework="np") as saved:
                if {*HELD_OUT} <= {*saved.keys()}:
                    expected, errors = (_float64(saved.get_tensor(name)) for name in HELD_OUT)
                    found[seed] = expected, errors
        except (OSError, SafetensorError):
            continue
    return found


def _runs_of_shape(cell: FinishedCell, shape: tuple[int, ...]) -> Iterator[tuple[int, MeasuredRun]]:
    """Those on as many test rows and models."""
    for seed in sorted(cell.runs):
        run = read_run(cell, seed)
        if run.errors.shape == shape:
            yield seed, run


def _arrays(cell: FinishedCell, seed: int) -> dict[str, Any]:
    file = _folder(cell, seed) / "test.npz"
    try:
        with np.load(file) as saved:
            return dict(saved)
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise L2DError(f"{file}: unreadable ({type(error).__name__}); force=true re-runs it") from error


def _folder(cell: FinishedCell, seed: int) -> Path:
    return cell.folder / f"seed={seed}"


def _float64(values: Any) -> Floats:
    return np.asarray(values, dtype=np.float64)
