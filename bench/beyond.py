"""Routers that use the labels, compared with tdef and mild, on images: from finished runs to a CSV, from there to the documents.

python bench/beyond.py collect RUNS_DIR    # adds finished runs of experiment=beyond, beyond_aux there to bench/results/beyond.csv,
                                           # with the current commit: collect before you change the code
python bench/beyond.py docs                # rewrites the tables and the figure of docs/beyond.md, with tdef and mild of
                                           # bench/results/why_mild.csv
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import records
from l2d.analysis.report.averages import paired_interval
from records import DOCS, Results, Row

CELL = ("dataset", "setup", "experts", "cross_fit", "cost", "epochs")
RUNS = Results(
    "beyond",
    f"{' '.join(CELL)} method aux ema seed",
    "validation test guarded constant offsets ratios oracle n machine torch commit",
    compared="validation test guarded constant offsets torch",
)
WHY = RUNS.file.with_name("why_mild.csv")
IMAGES = ("svhn", "cifar10", "digits")
Kind = tuple[str, str, str]  # method, aux, ema
MILD: Kind = ("mild_uniform", "none", "0")
PLUGIN: Kind = ("plugin", "none", "0")
# Which method to start with
REGRESSIONS: list[Kind] = [("cost_regression", "none", "0"), ("label_regression", "none", "0")]
FIRST: list[Kind] = [PLUGIN, *reversed(REGRESSIONS), ("mild_uniform", "label", "0")]
TUNED = "mild_uniform, ρ chosen on validation"
# In the order of the table
ROWS: list[Kind] = [
    *(("tdef", "none", "0"), MILD, (TUNED, "none", "0")),
    *((method, aux, "0") for aux in ("label", "experts") for method in ("tdef", "mild_uniform")),
    *(PLUGIN, ("plugin", "none", "0.99"), *REGRESSIONS),
]
# tdef and mild_uniform in why_mild.csv: (rewards, shares, total, offset)
SETTINGS: dict[tuple[str, ...], str] = {
    ("complement", "uniform", "", "1"): "tdef",
    ("sum_others", "uniform", "1", "5"): "mild_uniform",
}


def collected(runs_dir: Path) -> list[Row]:
    return [
        records.row_of(config, metrics, timing)
        | {
            "epochs": str(config["recipe"]["epochs"]),
            "aux": config.get("aux", "none"),
            "ema": f"{config['recipe'].get('ema', 0.0):g}",
            "offsets": "yes" if metrics.guarded.offsets is not None else "",
            "oracle": records.spaced(records.oracle_of(metrics).ratios),
        }
        for _, config, metrics, timing in records.finished(runs_dir)
        if config["dataset"]["name"] in IMAGES and ours(config)
    ]


def ours(config: Mapping[str, Any]) -> bool:
    """True if a run differs only in the keys from those of experiment=beyond and beyond_aux."""
    said = [f"method={config['method']['name']}", f"aux={config.get('aux', 'none')}"]
    said += [f"recipe.ema={config['recipe'].get('ema', 0.0)}"]
    return records.usual(config, [*records.named_cell(config), *said])


def others(rows: Sequence[Row], measured: Sequence[Row]) -> list[Row]:
    """From why_mild.csv (measured): tdef and mild where `rows` lack them, and mild with the ρ that is best on validation."""
    have = {(cell(row), row["method"], row["seed"]) for row in rows if (row["aux"], row["ema"]) == ("none", "0")}
    found = records.grouped(measured, cell)
    plain = [
        taken(row, method, "argmax")
        for members in found.values()
        for row in members
        if (method := SETTINGS.get(records.setting_of(row))) and (cell(row), method, row["seed"]) not in have
    ]
    return plain + [row for members in found.values() for row in tuned(members)]


def cell(row: Row) -> tuple[str, ...]:
    return tuple(row.get("epochs", row.get("recipe_epochs", "")) if key == "epochs" else row[key] for key in CELL)


def tuned(members: Sequence[Row]) -> list[Row]:
    """A cell's runs with sum_others, at the ρ and the decision of least mean validation loss. Empty if there are fewer than three
    settings with three seeds: too few to choose from."""
    tried = records.grouped((row for row in members if row["rewards"] == "sum_others"), records.setting_of)
    full = [rows for rows in tried.values() if len(rows) >= 3]
    if len(full) < 3:
        return []
    ways = [
        (statistics.fmean(float(row[column]) for row in rows), number, decision)
        for number, rows in enumerate(full)
        for decision, column in (("argmax", "validation"), ("posterior", "validation_posterior"))
        if all(row[column] for row in rows)
    ]
    _, number, decision = min(ways)
    return [taken(row, TUNED, decision) for row in full[number]]


def taken(row: Row, method: str, decision: str) -> Row:
    """A row of why_mild.csv in the format of this CSV. It has no guarded loss."""
    ratios = row["ratios" if decision == "argmax" else "posterior_ratios"]
    ours = {"method": method, "aux": "none", "ema": "0", "test": row[decision], "ratios": ratios, "guarded": ""}
    return {**row, **ours, "epochs": row["recipe_epochs"]}


def tally_table(rows: Sequence[Row]) -> str:
    """Over the cells, each method against mild and against plugin: how often better or worse, and how often significantly."""
    head = ["method", "cells"]
    for name in ("mild_uniform", "plugin"):
        head += [f"to {name}, mean", "better in", "significantly", "worse in", "significantly"]
    found, lines = [members for _, members in cells(rows)], []
    for kind in ROWS:
        if not (here := [members for members in found if picked(members, kind)]):
            continue
        lines.append([named(kind), str(len(here))])
        for other in (MILD, PLUGIN):
            lines[-1] += [""] * 5 if kind == other else tally(here, kind, other)
    used = [row for members in found for kind in ROWS for row in picked(members, kind)]
    return f"{records.markdown(head, lines)}\n\n{len(used)} runs; {records.made(used)}."


def tally(here: Sequence[Sequence[Row]], kind: Kind, other: Kind) -> list[str]:
    found = against(here, kind, other)
    counts = [sum(mean < 0 for mean, _, _ in found), sum(high < 0 for _, _, high in found)]
    counts += [sum(mean > 0 for mean, _, _ in found), sum(low > 0 for _, low, _ in found)]
    return [f"{100 * statistics.fmean(mean for mean, _, _ in found):+.1f} %" if found else "", *map(str, counts)]


def against(here: Sequence[Sequence[Row]], kind: Kind, other: Kind) -> list[tuple[float, float, float]]:
    """For each cell in which the two can be paired: their difference divided by the other's loss, mean and 95 % interval."""
    found = []
    for members in here:
        both = [picked(members, which) for which in (kind, other)]
        ours, theirs = (records.by_seed(rows, "test") for rows in both)
        if (interval := paired_interval(ours, theirs)) is not None and same_experts(*both):
            mean, low, high = interval
            loss = statistics.fmean(theirs[seed] for seed in ours.keys() & theirs.keys())
            found.append((mean / loss, low / loss, high / loss))
    return found


