"""The size of ρ by reward mass: from finished runs of method=mild in setup III to a CSV, from there to docs/why_mild.md.

python bench/rho_size.py collect RUNS_DIR    # adds the finished runs there to bench/results/rho_size.csv
python bench/rho_size.py docs                # rewrites two tables of docs/why_mild.md
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from provenance import ROOT
from records import (
    Row,
    cell_of,
    collect_or_docs,
    finished,
    made,
    made_by,
    merged,
    put,
    read,
    scores_of,
    title_of,
    usual,
    write,
)

CSV = ROOT / "bench" / "results" / "rho_size.csv"
PAGE = ROOT / "docs" / "why_mild.md"
KEYS = ("dataset", "experts", "total", "offset", "seed")
RESULTS = ("validation", "test")
FIELDS = (*KEYS, "rho", *RESULTS, "n", "machine", "torch", "commit")
# The mark of each kind of experts' table.
MARKS = {"synthetic": "mass", "trained": "mass-trained"}


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for _, config, metrics, timing in finished(runs_dir):
        cell, rho = cell_of(config), config["method"].get("rho")
        if config["method"]["name"] != "mild" or not isinstance(rho, dict) or cell["experts"] not in MARKS:
            continue
        size = [f"method.rho.{key}={rho[key]}" for key in ("total", "offset")]
        names = [f"{group}={cell[group]}" for group in ("dataset", "experts")]
        if not usual(config, [*names, "setup=III", "cost=error", *size]):
            continue
        kept = {
            "dataset": cell["dataset"],
            "experts": cell["experts"],
            "total": f"{float(rho['total']):g}",
            "offset": f"{float(rho['offset']):g}",
            "seed": str(config["seed"]),
            "rho": " ".join(f"{value:.4g}" for value in metrics.rho),
            **scores_of(metrics),
            "n": str(metrics.rows.test),
            **made_by(timing),
        }
        rows.append({name: kept[name] for name in FIELDS})
    return rows


def table(rows: Sequence[Row], experts: str) -> str:
    """Of the seeds that all sizes have: validation and test loss by size, the mean over datasets last."""
    by_size: dict[float, dict[tuple[str, str], Row]] = defaultdict(dict)
    for row in rows:
        if row["experts"] != experts:
            continue
        mean = statistics.fmean(map(float, row["rho"].split()))
        by_size[float(f"{mean:.2g}")][row["dataset"], row["seed"]] = row
    common = sorted(set.intersection(*({*members} for members in by_size.values())))
    datasets = sorted({dataset for dataset, _ in common})
    head = [*(f"{title_of(name)}: validation, test" for name in datasets), "mean: validation, test"]
    lines = [f"| mean ρ | total, offset | {' | '.join(head)} |", "|---" * (len(head) + 2) + "|"]
    for size, members in sorted(by_size.items()):
        losses = [
            [statistics.fmean(float(members[key][part]) for key in common if key[0] == name) for part in RESULTS]
            for name in datasets
        ]
        losses.append([statistics.fmean(column) for column in zip(*losses, strict=True)])
        one = members[common[0]]
        shown = " | ".join(f"{validation:.4f}, {test:.4f}" for validation, test in losses)
        lines.append(f"| {size:g} | {one['total']}, {one['offset']} | {shown} |")
    seeds = sorted({seed for _, seed in common})
    used = [members[key] for members in by_size.values() for key in common]
    text = "\n".join(lines)
    return f"{text}\n\nSeed {', '.join(seeds)}; {len(used)} runs; {made(used)}."


def main() -> None:
    options = collect_or_docs(__doc__)
    if options.command == "collect":
        write(CSV, FIELDS, KEYS, merged(read(CSV), collected(options.runs_dir), KEYS, RESULTS))
    else:
        rows = read(CSV)
        for experts, mark in MARKS.items():
            put(PAGE, mark, table(rows, experts))


if __name__ == "__main__":
    main()
