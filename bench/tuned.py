"""What choosing ρ in each cell gains: from finished searches to bench/results/tuned.csv, from there to docs/verdicts.md.

python bench/tuned.py collect RUNS_DIR    # of `l2d tune experiment=table1_error dataset=svhn setup=III method=tdef,mild seed=0,1,2`
python bench/tuned.py docs
"""

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from provenance import ROOT
from records import Row, by_seed, collect_or_docs, difference, made, made_by, merged, put, read, shown, title_of, write

CSV = ROOT / "bench" / "results" / "tuned.csv"
PAGE = ROOT / "docs" / "verdicts.md"
NAMES = ("dataset", "setup", "experts", "cost", "method")
KEYS = (*NAMES, "seed")
FIELDS = (*KEYS, "chosen", "trials", "validation", "test", "n", "machine", "torch", "commit")
HEAD = (
    *("dataset", "setup", "method", "untuned", "trials", "chosen on validation", "tuned", "tuned − untuned, 95 %"),
    "tuned: mild − tdef, 95 %",
)


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for file in sorted(runs_dir.glob("*/*/*/*/*/tune-*/result.json")):
        found = json.loads(file.read_text(encoding="utf-8"))
        names = dict(zip(NAMES, file.parts[-7:-2], strict=True))
        chosen = ", ".join(f"{key.removeprefix('method.')}={value}" for key, value in found["settings"].items())
        for seed, loss in found["test_deferral_loss"]["tuned"].items():
            run = file.parent / found["winner"] / f"seed={seed}"
            timing, metrics = (load(run / f"{name}.json") for name in ("timing", "metrics"))
            rows.append(
                {
                    **names,
                    "seed": seed,
                    "chosen": chosen,
                    "trials": str(found["trials"]),
                    "validation": f"{found['validation_deferral_loss']:.6f}",
                    "test": f"{loss:.6f}",
                    "n": str(metrics["rows"]["test"]),
                    **made_by(timing),
                }
            )
    return rows


def load(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def table(rows: Sequence[Row], untuned: Sequence[Row]) -> str:
    """untuned: runs of the paper's experiments; those with our recipe are compared."""
    lines = [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    tests = {names: by_seed(list(some), "test") for names, some in grouped(rows)}
    before = {names: by_seed(list(some), "test") for names, some in grouped(untuned)}
    first = {names: next(iter(some)) for names, some in grouped(rows)}
    for names, tuned in tests.items():
        dataset, setup, *_, method = names
        plain, rival = before.get(names, {}), tests.get((*names[:-1], "tdef"), {})
        ahead = difference(tuned, rival) if method == "mild" else ""
        told = (first[names]["trials"], first[names]["chosen"], shown(list(tuned.values())), difference(tuned, plain))
        row = [title_of(dataset), setup, method, shown(list(plain.values())), *told, ahead]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join([*lines, "", f"`python bench/tuned.py docs`; {made(rows)}."])


def grouped(rows: Sequence[Row]) -> Any:
    def names(row: Row) -> tuple[str, ...]:
        return tuple(row[name] for name in NAMES)

    return groupby(sorted(rows, key=names), names)


def ours() -> list[Row]:
    """The runs of the paper's experiments with our recipe."""
    return [row for row in read(CSV.with_name("paper_runs.csv")) if row["recipe"] == "fast"]


def main() -> None:
    options = collect_or_docs(__doc__)
    if options.command == "collect":
        write(CSV, FIELDS, KEYS, merged(read(CSV), collected(options.runs_dir), KEYS, ("test",)))
    else:
        put(PAGE, "tuned", table(read(CSV), ours()))


if __name__ == "__main__":
    main()