def first_table(rows: Sequence[Row]) -> str:
    """The method to start with: its loss relative to mild's over the cells, by kind of experts and cost."""
    groups: dict[str, list[Sequence[Row]]] = defaultdict(list)
    for (_, _, experts, _, cost, _), members in cells(rows):
        made_how = "simulated" if experts == "synthetic" else experts
        groups[f"{made_how} experts, {'errors only' if cost == 'error' else 'with prices'}"].append(members)
    lines: list[list[str]] = []
    for kind in FIRST:
        lines.append([f"`{named(kind).replace(',', '')}`"])
        for here in groups.values():
            found = sorted(against(here, kind, MILD))
            ends = dict.fromkeys(f"{100 * mean:+.0f}" for mean, _, _ in (*found[:1], *found[-1:]))
            less, more = sum(high < 0 for _, _, high in found), sum(low > 0 for _, low, _ in found)
            lines[-1].append(f"{' to '.join(ends)} %; less in {less} of {len(found)}, more in {more}" if found else "")
    return records.markdown(["deferral loss relative to `mild_uniform`'s", *groups], lines)


def same_experts(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """True if runs of one seed had the same experts: retrained experts differ, and so does their oracle."""
    oracle = {row["seed"]: row["oracle"] for row in theirs}
    return all(row["oracle"] == oracle.get(row["seed"], row["oracle"]) for row in ours)


def cells(rows: Sequence[Row]) -> list[tuple[tuple[str, ...], list[Row]]]:
    """The cells that have a run of this benchmark, in order."""
    found = records.grouped(rows, cell)
    theirs = {("tdef", "none"), ("mild_uniform", "none"), (TUNED, "none")}
    ours = [where for where, members in found.items() if {(row["method"], row["aux"]) for row in members} - theirs]
    return [(where, found[where]) for where in sorted(ours, key=order)]


def figure(rows: Sequence[Row]) -> Figure:
    """Each run's deferral loss divided by mild's mean in its cell."""
    drawn = [kind for kind in ROWS if kind not in (MILD, (TUNED, "none", "0")) and picked(rows, kind)]
    here = cells(rows)
    picture = Figure(figsize=(8.5, 0.55 * len(here) + 1.5), layout="constrained")
    axes = picture.subplots()
    for number, kind in enumerate(drawn):
        label = named(kind)
        for line, (_, members) in enumerate(here):
            mild = records.by_seed(picked(members, MILD), "test").values()
            own = records.by_seed(picked(members, kind), "test").values()
            if losses := [loss / statistics.fmean(mild) for loss in own if mild]:
                at = line + (number - (len(drawn) - 1) / 2) * 0.8 / len(drawn)
                axes.plot(losses, [at] * len(losses), ".", color=f"C{number}", alpha=0.5)
                axes.plot(statistics.fmean(losses), at, "o", color=f"C{number}", label=label)
                label = "_"  # once in the legend
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(here)), [title(where) for where, _ in here])
    axes.invert_yaxis()
    for line in range(len(here) - 1):
        axes.axhline(line + 0.5, color="lightgrey", linewidth=0.8)
    axes.set(xlabel="test deferral loss ÷ mild_uniform's mean; small dots: seeds")
    axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.3, 1), ncols=3)
    return picture


