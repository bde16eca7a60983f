"""The size of ρ by reward mass: from finished runs of method=mild in setup III to a CSV, from there to docs/why_mild.md.

python bench/rho_size.py RUNS_DIR    # adds the finished runs there to bench/results/rho_size.csv
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import records
from records import RAN, Results, Row

FIGURES = ("validation", "test")
KEYS = "dataset experts total offset seed"
SIZES = Results("rho_size", KEYS, f"rho validation test {RAN}", compared="validation test")
# The mark of each kind of experts' table.
MARKS = {"synthetic": "mass", "trained": "mass-trained"}


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for _, config, metrics, timing in records.finished(runs_dir):
        cell, rho = records.cell_of(config), config["method"].get("rho")
        if config["method"]["name"] != "mild" or not isinstance(rho, dict) or cell["experts"] not in MARKS:
            continue
        size = [f"method.rho.{key}={rho[key]}" for key in ("total", "offset")]
        names = [f"{group}={cell[group]}" for group in ("dataset", "experts")]
        if not records.usual(config, [*names, "setup=III", "cost=error", *size]):
            continue
        numbers = {name: f"{float(rho[name]):g}" for name in ("total", "offset")}
        rows.append(records.row_of(config, metrics, timing) | numbers)
    return rows


def table(rows: Sequence[Row], experts: str) -> str:
    """Validation and test loss by size, over the seeds that all sizes have; the mean over datasets last."""
    by_size: dict[float, dict[tuple[str, str], Row]] = defaultdict(dict)
    for row in (row for row in rows if row["experts"] == experts):
        mean = statistics.fmean(map(float, row["rho"].split()))
        by_size[float(f"{mean:.2g}")][row["dataset"], row["seed"]] = row
    common = sorted(set.intersection(*({*members} for members in by_size.values())))
    datasets = sorted({dataset for dataset, _ in common})
    lines = []
    for size, members in sorted(by_size.items()):
        by_set = ([members[key] for key in common if key[0] == name] for name in datasets)
        losses = [[records.mean_of(some, part) for part in FIGURES] for some in by_set]
        losses.append([statistics.fmean(column) for column in zip(*losses, strict=True)])
        one = members[common[0]]
        figures = [f"{validation:.4f}, {test:.4f}" for validation, test in losses]
        lines.append([f"{size:g}", f"{one['total']}, {one['offset']}", *figures])
    used = [members[key] for members in by_size.values() for key in common]
    head = ("mean ρ", "total, offset", *(records.title_of(name) for name in datasets), "mean")
    seeds = ", ".join(sorted({seed for _, seed in common}))
    return f"{records.markdown(head, lines)}\n\nSeed {seeds}; {len(used)} runs; {records.made(used)}."


if __name__ == "__main__":
    SIZES.add(collected(records.runs_dir(__doc__)))
