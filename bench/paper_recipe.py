"""The part of the paper's recipe that makes MILD worse than TDEF: from runs that change it, to a CSV and docs/verdicts.md.

python bench/paper_recipe.py RUNS_DIR    # adds the finished runs there to bench/results/paper_recipe.csv: those of
                                                 # `l2d train dataset=cifar100 setup=III recipe=paper recipe.precision=bf16-mixed`
                                                 # with a change of SIZES or PARTS
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import records
from records import RAN, Results, Row

CELL = ("dataset=cifar100", "setup=III", "recipe=paper", "recipe.precision=bf16-mixed")
PARTS = {
    "as it is": "",
    "no weight decay": "recipe.optimizer.weight_decay=0",
    "cosine schedule": "recipe.schedule=cosine",
}
THEORY = ("mild", "by the theory, 5.2")
SIZES = {("tdef", "1"): "", ("tdef", "5.2"): "method.rho=5.2", ("mild", "1"): "method.rho=1", THEORY: ""}
LAST = 20  # epochs
FIGURES = f"validation test best_validation swing {RAN}"
CHANGED = Results("paper_recipe", "dataset setup method rho part seed", FIGURES, compared="test")


def collected(runs_dir: Path) -> list[Row]:
    return [
        records.row_of(config, metrics, timing) | by_epoch(folder) | {"method": method, "rho": rho, "part": part}
        for folder, config, metrics, timing in records.finished(runs_dir)
        for (method, rho), part in asked(config)
    ]


def by_epoch(folder: Path) -> Row:
    """The least validation loss of all epochs, and the standard deviation of the last ones'."""
    losses = [float(row["val/deferral_loss"]) for row in records.read(folder / "history.csv")]
    return {"best_validation": f"{min(losses):.6f}", "swing": f"{statistics.stdev(losses[-LAST:]):.6f}"}


def asked(config: Mapping[str, Any]) -> list[tuple[tuple[str, str], str]]:
    """The size of ρ and the part that a run's config changes; empty if it changes something else, or nothing."""
    found = []
    for (method, rho), size in SIZES.items():
        for part, change in PARTS.items():
            changes = [text for text in (size, change) if text]
            if changes and records.usual(config, (*CELL, f"method={method}", *changes)):
                found.append(((method, rho), part))
    return found


def unchanged() -> list[Row]:
    """The runs of the paper's experiments with the paper's recipe."""
    cell = {"dataset": "cifar100", "setup": "III", "experts": "synthetic", "cost": "error"}
    cell |= {"recipe": "paper", "precision": "bf16-mixed"}
    return [
        row | {"rho": rho, "part": "as it is"}
        for method, rho in (("tdef", "1"), THEORY)
        for row in records.paper_runs(method=method, **cell)
    ]


def table(rows: Sequence[Row]) -> str:
    lines = []
    for method, rho in SIZES:
        found = [row for row in rows if (row["method"], row["rho"]) == (method, rho)]
        parts = [records.by_seed([row for row in found if row["part"] == part], "test") for part in PARTS]
        losses = [records.shown(list(one.values())) if one else "" for one in parts]
        lines.append([method, rho, *losses, records.difference(parts[1], parts[0])])
    head = ("CIFAR-100 III", "ρ", *PARTS, "no weight decay − as it is, 95 %")
    made = f"`bench/paper_recipe.py`; seeds in brackets where fewer than 3; {records.made(rows)}."
    return f"{records.markdown(head, lines)}\n\n{made}"


if __name__ == "__main__":
    CHANGED.add(collected(records.runs_dir(__doc__)))
