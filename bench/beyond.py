"""Routers that use the labels, beside tdef and mild, on images: rows off finished runs into a CSV, tables into docs/beyond.md.

python bench/beyond.py collect RUNS_DIR    # adds finished runs of experiment=beyond, beyond_aux there to bench/results/beyond.csv,
                                           # as of the commit checked out: collect before going on
python bench/beyond.py docs                # writes docs/beyond.md's tables anew
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from l2d.config import compose, to_plain
from l2d.runs import variant
from provenance import ROOT
from records import (
    NAMES,
    Row,
    by_seed,
    cell_of,
    difference,
    finished,
    foot,
    made_by,
    merged,
    put,
    read,
    scores_of,
    shown,
    write,
)

CSV = ROOT / "bench" / "results" / "beyond.csv"
PAGE = ROOT / "docs" / "beyond.md"
CELL = ("dataset", "setup", "experts", "cross_fit", "cost", "epochs")
KEYS = [*CELL, "method", "aux", "ema", "seed"]
FIELDS = [
    *KEYS,
    "validation",
    "test",
    "guarded",
    "constant",
    "offsets",
    "ratios",
    "oracle",
    "n",
    "machine",
    "torch",
    "commit",
]
# In the order of the table: (method, aux)
ROWS = [
    ("tdef", "none"),
    ("mild", "none"),
    ("tdef", "label"),
    ("mild", "label"),
    ("tdef", "experts"),
    ("mild", "experts"),
    ("plugin", "none"),
    ("cost_regression", "none"),
    ("label_regression", "none"),
]


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for _, config, metrics, timing in finished(runs_dir):
        if config["dataset"]["name"] not in NAMES or not usual(config) or "guarded" not in metrics:
            continue
        rows.append(
            {
                **cell_of(config),
                "epochs": str(config["recipe"]["epochs"]),
                "method": config["method"]["name"],
                "aux": config.get("aux", "none"),
                "ema": f"{config['recipe'].get('ema', 0.0):g}",
                "seed": str(config["seed"]),
                **scores_of(metrics),
                "offsets": "yes" if metrics["guarded"]["offsets"] is not None else "",
                "ratios": " ".join(f"{ratio:.4f}" for ratio in metrics["ratios"]),
                "oracle": " ".join(f"{ratio:.4f}" for ratio in metrics["baselines"]["oracle"]["ratios"]),
                "n": str(metrics["rows"]["test"]),
                **made_by(timing),
            }
        )
    return rows


def usual(config: Mapping[str, Any]) -> bool:
    """Whether a run differs in nothing but KEYS from what experiment=beyond and beyond_aux run."""
    return variant(config) == expected(
        config["dataset"]["name"],
        config["setup"]["name"],
        config["experts"]["name"],
        config["experts"].get("cross_fit"),
        config["cost"]["name"],
        {"tdef": "tdef_paper"}.get(config["method"]["name"], config["method"]["name"]),
        config.get("aux", "none"),
        config["recipe"].get("ema", 0.0),
    )


@cache
def expected(
    dataset: str, setup: str, experts: str, cross_fit: int | None, cost: str, method: str, aux: str, ema: float
) -> str:
    said = [
        f"dataset={dataset}",
        f"setup={setup}",
        f"experts={experts}",
        f"cost={cost}",
        f"method={method}",
        f"aux={aux}",
    ]
    said += [f"recipe.ema={ema}", *([] if cross_fit is None else [f"experts.cross_fit={cross_fit}"])]
    try:
        return variant(to_plain(compose(said)))
    except Exception:  # a method or a set that is no longer there
        return ""


def table(rows: Sequence[Row]) -> str:
    """Per cell: each method by itself, against mild paired, and guarded."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["ema"] == "0":
            found[tuple(row[key] for key in CELL)].append(row)
    lines = [
        "| cell | method | DL | less mild, paired, 95 % | relative | guarded | to each expert, % |",
        "|---" * 7 + "|",
    ]
    for cell, members in sorted(found.items()):
        mild = by_seed(picked(members, "mild", "none"), "test")
        for number, (method, aux) in enumerate((method, aux) for method, aux in ROWS if picked(members, method, aux)):
            here = picked(members, method, aux)
            ours = by_seed(here, "test")
            both = sorted(ours.keys() & mild.keys())
            ratio = (
                statistics.fmean(ours[s] for s in both) / statistics.fmean(mild[s] for s in both) - 1 if both else None
            )
            shares = " / ".join(f"{100 * statistics.fmean(column):.1f}" for column in columns(here))
            line = [
                title(cell) if not number else "",
                method + (f", aux={aux}" if aux != "none" else ""),
                shown(list(ours.values())),
                "" if (method, aux) == ("mild", "none") else difference(ours, mild),
                "" if ratio is None or (method, aux) == ("mild", "none") else f"{ratio:+.0%}",
                shown(list(by_seed(here, "guarded").values())),
                shares,
            ]
            lines.append(f"| {' | '.join(line)} |")
    return "\n".join([*lines, "", foot(rows)])


def picked(rows: Sequence[Row], method: str, aux: str) -> list[Row]:
    return [row for row in rows if (row["method"], row["aux"]) == (method, aux)]


def columns(rows: Sequence[Row]) -> list[tuple[float, ...]]:
    return list(zip(*([float(ratio) for ratio in row["ratios"].split()] for row in rows), strict=True))


def title(cell: tuple[str, ...]) -> str:
    dataset, setup, experts, cross_fit, cost, epochs = cell
    kind = "synthetic (simulated)" if experts == "synthetic" else experts
    fit = f", cross-fit {cross_fit}" if cross_fit not in ("", "1") else ""
    return f"{NAMES.get(dataset, dataset)} {setup}, {kind} experts{fit}, {cost.replace('_', ' ')}, {epochs} epochs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "docs"])
    parser.add_argument("runs_dir", type=Path, nargs="?", default=Path("runs"))
    arguments = parser.parse_args()
    if arguments.what == "collect":
        new = collected(arguments.runs_dir)
        write(CSV, FIELDS, KEYS, merged(read(CSV), new, KEYS, ("validation", "test", "guarded", "torch")))
        print(f"{len(new)} runs, {len(read(CSV))} in all")
    else:
        put(PAGE, "images", table(read(CSV)))


if __name__ == "__main__":
    main()
