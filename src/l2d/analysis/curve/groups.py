"""Which finished runs make up one curve."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from l2d.analysis.report.read import FinishedCell
from l2d.config.identity import settings_of, variant

SCALE = "cost.scale"
# A cascade goes by estimates of correctness, so the prices of the run that they come from do not matter.
OF_THE_DECISION = ("method.", "cost.name", "cost.prices", SCALE, "decision")


@dataclass(frozen=True, eq=False)
class CurveGroup:
    """Cells that differ in cost.scale alone, by it. cascade: the cell whose estimates a confidence cascade goes by. repriced: by
    method, those whose estimates do for all prices."""

    names: tuple[str, ...]
    name: str
    cells: dict[float, FinishedCell]
    cascade: FinishedCell | None = None
    repriced: Mapping[str, FinishedCell] = field(default_factory=dict)


def scale_of(cell: FinishedCell) -> float | None:
    """What a cell's prices are multiplied by; None where there are no prices."""
    scale = cell.config().get("cost", {}).get("scale")
    if scale is not None:
        return float(scale)
    return 1.0 if any(any(run.prices) for run in cell.runs.values()) else None


def find_groups(cells: Sequence[FinishedCell]) -> list[CurveGroup]:
    """Every two cells or more that differ in cost.scale alone, and every one whose prices may change afterwards."""
    found: dict[str, dict[float, FinishedCell]] = {}
    for cell in cells:
        if (scale := scale_of(cell)) is not None:
            rest = {key: value for key, value in settings_of(cell.config()).items() if key != SCALE}
            found.setdefault(json.dumps([cell.names[:5], rest], sort_keys=True), {})[scale] = cell
    return [
        _group(dict(sorted(members.items())), cells)
        for members in found.values()
        if len(members) > 1 or any(cell.capabilities.takes_prices_later for cell in members.values())
    ]


def _group(members: dict[float, FinishedCell], cells: Sequence[FinishedCell]) -> CurveGroup:
    first = next(iter(members.values()))
    config = first.config()
    unscaled = {"scale": 1.0} if "scale" in config["cost"] else {}
    at_list_prices = variant({**config, "cost": {**config["cost"], **unscaled}})
    cascades = [cell for cell in cells if cell.capabilities.estimates_costs]
    return CurveGroup(
        names=first.names[:5],
        name="-".join([*first.names[:5], at_list_prices]),
        cells=members,
        cascade=_alike(first, cascades),
        repriced=_repriced(members, cells),
    )


def _repriced(members: Mapping[float, FinishedCell], cells: Sequence[FinishedCell]) -> dict[str, FinishedCell]:
    """For each method that takes other prices, one cell: the group's own where it is of that method."""
    first, own = next(iter(members.values())), list(members.values())
    usable = [
        cell for cell in cells if cell.capabilities.takes_prices_later and (cell.method != first.method or cell in own)
    ]
    found = {
        name: _alike(first, [cell for cell in usable if cell.method == name])
        for name in sorted({cell.method for cell in usable})
    }
    return {name: cell for name, cell in found.items() if cell is not None}


def _alike(of: FinishedCell, cells: Sequence[FinishedCell]) -> FinishedCell | None:
    """The cell with the group's data, router and recipe; one that learned errors alone before one with prices in it."""

    def rest(cell: FinishedCell) -> dict[str, Any]:
        found = settings_of(cell.config())
        return {key: value for key, value in found.items() if not key.startswith(OF_THE_DECISION)}

    wanted = rest(of)
    usable = [cell for cell in cells if cell.names[:3] == of.names[:3] and rest(cell) == wanted]
    return min(
        usable, key=lambda cell: (scale_of(cell) or 0.0, cell.names[:4] != of.names[:4], cell.names), default=None
    )
