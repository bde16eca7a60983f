"""Where MILD's gain comes from: docs/why_mild.md, from bench/results/paper_runs.csv and collapse.csv (`make evidence`).

python bench/why_mild.py RUNS_DIR    # adds the finished runs there of mild_cheapest without an offset to collapse.csv, with the
                                     # current commit: collect before you change the code
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import paper_runs
import records
from l2d.analysis.report.averages import paired_interval
from l2d.analysis.report.tables import interval_text
from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from records import Results, Row

# Each step changes one thing.
STEPS = {
    "tdef": "TDEF: complement rewards, ρ = 1",
    "tdef_uniform": "+ temperature: ρ = 5 + 1/p",
    "mild_uniform": "+ rewards: mild_uniform",
    "mild_cheapest": "+ imbalance: mild_cheapest",
}
UNEQUAL = ("method=mild_cheapest", "method.rho.offset=0", "method.rho.total=26")  # a mean ρ of 5.2
BARE = Results(
    "collapse",
    "dataset setup experts cost seed",
    "rho validation argmax posterior ratios posterior_ratios oracle n machine torch commit",
    compared="rho argmax posterior machine",
)


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for folder, config, metrics, timing in records.finished(runs_dir):
        named = (
            (key.replace("cross_fit", "experts.cross_fit"), value) for key, value in records.cell_of(config).items()
        )
        if not records.usual(config, [*(f"{key}={value}" for key, value in named if value), *UNEQUAL]):
            continue
        row = records.row_of(config, metrics, timing) | {"oracle": records.spaced(records.oracle_of(metrics).ratios)}
        with np.load(folder / "test.npz") as saved:
            costs, *values = (torch.from_numpy(saved[name]) for name in ("costs", "scores", "posterior"))
        decisions = {"argmax": "ratios", "posterior": "posterior_ratios"}
        for (decision, shares), value in zip(decisions.items(), values, strict=True):
            chosen = argmax_last(value)
            row[decision] = f"{float(paid(costs.double(), chosen).mean()):.6f}"
            row[shares] = records.spaced((torch.bincount(chosen, minlength=costs.shape[1]) / len(costs)).tolist())
        rows.append(row)
    return rows


def cells() -> dict[tuple[str, ...], dict[str, list[Row]]]:
    """Setup III with errors only and today's recipe=fast, where all steps were run: the runs of each step."""
    wanted = {"setup": "III", "cost": "error", "recipe": "fast"}
    rows = [row for row in paper_runs.stored()[0] if wanted.items() <= row.items() and row["cross_fit"] != "1"]
    found = {}
    for cell, members in records.grouped(rows, lambda row: tuple(row[key] for key in paper_runs.CELL)).items():
        by_method = records.grouped(members, lambda row: row["method"])
        if by_method.keys() >= STEPS.keys():
            found[cell] = {method: by_method[method] for method in STEPS}
    return dict(sorted(found.items(), key=lambda pair: (pair[0][2], pair[0][0])))


def steps() -> str:
    """Each step's loss, and its paired difference to the step before."""
    arrays, lines, used = paper_runs.stored()[1], [], list[Row]()
    for cell, tried in cells().items():
        lines.append([records.cell_title(*cell[:4])])
        before = None
        for rows in tried.values():
            losses = paper_runs.losses(rows, arrays)
            apart = "" if before is None else f"; {interval_text(paired_interval(losses, before))}"
            lines[-1].append(records.shown([*records.by_seed(rows, "test").values()]) + apart)
            before, used = losses, used + rows
    return f"{records.markdown(['cell', *STEPS.values()], lines)}\n\n`bench/why_mild.py`; {records.foot(used)}"


def choice() -> str:
    """Validation deferral loss of the steps. The default is chosen by their mean."""
    found = {
        cell: [statistics.fmean(records.by_seed(rows, "validation").values()) for rows in tried.values()]
        for cell, tried in cells().items()
    }
    means = [statistics.fmean(values) for values in zip(*found.values(), strict=True)]
    lines = []
    for number, (name, mean) in enumerate(zip(STEPS.values(), means, strict=True)):
        figures = [f"{values[number]:.4f}" for values in found.values()]
        lines.append([name, *figures, f"**{mean:.4f}**" if mean == min(means) else f"{mean:.4f}"])
    titles = [records.cell_title(*cell[:4]) for cell in found]
    return records.markdown(["validation deferral loss", *titles, "mean"], lines)


def collapse(rows: Sequence[Row]) -> str:
    """Unequal ρ without an offset, by both decisions, beside the offset and beside equal ρ."""
    others, lines = cells(), []
    for dataset, members in records.grouped(rows, lambda row: row["dataset"]).items():
        tried = others[dataset, "III", "synthetic", "", "error"]
        both = [records.shown([*records.by_seed(members, way).values()]) for way in ("argmax", "posterior")]
        others_rows = (tried[name] for name in ("mild_cheapest", "mild_uniform"))
        beside = [records.shown([*records.by_seed(some, "test").values()]) for some in others_rows]
        share = statistics.fmean(max(map(float, row["ratios"].split())) for row in members)
        lines.append([records.title_of(dataset), *both, f"{share:.1%}", *beside])
    head = ["setup III, synthetic", "no offset, argmax", "no offset, posterior", "largest share, argmax"]
    head += ["offset 5 (mild_cheapest), argmax", "equal ρ (mild_uniform)"]
    return f"{records.markdown(head, lines)}\n\n{records.foot(rows)}"


if __name__ == "__main__":
    BARE.add(collected(records.runs_dir(__doc__)))
