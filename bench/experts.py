"""Make experts, time it, and write how good they are: one row per expert and split into a CSV, a table into docs/results.md.

python bench/experts.py dataset=svhn,cifar10 setup=I,II,III,severe            # measures, into bench/results/experts.csv
python bench/experts.py dataset=svhn setup=III experts.cross_fit=1,5          # any axis, and any other override
python bench/experts.py --docs                                                # only rewrites the table
"""

import argparse
import csv
import itertools
import re
from collections import defaultdict
from pathlib import Path

from l2d.assembly.build import make_splits
from l2d.config import check, compose
from l2d.experts.accuracy import accuracy_by_expert
from provenance import ROOT, commit, machine, versions
from records import put

FIELDS = ["settings", "dataset", "setup", "cross_fit", "expert", "knows", "split", "rows", "own", "others", "overall"]
FIELDS += ["seconds", "machine", "versions", "commit"]
CSV = ROOT / "bench" / "results" / "experts.csv"
Row = dict[str, str]


def measure(overrides: list[str]) -> list[Row]:
    """The experts of one setting, as rows. seconds: for making all of them, without loading the data."""
    experiment = check(compose([*overrides, "experts=trained"]))
    data, coverage = make_splits(experiment), experiment.setup.coverage
    assert coverage is not None
    seconds = data.cache.seconds
    if seconds is None or data.expert_seconds < seconds:
        raise SystemExit(f"{data.cache.entry}: made earlier, by what is not known; remove it, or use another runs_dir")
    rows = []
    for name in ("train", "validation", "test"):
        split = getattr(data, name)
        for k, found in enumerate(accuracy_by_expert(split.answers, split.labels, data.panel.knows)):
            shares = {key: getattr(found, key) for key in ("own", "others", "overall")}
            rows.append(
                {key: "" if share is None else f"{share:.4f}" for key, share in shares.items()}
                | {"settings": " ".join(overrides), "dataset": experiment.dataset.name, "split": name}
                | {"setup": experiment.setup.name, "cross_fit": str(experiment.experts.arguments["cross_fit"])}
                | {"expert": str(k + 1), "seconds": f"{seconds:.1f}"}
                | {"knows": f"{coverage[k]:g}", "rows": str(len(split))}
                | {"machine": machine(), "versions": versions(), "commit": commit()}
            )
    return rows


def table(rows: list[Row]) -> str:
    """One line per expert: its classes, the others', all, on each split; the time of a setting on its first line."""
    settings: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        settings[row["settings"]].append(row)
    lines = [
        "| dataset | setup | cross-fit | expert (classes) | train: own / others / all, % | validation | test | s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for found in settings.values():
        for number, expert in enumerate(sorted({row["expert"] for row in found})):
            own = {row["split"]: row for row in found if row["expert"] == expert}
            shares = [" / ".join(percent(own[name][key]) for key in ("own", "others", "overall")) for name in own]
            first = own["train"]
            off = "" if first["cross_fit"] == "1" else first["cross_fit"]
            place = [first["dataset"], first["setup"], off, f"{expert} ({float(first['knows']):.0%})"]
            lines.append("| " + " | ".join([*place, *shares, "" if number else first["seconds"]]) + " |")
    said = sorted({(row["machine"], row["versions"], row["commit"]) for row in rows})
    counts = sorted({(row["dataset"], row["split"], int(row["rows"])) for row in rows})
    n = ", ".join(f"{dataset} {split} {count:,}" for dataset, split, count in counts)
    foot = "; ".join(f"{where}; {which}; commit {code}" for where, which, code in said)
    commands = "; ".join(f"`l2d experts {setting}`" for setting in settings)
    return "\n".join(lines) + f"\n\n{commands}. n: {n}. {foot}."


def percent(share: str) -> str:
    return f"{100 * float(share):.1f}" if share else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--docs", action="store_true", help="write the table from the CSV, measure nothing")
    parser.add_argument("--csv", type=Path, default=CSV)
    arguments = parser.parse_args()
    old: list[Row] = []
    if arguments.csv.exists():
        with arguments.csv.open(newline="", encoding="utf-8") as lines:
            old = list(csv.DictReader(lines))
    given = (text.split("=", 1) for text in arguments.overrides)
    axes = [[f"{key}={value}" for value in re.split(r",(?![^\[]*\])", values)] for key, values in given]
    for overrides in itertools.product(*axes) if axes else []:
        rows = measure(list(overrides))
        old = [row for row in old if row["settings"] != " ".join(overrides)] + rows
        with arguments.csv.open("w", newline="", encoding="utf-8") as lines:
            writer = csv.DictWriter(lines, FIELDS)
            writer.writeheader()
            writer.writerows(old)
        print(f"{' '.join(overrides)}: {rows[0]['seconds']} s", flush=True)
    if arguments.docs:
        put(ROOT / "docs" / "results.md", "experts", table(old))


if __name__ == "__main__":
    main()
