"""Which finished runs make up one curve."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from l2d.analysis.report.read import FinishedCell
from l2d.config.identity import variant

SCALE = "cost.scale"
# A cascade goes by estimates of correctness, so the prices of the run that they come from do not matter.
OF_THE_DECISION = ("method.", "cost.name", "cost.prices", SCALE, "decision")


@dataclass(frozen=True, eq=False)
class CurveGroup:
    names: tuple[str, ...]  # one for each of NAMED
    name: str
    cells: dict[float, FinishedCell]  # by cost.scale, in which alone they differ
    cascade: FinishedCell | None  # whose estimates a confidence cascade goes by
    repriced: dict[str, FinishedCell]  # by method: those whose estimates do for all prices


def scale_of(cell: FinishedCell) -> float | None:
    """What a cell's prices are multiplied by; None where there are no prices."""
    if SCALE in cell.settings:
        return float(cell.settings[SCALE])
    return 1.0 if any(any(run.prices) for run in cell.runs.values()) else None


def find_groups(cells: Sequence[FinishedCell]) -> list[CurveGroup]:
    """Every two cells or more that differ in cost.scale alone, and every one whose prices may change afterwards."""
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
    """The cells with the group's data, router and recipe; those that learned errors alone before those with prices in them."""
    wanted = of.settings_but(*OF_THE_DECISION)
    usable = [
        cell for cell in cells if cell.names[:3] == of.names[:3] and cell.settings_but(*OF_THE_DECISION) == wanted
    ]
    return sorted(usable, key=lambda cell: (scale_of(cell) or 0.0, cell.names[:4] != of.names[:4], cell.names))
