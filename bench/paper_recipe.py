"""Which part of the paper's recipe makes MILD worse than TDEF: from runs that change it to a CSV, from there to docs/verdicts.md.

python bench/paper_recipe.py collect RUNS_DIR    # adds the finished runs there to bench/results/paper_recipe.csv: those of
                                                 # `l2d train dataset=cifar100 setup=III recipe=paper recipe.precision=bf16-mixed`
                                                 # with a change of SIZES or PARTS
python bench/paper_recipe.py docs
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provenance import ROOT
from records import (
    Row,
    by_seed,
    cell_of,
    collect_or_docs,
    difference,
    finished,
    made,
    made_by,
    merged,
    put,
    read,
    scores_of,
    shown,
    title_of,
    usual,
    write,
)

CSV = ROOT / "bench" / "results" / "paper_recipe.csv"
PAGE = ROOT / "docs" / "verdicts.md"
CELL = ("dataset=cifar100", "setup=III", "recipe=paper", "recipe.precision=bf16-mixed")
PARTS = {
    "as it is": "",
    "no weight decay": "recipe.optimizer.weight_decay=0",
    "cosine schedule": "recipe.schedule=cosine",
}
SIZES = {
    ("tdef", "1"): "",
    ("tdef", "5.2"): "method.rho=5.2",
    ("mild", "1"): "method.rho=1",
    ("mild", "by the theory, 5.2"): "",
}
KEYS = ("dataset", "setup", "method", "rho", "part", "seed")
LAST = 20  # epochs
FIELDS = (*KEYS, "validation", "test", "best_validation", "swing", "n", "machine", "torch", "commit")


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for folder, config, metrics, timing in finished(runs_dir):
        for (method, rho), part in asked(config):
            cell = {name: cell_of(config)[name] for name in ("dataset", "setup")}
            names = {"method": method, "rho": rho, "part": part, "seed": folder.name.removeprefix("seed=")}
            scores = {name: scores_of(metrics)[name] for name in ("validation", "test")} | by_epoch(folder)
            rows.append({**cell, **names, **scores, "n": str(metrics.rows.test), **made_by(timing)})
    return rows


def by_epoch(folder: Path) -> Row:
    """The least validation loss of all epochs, and the standard deviation of the last ones'."""
    losses = [float(row["val/deferral_loss"]) for row in read(folder / "history.csv")]
    return {"best_validation": f"{min(losses):.6f}", "swing": f"{statistics.stdev(losses[-LAST:]):.6f}"}


def asked(config: Mapping[str, Any]) -> list[tuple[tuple[str, str], str]]:
    """The size of ρ and the part that a run's config changes; empty if it changes something else, or nothing."""
    found = []
    for (method, rho), size in SIZES.items():
        for part, change in PARTS.items():
            changes = [text for text in (size, change) if text]
            if changes and usual(config, (*CELL, f"method={method}", *changes)):
                found.append(((method, rho), part))
    return found


def unchanged() -> list[Row]:
    """The runs of the paper's experiments with the paper's recipe."""
    names = {"tdef": "1", "mild": "by the theory, 5.2"}
    cell = {"dataset": "cifar100", "setup": "III", "experts": "synthetic", "cost": "error", "recipe": "paper"}
    cell |= {"precision": "bf16-mixed"}
    return [
        row | {"rho": names[row["method"]], "part": "as it is"}
        for row in read(CSV.with_name("paper_runs.csv"))
        if row["method"] in names and all(row[name] == value for name, value in cell.items())
    ]


def table(rows: Sequence[Row]) -> str:
    head = ("dataset", "setup", "method", "ρ", *PARTS, *(f"{part} − as it is, 95 %" for part in list(PARTS)[1:]))
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for method, rho in SIZES:
        parts = [
            by_seed([row for row in rows if (row["method"], row["rho"], row["part"]) == (method, rho, part)], "test")
            for part in PARTS
        ]
        losses = [shown(list(found.values())) if found else "" for found in parts]
        gains = [difference(found, parts[0]) for found in parts[1:]]
        lines.append(f"| {' | '.join([title_of('cifar100'), 'III', method, rho, *losses, *gains])} |")
    return "\n".join(
        [*lines, "", f"`python bench/paper_recipe.py docs`; seeds in brackets where fewer than 3; {made(rows)}."]
    )


def main() -> None:
    options = collect_or_docs(__doc__)
    if options.command == "collect":
        write(CSV, FIELDS, KEYS, merged(read(CSV), collected(options.runs_dir), KEYS, ("test",)))
    else:
        put(PAGE, "paper_recipe", table([*unchanged(), *read(CSV)]))


if __name__ == "__main__":
    main()
