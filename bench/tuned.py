"""The gain of choosing ρ in each cell: from finished searches to bench/results/tuned.csv, from there to docs/verdicts.md.

python bench/tuned.py collect RUNS_DIR    # of `l2d tune experiment=table1_error dataset=svhn setup=III method=tdef,mild seed=0,1,2`
python bench/tuned.py docs
"""

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import records
from provenance import commit
from records import DOCS, RAN, Results, Row

NAMES = ("dataset", "setup", "experts", "cost", "method")
TUNED = Results("tuned", f"{' '.join(NAMES)} seed", f"chosen trials validation test {RAN}", compared="test")
HEAD = ("setup III", "method", "untuned", "chosen of six", "tuned", "tuned − untuned, 95 %", "tuned: mild − tdef, 95 %")


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for file in sorted(runs_dir.glob("*/*/*/*/*/tune-*/result.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        names = dict(zip(NAMES, file.parts[-7:-2], strict=True))
        chosen = ", ".join(f"{key.removeprefix('method.')}={value}" for key, value in found["settings"].items())
        for seed, loss in found["test_deferral_loss"]["tuned"].items():
            run = file.parent / found["winner"] / f"seed={seed}"
            timing, metrics = (load(run / f"{name}.json") for name in ("timing", "metrics"))
            row = {**names, "seed": seed, "chosen": chosen, "trials": str(found["trials"]), "test": f"{loss:.6f}"}
            row |= {"validation": f"{found['validation_deferral_loss']:.6f}", "n": str(metrics["rows"]["test"])}
            made = {"machine": records.where(timing), "torch": timing["torch"], "commit": commit()}
            rows.append(row | made)
    return rows


def load(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(rows: Sequence[Row], untuned: Sequence[Row]) -> str:
    """untuned: runs of the paper's experiments; those with our recipe are compared."""
    tests = {names: records.by_seed(list(some), "test") for names, some in grouped(rows)}
    before = {names: records.by_seed(list(some), "test") for names, some in grouped(untuned)}
    chosen = {names: next(iter(some))["chosen"] for names, some in grouped(rows)}
    lines = []
    for names, tuned in tests.items():
        plain, rival = before.get(names, {}), tests.get((*names[:-1], "tdef"), {})
        ahead = records.difference(tuned, rival) if names[-1] == "mild" else ""
        losses = records.shown(list(plain.values())), chosen[names], records.shown(list(tuned.values()))
        lines.append([records.title_of(names[0]), names[-1], *losses, records.difference(tuned, plain), ahead])
    return f"{records.markdown(HEAD, lines)}\n\n`python bench/tuned.py docs`; {records.made(rows)}."


def grouped(rows: Sequence[Row]) -> Any:
    def names(row: Row) -> tuple[str, ...]:
        return tuple(row[name] for name in NAMES)

    return groupby(sorted(rows, key=names), names)


def ours() -> list[Row]:
    """The runs of the paper's experiments with our recipe."""
    return [row for row in records.read(TUNED.file.with_name("paper_runs.csv")) if row["recipe"] == "fast"]


def docs() -> None:
    records.put(DOCS / "verdicts.md", "tuned", table(TUNED.read(), ours()))


if __name__ == "__main__":
    records.collect_or_docs(__doc__, TUNED, collected, docs)
