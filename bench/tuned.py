"""The gain of choosing ρ in each cell: from finished searches to bench/results/tuned.csv, from there to docs/verdicts.md.

python bench/tuned.py RUNS_DIR    # of `l2d tune experiment=table1_error dataset=svhn setup=III method=tdef,mild seed=0,1,2`
"""

import json
from collections.abc import Sequence
from pathlib import Path

import records
from l2d.runs.folder import RunFolder
from records import RAN, Results, Row

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
            run = RunFolder(file.parent / found["winner"] / f"seed={seed}")
            timing = run.timing()
            row = {**names, "seed": seed, "chosen": chosen, "trials": str(found["trials"]), "test": f"{loss:.6f}"}
            row |= {"validation": f"{found['validation_deferral_loss']:.6f}", "n": str(run.metrics().rows.test)}
            rows.append(row | records.made_on(timing))
    return rows


def table(rows: Sequence[Row], untuned: Sequence[Row]) -> str:
    """untuned: runs of the paper's experiments; those with our recipe are compared."""
    parts = by_names(rows), by_names(untuned)
    tests, before = ({names: records.by_seed(some, "test") for names, some in part.items()} for part in parts)
    chosen = {names: some[0]["chosen"] for names, some in by_names(rows).items()}
    lines = []
    for names, tuned in tests.items():
        plain, rival = before.get(names, {}), tests.get((*names[:-1], "tdef"), {})
        ahead = records.difference(tuned, rival) if names[-1] == "mild" else ""
        losses = records.shown(list(plain.values())), chosen[names], records.shown(list(tuned.values()))
        lines.append([records.title_of(names[0]), names[-1], *losses, records.difference(tuned, plain), ahead])
    return f"{records.markdown(HEAD, lines)}\n\n`bench/tuned.py`; {records.made(rows)}."


def by_names(rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    found = records.grouped(rows, lambda row: tuple(row[name] for name in NAMES))
    return dict(sorted(found.items()))


if __name__ == "__main__":
    TUNED.add(collected(records.given_paths(__doc__, "runs_dir").runs_dir))
