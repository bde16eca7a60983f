"""Measured rows: with the code, the machine and the versions behind them, kept in CSV files, shown in the documents."""

import argparse
import csv
import json
import os
import platform
import re
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytorch_lightning as pl
import torch
import yaml

from l2d.analysis.report.averages import mean_columns, mean_std, paired_interval
from l2d.analysis.report.tables import interval_text, with_std
from l2d.config import check, compose, titles
from l2d.config.identity import variant
from l2d.core.results import RunMetrics, Score, read_metrics
from l2d.runs.folder import RunFolder
from l2d.utils.text import markdown as markdown

ROOT = Path(__file__).resolve().parent.parent
DOCS, RESULTS = ROOT / "docs", ROOT / "bench" / "results"
RAN, MADE = "n machine torch commit", "command commit machine versions"  # columns of files of runs, and of measurements
Row = dict[str, str]
T = TypeVar("T")
K = TypeVar("K")


def commit() -> str:
    """The commit measured, marked if src/ or conf/ had uncommitted changes."""
    if "L2D_COMMIT" in os.environ:  # where the source was copied without its history
        return os.environ["L2D_COMMIT"]
    asked = (["rev-parse", "--short=10", "HEAD"], ["status", "--porcelain", "--", "src", "conf"])
    head, changed = (subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip() for words in asked)
    return head + ("+changes" if changed else "")


def machine() -> str:
    """The GPU's name, or the CPU's with its cores."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    told = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    named = re.search(r"^Model name:\s*(.+)$", told, re.MULTILINE)
    return f"{named[1] if named else platform.machine()}, {len(os.sched_getaffinity(0))} cores"


def versions() -> str:
    return f"Python {platform.python_version()}, torch {torch.__version__}, pytorch-lightning {pl.__version__}"


def about(command: str) -> dict[str, str]:
    """The columns of a measured row: the command, the code, the machine, the versions."""
    return {"command": command, "commit": commit(), "machine": machine(), "versions": versions()}


def origin(rows: Iterable[Row], columns: str = "command machine versions", between: str = "; ") -> str:
    """The commands, machines, versions and commits of measured rows."""

    def shown(row: Row, name: str) -> str:
        """Without the version of Lightning, which the file has."""
        return f"`{row[name]}`" if name == "command" else row[name].partition(", pytorch-lightning")[0]

    told = {(between.join(shown(row, name) for name in columns.split()), row["commit"]) for row in rows}
    return "; ".join(f"{what}{between}commit {commits}" for what, commits in joined(told))


def joined(told: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What was said of commits, and which ones."""
    by = grouped(sorted(told), lambda one: one[0])
    return [(what, ", ".join(commit for _, commit in some)) for what, some in by.items()]


@dataclass(frozen=True)
class Results:
    """A CSV file of bench/results: one row for each value of the keys.

    keys, others: names of columns, separated by spaces. compared: the columns in which a new row must differ to replace an old one.
    """

    name: str
    keys: str
    others: str
    compared: str = ""

    @property
    def file(self) -> Path:
        return RESULTS / f"{self.name}.csv"

    @property
    def fields(self) -> list[str]:
        return f"{self.keys} {self.others}".split()

    def read(self) -> list[Row]:
        return read(self.file)

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows by their keys; the last of several with the same keys counts."""
        known = {tuple(str(row[key]) for key in self.keys.split()): row for row in rows}
        save(self.file, self.fields, [row for _, row in sorted(known.items())])

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows beside the rows of the file. One with the same keys as an old one replaces it if a result differs; else the
        old row stays, with the commit that ran it."""
        known = {tuple(row[key] for key in self.keys.split()): row for row in self.read()}
        for row in rows:
            told = {name: str(row.get(name, "")) for name in self.fields}
            keys = tuple(told[key] for key in self.keys.split())
            if keys not in known or any(known[keys][name] != told[name] for name in self.compared.split() or told):
                known[keys] = told
        self.write(known.values())
        print(f"{self.name}: {len(known)} rows", flush=True)


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """about: the docstring of the script."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def given_paths(about: str | None, *names: str, what: Iterable[str] = ()) -> argparse.Namespace:
    """The files and folders that a script is given, by name; those with dashes are options. what: its first argument's choices."""
    parser = parser_of(about)
    if choices := list(what):
        parser.add_argument("what", choices=choices)
    for name in names:
        parser.add_argument(name, type=Path)
    return parser.parse_args()


def given_options(about: str | None, **defaults: Any) -> argparse.Namespace:
    """The options of a script. An option whose default is a tuple takes one or more values."""
    parser = parser_of(about)
    for name, default in defaults.items():
        kind, number = (type(default[0]), "+") if isinstance(default, tuple) else (type(default), None)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, nargs=number, default=default)
    return parser.parse_args()


def title_of(dataset: str) -> str:
    return titles()["dataset"].get(dataset, dataset)


