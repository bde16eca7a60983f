"""Where MILD's gain comes from: from finished runs to a CSV, from there to the tables of docs/why_mild.md.

python bench/why_mild.py RUNS_DIR    # adds the finished runs of tdef and mild there to bench/results/why_mild.csv, with
                                     # the current commit: collect before you change the code
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import records
from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from records import Results, Row

RUNS = Results(
    "why_mild",
    "dataset setup experts cross_fit cost recipe_epochs rewards shares total offset seed",
    "rho validation validation_posterior argmax posterior ratios posterior_ratios oracle n machine torch commit",
    compared="rho argmax posterior machine",
)
CELL = ("dataset", "setup", "experts", "cross_fit", "cost")
LINES = [("complement", "uniform"), ("complement", "cheapest"), ("sum_others", "uniform"), ("sum_others", "cheapest")]
# Each step changes one thing: (name, rewards, shares, total, offset)
STEPS = [
    ("TDEF: complement rewards, ρ = 1", "complement", "uniform", None, 1.0),
    ("+ temperature: ρ = 5 + 1/p", "complement", "uniform", 1.0, 5.0),
    ("+ rewards: mild_uniform", "sum_others", "uniform", 1.0, 5.0),
    ("+ imbalance: mild_cheapest", "sum_others", "cheapest", 1.0, 5.0),
]


def collected(runs_dir: Path) -> list[Row]:
    """One row per finished run of a comp-sum method with τ = 1, whose ρ is one number or follows a rule."""
    rows = []
    for folder, config, metrics, timing in records.finished(runs_dir):
        if not plain(config):
            continue
        rho, found = config["method"]["rho"], metrics.by_decision
        assert found is not None
        number = not isinstance(rho, dict)
        row = records.row_of(config, metrics, timing) | {
            "recipe_epochs": str(config["recipe"]["epochs"]),
            "rewards": config["method"]["rewards"],
            "shares": "uniform" if number or rho["rule"] == "uniform" else rho["counts"],
            "total": "" if number else f"{float(rho['total']):g}",
            "offset": f"{float(rho if number else rho['offset']):g}",
            "validation": f"{found['argmax'].validation:.6f}",
            "validation_posterior": f"{found['posterior'].validation:.6f}",
            "oracle": records.spaced(records.oracle_of(metrics).ratios),
        }
        with np.load(folder / "test.npz") as saved:
            costs, *values = (torch.from_numpy(saved[name]) for name in ("costs", "scores", "posterior"))
        decisions = {"argmax": "ratios", "posterior": "posterior_ratios"}
        for (decision, shares), value in zip(decisions.items(), values, strict=True):
            chosen = argmax_last(value)
            row[decision] = f"{float(paid(costs.double(), chosen).mean()):.6f}"
            row[shares] = records.spaced((torch.bincount(chosen, minlength=costs.shape[1]) / len(costs)).tolist())
        rows.append(row)
    return rows


def plain(config: Mapping[str, Any]) -> bool:
    """True if a run differs from others only in the keys: TDEF or MILD, ρ by a number or a rule, everything else as usual."""
    method = config["method"]
    comp_sum = method.keys() >= {"rewards", "tau", "rho"}
    if not comp_sum or method["tau"] != 1.0 or isinstance(method["rho"], list):
        return False
    rule = method["rho"] if isinstance(method["rho"], dict) else {"values": None, "groups": None, "counts": "cheapest"}
    if (rule["values"], rule["groups"], rule["counts"]) != (None, None, "cheapest"):
        return False
    return records.usual(config, records.named_cell(config), free=["method"])


def size(row: Row) -> float:
    """Mean ρ to three digits: the fourth depends on the rounding of the shares."""
    return float(f"{statistics.fmean(map(float, row['rho'].split())):.3g}")


def title(cell: tuple[str, ...]) -> str:
    return records.cell_title(*cell[:4])


def cells(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    in_order = sorted(rows, key=lambda row: [row[key] for key in RUNS.keys.split()])
    return records.grouped(in_order, lambda row: tuple(row[key] for key in CELL))


def step_rows(rows: Sequence[Row], step: tuple[str, str, str, float | None, float]) -> list[Row]:
    _, rewards, shares, total, offset = step

    def right(row: Row) -> bool:
        same = row["rewards"] == rewards and row["shares"] == shares
        return same and row["total"] == ("" if total is None else f"{total:g}") and float(row["offset"]) == offset

    return [row for row in rows if right(row)]


def steps_table(rows: Sequence[Row]) -> str:
    """From TDEF to MILD, one change at a time: each step's loss, and its paired difference to the step before."""
    lines = []
    for cell, members in stepped(rows).items():
        lines.append([title(cell)])
        before: dict[int, float] = {}
        for step in STEPS:
            ours = records.by_seed(step_rows(members, step), "argmax")
            apart, loss = records.difference(ours, before), records.shown(list(ours.values()))
            lines[-1].append(f"{loss}; {apart}" if apart else loss)
            before = ours
    return records.markdown(["cell", *(name for name, *_ in STEPS)], lines)


def stepped(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """The runs of each cell that are one of STEPS, where there are two steps to compare."""
    found = {}
    for cell, members in cells(rows).items():
        by_step = [step_rows(members, step) for step in STEPS]
        if sum(map(bool, by_step)) >= 2:
            found[cell] = [row for step in by_step for row in step]
    return found


def choice_table(rows: Sequence[Row]) -> str:
    """Validation deferral loss of the steps, in the cells where all were run. The default is chosen by their mean."""
    common = {}
    for cell, members in cells(rows).items():
        there = [records.by_seed(step_rows(members, step), "validation") for step in STEPS]
        if all(len(values) >= 3 for values in there):
            common[cell] = [statistics.fmean(values.values()) for values in there]
    means = [statistics.fmean(values) for values in zip(*common.values(), strict=True)]
    lines = []
    for number, (step, mean) in enumerate(zip(STEPS, means, strict=True)):
        figures = [f"{values[number]:.4f}" for values in common.values()]
        lines.append([step[0], *figures, f"**{mean:.4f}**" if mean == min(means) else f"{mean:.4f}"])
    return records.markdown(["validation deferral loss", *map(title, common), "mean"], lines)


def curves(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """By cell, the runs whose ρ has offset 0 or is the same for all experts: there only the size of ρ varies."""
    sized = [row for row in rows if row["shares"] == "uniform" or float(row["offset"]) == 0]
    found = cells(sized)
    return {cell: members for cell, members in found.items() if any(row["shares"] == "cheapest" for row in members)}


def curve_table(rows: Sequence[Row]) -> str:
    lines = []
    for cell, members in curves(rows).items():
        for there in sorted({size(row) for row in members}):
            lines.append([title(cell), f"{there:g}"])
            for rewards, shares in LINES:
                here = [r for r in members if (r["rewards"], r["shares"]) == (rewards, shares) and size(r) == there]
                both = [records.shown([*records.by_seed(here, way).values()]) for way in ("argmax", "posterior")]
                lines[-1].append(both[0] if shares == "uniform" else " → ".join(both))
    return records.markdown(["cell", "mean ρ", *(f"{rewards}, {shares}" for rewards, shares in LINES)], lines)


def steps(rows: Sequence[Row]) -> str:
    return f"{steps_table(rows)}\n\n{records.foot([row for some in stepped(rows).values() for row in some])}"


def by_size(rows: Sequence[Row]) -> str:
    return f"{curve_table(rows)}\n\n{records.foot([row for some in curves(rows).values() for row in some])}"


if __name__ == "__main__":
    RUNS.add(collected(records.runs_dir(__doc__)))
