"""Rows from finished runs: kept in CSV files, shown in the documents."""

import argparse
import csv
import json
import os
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from l2d.analysis.report.averages import paired_interval
from l2d.config import check, compose, titles
from l2d.config.identity import variant
from l2d.core.results import RunMetrics, Score, read_metrics
from l2d.runs.folder import RunFolder
from provenance import commit

Row = dict[str, str]


def collect_or_docs(about: str | None) -> argparse.Namespace:
    """The command line of a script that keeps finished runs in a CSV file and writes a document from it. about: its docstring."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("collect").add_argument("runs_dir", type=Path)
    commands.add_parser("docs")
    return parser.parse_args()


def title_of(dataset: str) -> str:
    return titles()["dataset"].get(dataset, dataset)


def trained(overrides: Sequence[str]) -> tuple[RunFolder, RunMetrics]:
    """The run of `l2d train OVERRIDES`, trained if it is not finished."""
    from l2d.training.cross_validation import train_and_judge

    experiment = check(compose(overrides))
    run = RunFolder.of(experiment.plain)
    if experiment.settings.force or not run.finished:
        train_and_judge(experiment, run)
    return run, run.metrics()


def finished(runs_dir: Path, dataset: str = "*") -> Iterator[tuple[Path, dict[str, Any], RunMetrics, dict[str, Any]]]:
    """Folder, config, metrics and timing of each finished run."""
    for file in sorted(runs_dir.glob(f"{dataset}/*/*/*/*/*/seed=*/metrics.json")):
        folder = file.parent
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        timing = json.loads((folder / "timing.json").read_text(encoding="utf-8"))
        yield folder, config, read_metrics(file), timing


def usual(config: Mapping[str, Any], overrides: Sequence[str], free: Sequence[str] = ()) -> bool:
    """Whether a run's config differs from what the overrides compose only in the free groups and the seed."""
    return _without(config, free) == _expected(tuple(overrides), tuple(free))


@cache
def _expected(overrides: tuple[str, ...], free: tuple[str, ...]) -> str:
    try:
        return _without(check(compose(overrides)).plain, free)
    except Exception:  # a method or a set that is no longer there
        return ""


def _without(config: Mapping[str, Any], free: Sequence[str]) -> str:
    return variant({**config, **dict.fromkeys(free)})


def where(timing: Mapping[str, Any]) -> str:
    """The device, with L2D_MACHINE in brackets: runs do not record the name of a CPU."""
    return timing["device"] + (f" ({os.environ['L2D_MACHINE']})" if "L2D_MACHINE" in os.environ else "")


def cell_of(config: Mapping[str, Any]) -> Row:
    names = {group: str(config[group]["name"]) for group in ("dataset", "setup", "experts", "cost")}
    return names | {"cross_fit": str(config["experts"].get("cross_fit", ""))}


def scores_of(metrics: RunMetrics) -> Row:
    losses = {"validation": metrics.validation, "test": metrics, "guarded": metrics.guarded}
    found = {name: f"{score.deferral_loss:.6f}" for name, score in losses.items()}
    return found | {"constant": metrics.guarded.constant or ""}


def oracle_of(metrics: RunMetrics) -> Score:
    """Of a run that knows every cost."""
    assert metrics.baselines.oracle is not None
    return metrics.baselines.oracle


def made_by(timing: Mapping[str, Any]) -> Row:
    return {"machine": where(timing), "torch": timing["torch"], "commit": commit()}


def read(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def merged(old: Sequence[Row], new: Sequence[Row], keys: Sequence[str], results: Sequence[str]) -> list[Row]:
    """New rows replace old ones with the same keys if a result differs. Else the old row stays, with the commit that ran it."""
    known = {tuple(row[key] for key in keys): row for row in old}
    for row in new:
        before = known.get(tuple(row[key] for key in keys))
        if before is None or any(before[name] != row[name] for name in results):
            known[tuple(row[key] for key in keys)] = row
    return list(known.values())


def write(file: Path, fields: Sequence[str], keys: Sequence[str], rows: Iterable[Row]) -> None:
    """Of rows with the same keys, the last is written."""
    known = {tuple(row[key] for key in keys): row for row in rows}
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, fields)
        writer.writeheader()
        writer.writerows(row for _, row in sorted(known.items()))


def by_seed(rows: Sequence[Row], column: str) -> dict[int, float]:
    return {int(row["seed"]): float(row[column]) for row in rows}


def shown(values: Sequence[float]) -> str:
    """Mean ± std; with the number of values if there are fewer than three."""
    if not values:
        return "missing"
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4f}{spread}" + (f" ({len(values)})" if len(values) < 3 else "")


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Paired over common seeds, with its 95 % interval."""
    found = paired_interval(ours, theirs)
    return f"{found[0]:+.4f} [{found[1]:+.4f}, {found[2]:+.4f}]" if found else ""


def foot(rows: Sequence[Row]) -> str:
    """Numbers of runs and test rows, machines, versions and commits."""
    return f"{len(rows)} runs (seeds in brackets where fewer than 3); {made(rows)}."


def made(rows: Sequence[Row]) -> str:
    """Numbers of test rows, machines, versions and commits."""
    n = ", ".join(
        f"{title_of(d)} {int(k):,}" for d, k in sorted({(row.get("dataset", "MMLU"), row["n"]) for row in rows})
    )
    commits: dict[tuple[str, str], list[str]] = defaultdict(list)
    for machine, torch, code in sorted({(row["machine"], row["torch"], row["commit"]) for row in rows}):
        commits[machine, torch].append(code)
    by = "; ".join(f"{machine}, torch {torch}, commit {', '.join(all_)}" for (machine, torch), all_ in commits.items())
    return f"test rows: {n}; {by}"


def put(document: Path, mark: str, text: str) -> None:
    """Replace the text between <!-- mark --> and <!-- /mark -->."""
    content = document.read_text(encoding="utf-8")
    marked = re.compile(rf"<!-- {mark} -->.*?<!-- /{mark} -->", re.DOTALL)
    if not marked.search(content):
        raise SystemExit(f"{document}: has no <!-- {mark} -->")
    document.write_text(marked.sub(lambda _: f"<!-- {mark} -->\n{text}\n<!-- /{mark} -->", content), encoding="utf-8")
