"""The paper's recipe with other sizes of ρ, and with a part of it changed: from runs to a CSV and docs/verdicts.md.

python bench/paper_recipe.py RUNS_DIR    # adds the finished runs there to bench/results/paper_recipe.csv: those of
                                                 # `l2d train dataset=cifar100 setup=III recipe=paper recipe.precision=bf16-mixed`
                                                 # (or cifar10, svhn) with a change of SIZES or PARTS
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import records
from records import RAN, Results, Row

SETS = ("cifar10", "cifar100", "svhn")
CELL = ("setup=III", "recipe=paper", "recipe.precision=bf16-mixed")
COSINE, ADAMW = "recipe.schedule=cosine", "recipe.optimizer._target_=torch.optim.AdamW"
PARTS: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "cosine schedule": (COSINE,),
    "decoupled weight decay": (ADAMW,),
    "decoupled weight decay, cosine schedule": (ADAMW, COSINE),
    "no weight decay": ("recipe.optimizer.weight_decay=0",),
    "guesses redrawn in each step": ("method._target_=redrawn.Redrawn",),
}
THEORY = ("mild", "by the theory, 5.2")
SIZES = {("tdef", "0.2"): "method.rho=0.2", ("tdef", "1"): "", ("tdef", "5.2"): "method.rho=5.2"}
SIZES |= {("mild", "0.2"): "method.rho=0.2", ("mild", "1"): "method.rho=1", THEORY: ""}
LAST = 20  # epochs
FIGURES = f"validation test best_validation swing history {RAN}"
CHANGED = Results("paper_recipe", "dataset setup method rho part seed", FIGURES, compared="test")


def collected(runs_dir: Path) -> list[Row]:
    return [
        records.row_of(config, metrics, timing) | by_epoch(folder) | {"method": method, "rho": rho, "part": part}
        for folder, config, metrics, timing in records.finished(runs_dir)
        for (method, rho), part in asked(config)
    ]


def by_epoch(folder: Path) -> Row:
    """Validation losses: the least of all epochs, the standard deviation of the last ones, and all."""
    losses = [float(row["val/deferral_loss"]) for row in records.read(folder / "history.csv")]
    found = {"best_validation": f"{min(losses):.6f}", "swing": f"{statistics.stdev(losses[-LAST:]):.6f}"}
    return found | {"history": " ".join(f"{one:.4f}" for one in losses)}


def asked(config: Mapping[str, Any]) -> list[tuple[tuple[str, str], str]]:
    """The size of ρ and the part that a run's config changes; empty if it changes something else, or nothing."""
    found, dataset = [], f"dataset={config['dataset']['name']}"
    for (method, rho), size in SIZES.items():
        for part, change in PARTS.items():
            changes = [text for text in (size, *change) if text]
            if changes and records.usual(config, (dataset, *CELL, f"method={method}", *changes)):
                found.append(((method, rho), part))
    return found


def unchanged() -> list[Row]:
    """The runs of the paper's experiments with the paper's recipe."""
    cell = {"setup": "III", "experts": "synthetic", "cost": "error", "recipe": "paper", "precision": "bf16-mixed"}
    return [
        row | {"rho": rho, "part": "as it is"}
        for method, rho in (("tdef", "1"), THEORY)
        for row in records.paper_runs(method=method, **cell)
    ]


def sizes_table(rows: Sequence[Row]) -> str:
    """A line for each set and method: the loss by the size of ρ, with the validation loss of the first seed, by which one
    chooses, and the difference of the two methods with what is chosen."""
    lines = []
    kept = [row for row in rows if row["part"] == "as it is"]
    for dataset in SETS:
        chosen = {}
        for method in ("tdef", "mild"):
            here = [row for row in kept if (row["dataset"], row["method"]) == (dataset, method)]
            found = {rho: [row for row in here if row["rho"] == rho] for name, rho in SIZES if name == method}
            first = {rho: records.by_seed(some, "validation")[0] for rho, some in found.items()}
            least = min(first, key=first.__getitem__)
            lines.append([f"{records.title_of(dataset)} III", method])
            for rho, some in found.items():
                text = f"**{first[rho]:.4f}**" if rho == least else f"{first[rho]:.4f}"
                lines[-1].append(f"{text}; {records.shown([*records.by_seed(some, 'test').values()])}")
            chosen[method] = records.by_seed(found[least], "test")
        lines[-1].append(records.difference(chosen["mild"], chosen["tdef"]))
    sizes = ("ρ = 0.2", "ρ = 1", "ρ = 5.2 (mild: by the theory)")
    head = ["paper's recipe", "method", *sizes, "mild − tdef, chosen, 95 %"]
    lines = [[*line, ""][: len(head)] for line in lines]
    return f"{records.markdown(head, lines)}\n\n`bench/paper_recipe.py`; {records.foot(kept)}"


def parts_table(rows: Sequence[Row]) -> str:
    """A line for each set and part that some run changes, with the sizes of ρ that the methods have by default."""
    lines, used = [], []
    usual = [row for row in rows if (row["method"], row["rho"]) in (("tdef", "1"), THEORY)]
    for dataset in SETS:
        here = [row for row in usual if row["dataset"] == dataset]
        if all(row["part"] == "as it is" for row in here):
            continue
        used += here
        by_part = records.grouped(here, lambda row: row["part"])
        for part in filter(by_part.get, PARTS):
            by_method = records.grouped(by_part[part], lambda row: row["method"])
            tdef, mild = (records.by_seed(by_method.get(method, []), "test") for method in ("tdef", "mild"))
            both = sorted(tdef.keys() & mild.keys())
            differ = records.difference(mild, tdef) or " ".join(f"{mild[seed] - tdef[seed]:+.4f}" for seed in both)
            losses = [records.shown([*one.values()]) if one else "" for one in (tdef, mild)]
            lines.append([f"{records.title_of(dataset)} III", part, *losses, differ])
    head = ("paper's recipe", "changed", "tdef, ρ = 1", "mild, ρ = 5.2", "mild − tdef, 95 %")
    return f"{records.markdown(head, lines)}\n\n`bench/paper_recipe.py`; {records.foot(used)}"


if __name__ == "__main__":
    CHANGED.add(collected(records.given_paths(__doc__, "runs_dir").runs_dir))
