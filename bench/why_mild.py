"""Where MILD's gain comes from: docs/why_mild.md, from paper_runs.csv, collapse.csv and rho_size.csv (`make evidence`).

python bench/why_mild.py RUNS_DIR    # adds the finished runs there, with the current commit, to collapse.csv (mild_cheapest without
                                     # an offset) and to rho_size.csv (mild in setup III): collect before you change the code
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import paper_runs
import records
from l2d.analysis.report.averages import mean_columns, paired_interval
from l2d.analysis.report.tables import interval_text
from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from records import RAN, Results, Row

# Each step changes one thing.
STEPS = {
    "tdef": "TDEF: complement rewards, ρ = 1",
    "tdef_uniform": "+ temperature: ρ = 5 + 1/p",
    "mild_uniform": "+ rewards: mild_uniform",
    "mild_cheapest": "+ imbalance: mild_cheapest",
}
UNEQUAL = ("method=mild_cheapest", "method.rho.offset=0", "method.rho.total=26")  # a mean ρ of 5.2
BOTH = f"rho validation argmax posterior ratios posterior_ratios oracle {RAN}"
BARE = Results("collapse", "dataset setup experts cost seed", BOTH, compared="rho argmax posterior machine")
SIZED = f"rho validation test {RAN}"
SIZES = Results("rho_size", "dataset experts total offset seed", SIZED, compared="validation test")


def collected(runs_dir: Path) -> tuple[list[Row], list[Row]]:
    """Rows of collapse.csv and of rho_size.csv."""
    bare, sizes = [], []
    for folder, config, metrics, timing in records.finished(runs_dir):
        row, cell, rho = records.row_of(config, metrics, timing), records.cell_of(config), config["method"].get("rho")
        named = [f"{key.replace('cross_fit', 'experts.cross_fit')}={value}" for key, value in cell.items() if value]
        if records.usual(config, [*named, *UNEQUAL]):
            oracle = records.spaced(records.oracle_of(metrics).ratios)
            bare.append(row | {"oracle": oracle} | by_both_decisions(folder / "test.npz"))
        if row["method"] == "mild" and isinstance(rho, dict) and cell["experts"] in ("synthetic", "trained"):
            size = {key: f"{float(rho[key]):g}" for key in ("total", "offset")}
            names = [f"{group}={cell[group]}" for group in ("dataset", "experts")]
            said = ["setup=III", "cost=error", *(f"method.rho.{key}={rho[key]}" for key in size)]
            if records.usual(config, [*names, *said]):
                sizes.append(row | size)
    return bare, sizes


def by_both_decisions(file: Path) -> Row:
    """The loss and the shares of argmax, and of the posterior decision."""
    row = {}
    with np.load(file) as saved:
        costs, *values = (torch.from_numpy(saved[name]) for name in ("costs", "scores", "posterior"))
    for decision, shares, value in zip(("argmax", "posterior"), ("ratios", "posterior_ratios"), values, strict=True):
        chosen = argmax_last(value)
        row[decision] = f"{float(paid(costs.double(), chosen).mean()):.6f}"
        row[shares] = records.spaced((torch.bincount(chosen, minlength=costs.shape[1]) / len(costs)).tolist())
    return row


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
    found = {STEPS[step]: [records.mean_of(tried[step], "validation") for tried in cells().values()] for step in STEPS}
    means = {name: statistics.fmean(losses) for name, losses in found.items()}
    lines = []
    for name, losses in found.items():
        mean = f"**{means[name]:.4f}**" if means[name] == min(means.values()) else f"{means[name]:.4f}"
        lines.append([name, *(f"{loss:.4f}" for loss in losses), mean])
    titles = [records.cell_title(*cell[:4]) for cell in cells()]
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


def sizes_table(experts: str) -> str:
    """Validation and test loss by the size of ρ, over the seeds that all sizes have; the mean over datasets last."""
    rows = [row for row in SIZES.read() if row["experts"] == experts]
    by_size = records.grouped(rows, lambda row: f"{statistics.fmean(map(float, row['rho'].split())):.2g}")
    each = [{(row["dataset"], row["seed"]): row for row in some} for some in by_size.values()]
    common = sorted(set.intersection(*map(set, each)))
    datasets, lines = sorted({dataset for dataset, _ in common}), []
    for size, members in sorted(zip(by_size, each, strict=True), key=lambda pair: float(pair[0])):
        by_set = ([members[key] for key in common if key[0] == name] for name in datasets)
        losses = [[records.mean_of(some, part) for part in ("validation", "test")] for some in by_set]
        one, losses = members[common[0]], [*losses, mean_columns(losses)]
        figures = [f"{validation:.4f}, {test:.4f}" for validation, test in losses]
        lines.append([f"{float(size):g}", f"{one['total']}, {one['offset']}", *figures])
    used = [members[key] for members in each for key in common]
    head = ("mean ρ", "total, offset", *(records.title_of(name) for name in datasets), "mean")
    seeds = ", ".join(sorted({seed for _, seed in common}))
    return f"{records.markdown(head, lines)}\n\nSeed {seeds}; {len(used)} runs; {records.made(used)}."


if __name__ == "__main__":
    bare, sizes = collected(records.given_paths(__doc__, "runs_dir").runs_dir)
    BARE.add(bare)
    SIZES.add(sizes)
