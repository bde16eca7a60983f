"""Groups of finished runs that make up one curve."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from l2d.analysis.report.read import FinishedCell
from l2d.config.identity import variant

SCALE = "cost.scale"
# A cascade uses estimates of correctness; the prices of the run that made them do not matter.
OF_THE_DECISION = ("method.", "cost.name", "cost.prices", SCALE, "decision")


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
    alike = _alike(first, cells)
    repriced = {
        cell.method: cell
        for cell in reversed(alike)
        if cell.capabilities.takes_prices_later and (cell.method != first.method or cell in members.values())
    }
    return CurveGroup(
        names=first.names[:5],
        name="-".join([*first.names[:5], at_list_prices]),
        cells=members,
        cascade=next((cell for cell in alike if cell.capabilities.estimates_costs), None),
        repriced=dict(sorted(repriced.items())),
    )


def _alike(of: FinishedCell, cells: Sequence[FinishedCell]) -> list[FinishedCell]:
    """The cells with the group's data, router and recipe; those trained without prices come first."""
    same = [cell for cell in cells if cell.names[:3] == of.names[:3]]
    usable = [cell for cell in same if cell.settings_but(*OF_THE_DECISION) == of.settings_but(*OF_THE_DECISION)]
    return sorted(usable, key=lambda cell: (scale_of(cell) or 0.0, cell.names[:4] != of.names[:4], cell.names))
