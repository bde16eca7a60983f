"""Where MILD's gain comes from: from finished runs to a CSV, from there to tables and figures in docs/why_mild.md.

python bench/why_mild.py collect RUNS_DIR    # adds the finished runs of tdef and mild there to bench/results/why_mild.csv, with
                                             # the current commit: collect before you change the code
python bench/why_mild.py docs                # rewrites docs/why_mild.md's tables and docs/figures/why_mild_*.png
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from l2d.core.results import RunMetrics
from provenance import ROOT
from records import (
    Row,
    by_seed,
    cell_of,
    difference,
    finished,
    foot,
    made_by,
    oracle_of,
    put,
    read,
    shown,
    title_of,
    usual,
    write,
)

CSV = ROOT / "bench" / "results" / "why_mild.csv"
PAGE = ROOT / "docs" / "why_mild.md"
KEYS = [
    "dataset",
    "setup",
    "experts",
    "cross_fit",
    "cost",
    "recipe_epochs",
    "rewards",
    "shares",
    "total",
    "offset",
    "seed",
]
FIELDS = [
    *KEYS,
    "rho",
    "validation",
    "validation_posterior",
    "argmax",
    "posterior",
    "ratios",
    "posterior_ratios",
    "oracle",
]
FIELDS += ["n", "machine", "torch", "commit"]
CELL = ("dataset", "setup", "experts", "cross_fit", "cost")
LINES = [("complement", "uniform"), ("complement", "cheapest"), ("sum_others", "uniform"), ("sum_others", "cheapest")]
# Each step changes one thing: (name, rewards, shares, total, offset)
STEPS = [
    ("TDEF: complement rewards, ρ = 1", "complement", "uniform", None, 1.0),
    ("+ temperature: ρ = 5 + 1/p", "complement", "uniform", 1.0, 5.0),
    ("+ rewards: mild_uniform", "sum_others", "uniform", 1.0, 5.0),
    ("+ imbalance: mild_cheapest", "sum_others", "cheapest", 1.0, 5.0),
]


def collect(runs_dir: Path) -> list[Row]:
    """One row per finished run of a comp-sum method with τ = 1, whose ρ is one number or follows a rule."""
    rows = []
    for folder, config, metrics, timing in finished(runs_dir):
        if not plain(config):
            continue
        method, rho = config["method"], config["method"]["rho"]
        with np.load(folder / "test.npz") as saved:
            costs, posterior = torch.from_numpy(saved["costs"]), torch.from_numpy(saved["posterior"])
            scores = torch.from_numpy(saved["scores"])
        by_posterior = argmax_last(posterior)
        number = not isinstance(rho, dict)
        rows.append(
            {
                **cell_of(config),
                "recipe_epochs": str(config["recipe"]["epochs"]),
                "rewards": method["rewards"],
                "shares": "uniform" if number or rho["rule"] == "uniform" else rho["counts"],
                "total": "" if number else f"{float(rho['total']):g}",
                "offset": f"{float(rho if number else rho['offset']):g}",
                "seed": str(config["seed"]),
                "rho": " ".join(f"{value:.4g}" for value in metrics.rho),
                **validated(metrics),
                "argmax": f"{float(paid(costs.double(), argmax_last(scores)).mean()):.6f}",
                "posterior": f"{float(paid(costs.double(), by_posterior).mean()):.6f}",
                "ratios": spaced(torch.bincount(argmax_last(scores), minlength=costs.shape[1]) / len(costs)),
                "posterior_ratios": spaced(torch.bincount(by_posterior, minlength=costs.shape[1]) / len(costs)),
                "oracle": spaced(torch.tensor(oracle_of(metrics).ratios)),
                "n": str(len(costs)),
                **made_by(timing),
            }
        )
    return rows


def plain(config: Mapping[str, Any]) -> bool:
    """Whether a run differs from others only in KEYS: TDEF or MILD, ρ by a number or a rule, everything else as usual."""
    method = config["method"]
    comp_sum = method.keys() >= {"rewards", "tau", "rho"}
    if not comp_sum or method["tau"] != 1.0 or isinstance(method["rho"], list):
        return False
    rule = method["rho"] if isinstance(method["rho"], dict) else {"values": None, "groups": None, "counts": "cheapest"}
    if (rule["values"], rule["groups"], rule["counts"]) != (None, None, "cheapest"):
        return False
    said = [f"{group}={config[group]['name']}" for group in ("dataset", "setup", "experts", "cost")]
    fit = config["experts"].get("cross_fit")
    return usual(config, [*said, *([] if fit is None else [f"experts.cross_fit={fit}"])], free=["method"])


def same_result(one: Row, other: Row) -> bool:
    return all(one[key] == other[key] for key in ("rho", "argmax", "posterior", "machine"))


def validated(metrics: RunMetrics) -> Row:
    """Validation deferral loss by each decision."""
    assert metrics.by_decision is not None
    losses = {"validation": metrics.by_decision["argmax"], "validation_posterior": metrics.by_decision["posterior"]}
    return {name: f"{found.validation:.6f}" for name, found in losses.items()}


def spaced(values: torch.Tensor) -> str:
    return " ".join(f"{float(value):.4f}" for value in values)


def size(row: Row) -> float:
    """Mean ρ to three digits: the fourth depends on the rounding of the shares."""
    return float(f"{statistics.fmean(map(float, row['rho'].split())):.3g}")


def title(cell: tuple[str, ...]) -> str:
    dataset, setup, experts, cross_fit, cost = cell
    fit = f", cross-fit {cross_fit}" if cross_fit not in ("", "1") else ""
    kind = "synthetic (simulated)" if experts == "synthetic" else experts
    return f"{title_of(dataset)} {setup}, {kind} experts{fit}, {cost.replace('_', ' ')}"


def cells(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: [row[key] for key in KEYS]):
        found[tuple(row[key] for key in CELL)].append(row)
    return found


def step_rows(rows: Sequence[Row], step: tuple[str, str, str, float | None, float]) -> list[Row]:
    _, rewards, shares, total, offset = step

    def right(row: Row) -> bool:
        same = row["rewards"] == rewards and row["shares"] == shares
        return same and row["total"] == ("" if total is None else f"{total:g}") and float(row["offset"]) == offset

    return [row for row in rows if right(row)]


def steps_table(rows: Sequence[Row]) -> str:
    """From TDEF to MILD, one change at a time; each step's paired difference from the one before."""
    lines = [
        "| cell | step | DL, argmax | less the step before, paired, 95 % | DL, posterior | to each expert, % | oracle, % |",
        "|---" * 7 + "|",
    ]
    for cell, members in stepped(rows).items():
        before: dict[int, float] = {}
        for number, step in enumerate(STEPS):
            there = step_rows(members, step)
            ours = by_seed(there, "argmax")
            ratios = percent(there, "ratios")
            row = [title(cell) if not number else "", step[0], shown(list(ours.values())), difference(ours, before)]
            row += [shown(list(by_seed(there, "posterior").values())), ratios, percent(there, "oracle")]
            lines.append(f"| {' | '.join(row)} |")
            before = ours
    return "\n".join(lines)


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
        there = [by_seed(step_rows(members, step), "validation") for step in STEPS]
        if all(len(values) >= 3 for values in there):
            common[cell] = [statistics.fmean(values.values()) for values in there]
    means = [statistics.fmean(values) for values in zip(*common.values(), strict=True)]
    lines = [f"| setting | {' | '.join(map(title, common))} | mean |", "|---" * (2 + len(common)) + "|"]
    for number, (step, mean) in enumerate(zip(STEPS, means, strict=True)):
        figures = [f"{values[number]:.4f}" for values in common.values()]
        lines.append(
            f"| {step[0]} | {' | '.join(figures)} | {f'**{mean:.4f}**' if mean == min(means) else f'{mean:.4f}'} |"
        )
    return "\n".join(lines)