def order(where: tuple[str, ...]) -> tuple[Any, ...]:
    """The cells that matter most first: III, I, severe; errors before prices; simulated experts before trained ones."""
    dataset, setup, experts, cross_fit, cost, _ = where
    return ["III", "I", "severe", "II"].index(setup), experts != "synthetic", cost != "error", dataset, cross_fit


def picked(rows: Sequence[Row], kind: Kind) -> list[Row]:
    return [row for row in rows if (row["method"], row["aux"], row["ema"]) == kind]


def named(kind: Kind) -> str:
    method, aux, ema = kind
    return method + (f", aux={aux}" if aux != "none" else "") + (f", recipe.ema={ema}" if ema != "0" else "")


def title(where: tuple[str, ...]) -> str:
    dataset, setup, experts, cross_fit, cost, _ = where
    return f"{records.cell_title(dataset, setup, f'{experts} experts', cross_fit)}, {cost.replace('_', ' ')}"


def docs() -> None:
    rows = RUNS.read()
    rows += others(rows, records.read(WHY))
    figure(rows).savefig(DOCS / "figures" / "beyond_images.png", dpi=110)
    records.put(DOCS / "beyond.md", "images-tally", tally_table(rows))
    records.put(DOCS / "beyond.md", "first", first_table(rows))


if __name__ == "__main__":
    records.collect_or_docs(__doc__, RUNS, collected, docs)
