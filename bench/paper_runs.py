"""Runs on image sets, for verdicts.md and beyond.md: a row each in results/paper_runs.csv; in paper_runs.npz the errors of each
expert and the decisions of each router on the test rows.

python bench/paper_runs.py RUNS_DIR    # adds the finished runs there of the paper's experiments, with the current commit
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors.numpy import load_file

import records
from l2d.analysis.report.averages import Floats
from l2d.analysis.report.paper import paper_blocks, papers_recipe
from l2d.config.identity import settings_of
from l2d.core.results import RunMetrics
from records import RAN, ROOT, Results, Row

CELL = ("dataset", "setup", "experts", "cross_fit", "cost")
KEYS, LOSSES = f"{' '.join(CELL)} method label_weight recipe precision seed", "validation test guarded"
OTHERS = f"{LOSSES} ratios oracle oracle_ratios rho steps_seconds {RAN}"
RUNS = Results("paper_runs", KEYS, OTHERS, compared=f"{LOSSES} oracle")
OURS = ("experts.cross_fit", "method.label_weight")  # keys of columns of their own
ROWS = RUNS.file.with_suffix(".npz")
LATER = ("plugin", "cost_regression", "label_regression")  # take other prices after training
Arrays = dict[str, NDArray[np.uint8]]


def collected(runs_dir: Path) -> tuple[list[Row], Arrays]:
    """Methods that take other prices later were trained without: their decisions at the setup's prices are a second row."""
    rows: list[Row] = []
    arrays: Arrays = {}
    found = [one for one in records.finished(runs_dir) if block_of(one[1]) in paper_blocks()]
    for folder, config, metrics, timing in found:
        recipe = papers_recipe(*names_of(config))
        if recipe is None:
            continue
        row = records.row_of(config, metrics, timing) | about(config, metrics, recipe)
        row |= {"steps_seconds": f"{timing['steps_seconds']:.1f}"}
        rows.append(row)
        with np.load(folder / "test.npz") as test:
            arrays[place(row)] = test["decisions"].astype(np.uint8)
            if row["cost"] != "error":
                continue
            arrays[errors_place(row)] = np.packbits(test["costs"] > 0.5, axis=0)
            if "expected_errors" in test and row["setup"] != "severe":
                rows.append(priced(row, test, load_file(folder / "model.safetensors")))
                arrays[place(rows[-1])] = (test["expected_errors"] + prices_of(row["setup"])).argmin(1).astype(np.uint8)
    return rows, arrays


def names_of(config: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """What decides whether a run is the paper's experiment: held-out outcomes and the weight of labels are ours."""
    settings = {key: value for key, value in settings_of(config).items() if key not in OURS}
    return (*block_of(config), config["method"]["name"]), settings


def block_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(config[group]["name"] for group in ("dataset", "setup", "experts", "cost"))


def about(config: Mapping[str, Any], metrics: RunMetrics, recipe: str) -> Row:
    oracle, weighed = records.oracle_of(metrics), config["method"].get("by_label")
    return {
        "recipe": recipe,
        "precision": str(config["recipe"]["precision"]),
        "label_weight": f"{config['method']['label_weight']:g}" if weighed else "",
        "oracle": f"{oracle.deferral_loss:.6f}",
        "oracle_ratios": records.spaced(oracle.ratios),
    }


def priced(row: Row, test: Mapping[str, Any], weights: Mapping[str, Any]) -> Row:
    """The row of the same router at the setup's prices. Nothing is guarded there."""
    prices, found = prices_of(row["setup"]), {}
    held_out = weights["held_out.errors"], weights["held_out.expected"]
    for name, (errors, expected) in {"validation": held_out, "test": (test["costs"], test["expected_errors"])}.items():
        chosen = (expected + prices).argmin(1)
        found[name] = f"{(errors + prices)[np.arange(len(chosen)), chosen].mean():.6f}"
    shares = np.bincount(chosen, minlength=len(prices)) / len(chosen)
    best = (test["costs"] + prices).argmin(1)
    oracle = {"oracle": f"{(test['costs'] + prices).min(1).mean():.6f}"}
    oracle["oracle_ratios"] = records.spaced(np.bincount(best, minlength=len(prices)) / len(best))
    return row | found | oracle | {"cost": "error_plus_cost", "guarded": "", "ratios": records.spaced(shares)}


@cache
def prices_of(setup: str) -> NDArray[np.float32]:
    """The paper's prices: each expert's share of the classes."""
    file = ROOT / "conf" / "setup" / f"{setup}.yaml"
    return np.array(yaml.safe_load(file.read_text(encoding="utf-8"))["coverage"], np.float32)


def place(row: Row) -> str:
    return "/".join(row[key] for key in KEYS.split() if key != "precision")


def errors_place(row: Row) -> str:
    return "/".join(row[key] for key in ("dataset", "setup", "experts", "cross_fit", "seed")) + "/errors"


def count(rows: Iterable[Row]) -> int:
    """The number of runs. The rows of one run at several costs have the same time and commit."""
    same = [key for key in KEYS.split() if key != "cost"] + ["steps_seconds", "commit"]
    return len({tuple(row[key] for key in same) + (() if row["method"] in LATER else (row["cost"],)) for row in rows})


def losses(rows: Iterable[Row], arrays: Mapping[str, NDArray[np.uint8]]) -> dict[int, float | Floats]:
    """By seed: the cost of each test row, or the mean if it is not known for all seeds."""
    rows = list(rows)
    known = all(place(row) in arrays and errors_place(row) in arrays for row in rows)
    return {int(row["seed"]): row_costs(row, arrays) if known else float(row["test"]) for row in rows}


def row_costs(row: Row, arrays: Mapping[str, NDArray[np.uint8]]) -> Floats:
    decisions = arrays[place(row)]
    errors = np.unpackbits(arrays[errors_place(row)], axis=0, count=len(decisions)).astype(np.float64)
    costs = errors + (prices_of(row["setup"]) if row["cost"] == "error_plus_cost" else 0)
    return costs[np.arange(len(decisions)), decisions]


@cache
def stored() -> tuple[list[Row], Arrays]:
    """The rows and the arrays of bench/results."""
    with np.load(ROWS) as found:
        return RUNS.read(), dict(found)


if __name__ == "__main__":
    rows, arrays = collected(records.given_paths(__doc__, "runs_dir").runs_dir)
    RUNS.add(rows)
    with np.load(ROWS) as before:
        np.savez_compressed(ROWS, **(dict(before) | arrays))