def percent(rows: Sequence[Row], column: str) -> str:
    found = [list(map(float, row[column].split())) for row in rows]
    return " / ".join(f"{100 * statistics.fmean(column):.1f}" for column in zip(*found, strict=True))


def curves(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """By cell, the runs whose ρ has offset 0 or is the same for all experts: there only the size of ρ varies."""
    found = {cell: [row for row in members if sized(row)] for cell, members in cells(rows).items()}
    return {cell: members for cell, members in found.items() if any(row["shares"] == "cheapest" for row in members)}


def sized(row: Row) -> bool:
    return row["shares"] == "uniform" or float(row["offset"]) == 0


def curve_table(rows: Sequence[Row]) -> str:
    head = [f"{rewards}, {shares}" for rewards, shares in LINES]
    lines = [f"| cell | mean ρ | {' | '.join(head)} |", "|---" * (2 + len(LINES)) + "|"]
    for cell, members in curves(rows).items():
        for number, there in enumerate(sorted({size(row) for row in members})):
            row = [title(cell) if not number else "", f"{there:g}"]
            for rewards, shares in LINES:
                here = [r for r in members if (r["rewards"], r["shares"]) == (rewards, shares) and size(r) == there]
                both = [shown(list(by_seed(here, column).values())) for column in ("argmax", "posterior")]
                row.append("missing" if not here else both[0] if shares == "uniform" else " → ".join(both))
            lines.append(f"| {' | '.join(row)} |")
    return (
        "\n".join(lines)
        + "\n\nWith shares by cheapest, the cells show argmax → posterior. With uniform shares the two decisions are the same."
    )


def figure(members: Sequence[Row], name: str) -> Figure:
    picture = Figure(figsize=(7, 4.5), layout="constrained")
    axes = picture.subplots()
    for (rewards, shares), colour in zip(LINES, ("tab:orange", "tab:red", "tab:blue", "tab:purple"), strict=True):
        here = [row for row in members if (row["rewards"], row["shares"]) == (rewards, shares)]
        for column, style in (("argmax", "-"), ("posterior", ":")):
            if not here or (column == "posterior" and shares == "uniform"):
                continue
            points: dict[float, list[float]] = defaultdict(list)
            for row in here:
                points[size(row)].append(float(row[column]))
            xs = sorted(points)
            axes.errorbar(
                xs,
                [statistics.fmean(points[x]) for x in xs],
                yerr=[statistics.stdev(points[x]) if len(points[x]) > 1 else 0 for x in xs],
                fmt=f"o{style}",
                color=colour,
                capsize=3,
                label=f"{rewards}, {shares} shares{', posterior' if column == 'posterior' else ''}",
            )
    axes.set(xscale="log", yscale="log", xlabel="mean ρ", ylabel="test deferral loss", title=name)
    axes.legend()
    return picture


def write_docs(rows: Sequence[Row]) -> None:
    pictures = []
    for cell, members in curves(rows).items():
        file = PAGE.parent / "figures" / f"why_mild_{'_'.join(part for part in cell if part)}.png"
        file.parent.mkdir(exist_ok=True)
        figure(members, title(cell)).savefig(file, dpi=110)
        pictures.append(f"![{title(cell)}](figures/{file.name})")
    used = [row for members in curves(rows).values() for row in members]
    compared = [row for members in stepped(rows).values() for row in members]
    blocks = {
        "steps": f"{steps_table(rows)}\n\n{foot(compared)}",
        "choice": f"{choice_table(rows)}\n\nValidation deferral loss, mean of three seeds. The runs are those of the table below.",
        "curves": "\n\n".join([*pictures, curve_table(rows), foot(used)]) if used else "missing",
    }
    for mark, new in blocks.items():
        put(PAGE, mark, new)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "docs"])
    parser.add_argument("runs_dir", type=Path, nargs="?", default=Path("runs"))
    arguments = parser.parse_args()
    old = read(CSV)
    if arguments.what == "collect":
        new = collect(arguments.runs_dir)
        known = {tuple(row[key] for key in KEYS): row for row in old}
        for row in new:
            key = tuple(row[name] for name in KEYS)
            if key not in known or not same_result(row, known[key]):  # the commit is that of the code that ran it
                known[key] = row
        write(CSV, FIELDS, KEYS, known.values())
        print(f"{len(new)} runs, {len(known)} in all")
    else:
        write_docs(old)


if __name__ == "__main__":
    main()