def cell_title(dataset: str, setup: str, experts: str, cross_fit: str) -> str:
    fit = f", cross-fit {cross_fit}" if cross_fit not in ("", "1") else ""
    return f"{title_of(dataset)} {setup}, {experts}{fit}"


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
    """True if a run's config differs from what the overrides compose only in the free groups and the seed."""
    expected, left_out = _composed(tuple(overrides)), dict.fromkeys(free)
    return expected is not None and variant({**config, **left_out}) == variant({**expected, **left_out})


@cache
def _composed(overrides: tuple[str, ...]) -> Mapping[str, Any] | None:
    try:
        return check(compose(overrides)).plain
    except Exception:  # a method or a set that is no longer there
        return None


def made_on(timing: Mapping[str, Any]) -> Row:
    """The device, with L2D_MACHINE in brackets, since runs do not record the name of a CPU; torch and the commit."""
    machine = timing["device"] + (f" ({os.environ['L2D_MACHINE']})" if "L2D_MACHINE" in os.environ else "")
    return {"machine": machine, "torch": timing["torch"], "commit": commit()}


def cell_of(config: Mapping[str, Any]) -> Row:
    names = {group: str(config[group]["name"]) for group in ("dataset", "setup", "experts", "cost")}
    return names | {"cross_fit": str(config["experts"].get("cross_fit", ""))}


def row_of(config: Mapping[str, Any], metrics: RunMetrics, timing: Mapping[str, Any]) -> Row:
    """The columns that most files have of a run."""
    return {
        **cell_of(config),
        "method": str(config["method"]["name"]),
        "seed": str(config["seed"]),
        **scores_of(metrics),
        "ratios": spaced(metrics.ratios),
        "rho": " ".join(f"{value:.4g}" for value in metrics.rho),
        "n": str(metrics.rows.test),
        **made_on(timing),
    }


def mean_shares(rows: Sequence[Row], column: str = "ratios") -> list[float]:
    """The mean share of each expert."""
    return mean_columns([float(share) for share in row[column].split()] for row in rows)


def spaced(values: Iterable[float]) -> str:
    return " ".join(f"{float(value):.4f}" for value in values)


def scores_of(metrics: RunMetrics) -> Row:
    losses = {"validation": metrics.validation, "test": metrics, "guarded": metrics.guarded}
    found = {name: f"{score.deferral_loss:.6f}" for name, score in losses.items()}
    return found | {"constant": metrics.guarded.constant or ""}


def oracle_of(metrics: RunMetrics) -> Score:
    """The oracle of a run that knows every cost."""
    assert metrics.baselines.oracle is not None
    return metrics.baselines.oracle


def read(file: Path) -> list[Row]:
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def save(file: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, fields, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The items by their keys, in the order of the first of each."""
    found: dict[K, list[T]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return dict(found)


def mean_of(rows: Sequence[Row], column: str) -> float:
    return statistics.fmean(float(row[column]) for row in rows)


def paper_runs(**cell: str) -> list[Row]:
    """The runs of the paper's experiments (bench/verdicts.py) with these values."""
    rows = read(RESULTS / "paper_runs.csv")
    return [row for row in rows if all(row[name] == value for name, value in cell.items())]


def by_seed(rows: Sequence[Row], column: str) -> dict[int, float]:
    return {int(row["seed"]): float(row[column]) for row in rows}


def shown(values: Sequence[float]) -> str:
    """Mean ± std; with the number of values if there are fewer than three."""
    return with_std(*mean_std(values)) + (f" ({len(values)})" if len(values) < 3 else "") if values else "missing"


def difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """The mean difference over common seeds, with its 95 % interval."""
    return interval_text(paired_interval(ours, theirs))


def foot(rows: Sequence[Row]) -> str:
    """Numbers of runs and test rows, machines, versions and commits."""
    return f"{len(rows)} runs (seeds in brackets where fewer than 3); {made(rows)}."


def made(rows: Sequence[Row]) -> str:
    """Numbers of test rows, machines, versions and commits."""
    numbers = sorted({(row.get("dataset", "MMLU"), row["n"]) for row in rows})
    n = ", ".join(f"{title_of(dataset)} {int(k):,}" for dataset, k in numbers)
    codes = {(f"{row['machine']}, torch {row['torch']}", row["commit"]) for row in rows}
    by = "; ".join(f"{what}, commit {commits}" for what, commits in joined(codes))
    return f"test rows: {n}; {by}"


def put(document: Path, mark: str, text: str) -> None:
    """Replace the text between <!-- mark --> and <!-- /mark -->."""
    content = document.read_text(encoding="utf-8")
    marked = re.compile(rf"<!-- {mark} -->.*?<!-- /{mark} -->", re.DOTALL)
    if not marked.search(content):
        raise SystemExit(f"{document}: has no <!-- {mark} -->")
    document.write_text(marked.sub(lambda _: f"<!-- {mark} -->\n{text}\n<!-- /{mark} -->", content), encoding="utf-8")
