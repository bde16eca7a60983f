"""Routers that use the labels, compared with tdef and mild, on images: from finished runs to a CSV, from there to the documents.

python bench/beyond.py collect RUNS_DIR    # adds finished runs of experiment=beyond, beyond_aux there to bench/results/beyond.csv,
                                           # with the current commit: collect before you change the code
python bench/beyond.py docs                # rewrites the tables of docs/beyond.md, with tdef and mild of
                                           # bench/results/why_mild.csv
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from l2d.analysis.report.averages import paired_interval
from provenance import ROOT
from records import (
    Row,
    by_seed,
    cell_of,
    difference,
    finished,
    foot,
    made,
    made_by,
    merged,
    oracle_of,
    put,
    read,
    scores_of,
    shown,
    title_of,
    usual,
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
IMAGES = ("svhn", "cifar10", "digits")
WHY = ROOT / "bench" / "results" / "why_mild.csv"
Kind = tuple[str, str, str]  # method, aux, ema
MILD: Kind = ("mild_uniform", "none", "0")
PLUGIN: Kind = ("plugin", "none", "0")
# Which method to start with
FIRST: list[Kind] = [
    PLUGIN,
    ("label_regression", "none", "0"),
    ("cost_regression", "none", "0"),
    ("mild_uniform", "label", "0"),
]
TUNED = "mild_uniform, ρ chosen on validation"
# In the order of the table
ROWS: list[Kind] = [
    ("tdef", "none", "0"),
    MILD,
    (TUNED, "none", "0"),
    ("tdef", "label", "0"),
    ("mild_uniform", "label", "0"),
    ("tdef", "experts", "0"),
    ("mild_uniform", "experts", "0"),
    PLUGIN,
    ("plugin", "none", "0.99"),
    ("cost_regression", "none", "0"),
    ("label_regression", "none", "0"),
]
# tdef and mild_uniform in why_mild.csv: (rewards, shares, total, offset)
SETTINGS: dict[tuple[str, ...], str] = {
    ("complement", "uniform", "", "1"): "tdef",
    ("sum_others", "uniform", "1", "5"): "mild_uniform",
}


def collected(runs_dir: Path) -> list[Row]:
    rows = []
    for _, config, metrics, timing in finished(runs_dir):
        if config["dataset"]["name"] not in IMAGES or not ours(config):
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
                "offsets": "yes" if metrics.guarded.offsets is not None else "",
                "ratios": " ".join(f"{ratio:.4f}" for ratio in metrics.ratios),
                "oracle": " ".join(f"{ratio:.4f}" for ratio in oracle_of(metrics).ratios),
                "n": str(metrics.rows.test),
                **made_by(timing),
            }
        )
    return rows


def ours(config: Mapping[str, Any]) -> bool:
    """Whether a run differs only in KEYS from those of experiment=beyond and beyond_aux."""
    said = [f"{group}={config[group]['name']}" for group in ("dataset", "setup", "experts", "cost")]
    method, fit = config["method"]["name"], config["experts"].get("cross_fit")
    said += [f"method={method}", f"aux={config.get('aux', 'none')}"]
    said += [f"recipe.ema={config['recipe'].get('ema', 0.0)}", *([] if fit is None else [f"experts.cross_fit={fit}"])]
    return usual(config, said)


def others(rows: Sequence[Row], measured: Sequence[Row]) -> list[Row]:
    """From why_mild.csv (measured): tdef and mild where `rows` lack them, and mild with the ρ that is best on validation."""
    have = {(cell(row), row["method"], row["seed"]) for row in rows if (row["aux"], row["ema"]) == ("none", "0")}
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in measured:
        found[cell(row)].append(row)
    plain = [
        taken(row, method, "argmax")
        for members in found.values()
        for row in members
        if (method := SETTINGS.get(setting(row))) and (cell(row), method, row["seed"]) not in have
    ]
    return plain + [row for members in found.values() for row in tuned(members)]


def cell(row: Row) -> tuple[str, ...]:
    return tuple(row.get("epochs", row.get("recipe_epochs", "")) if key == "epochs" else row[key] for key in CELL)


def setting(row: Row) -> tuple[str, ...]:
    return tuple(row[key] for key in ("rewards", "shares", "total", "offset"))


def tuned(members: Sequence[Row]) -> list[Row]:
    """A cell's runs with sum_others, at the ρ and the decision of least mean validation loss. Empty if there are fewer than three
    settings with three seeds: too few to choose from."""
    tried: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in members:
        if row["rewards"] == "sum_others":
            tried[setting(row)].append(row)
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


def table(rows: Sequence[Row]) -> str:
    """Per cell: the loss of each method, its paired difference from mild, and its guarded loss."""
    lines = [
        "| cell | method | DL | less mild_uniform, paired, 95 % | relative | guarded | to each expert, % |",
        "|---" * 7 + "|",
    ]
    shown_rows = []
    for where, members in cells(rows):
        reference = picked(members, MILD)
        mild = by_seed(reference, "test")
        for number, kind in enumerate(kind for kind in ROWS if picked(members, kind)):
            here = picked(members, kind)
            shown_rows += here
            ours = by_seed(here, "test")
            both = sorted(ours.keys() & mild.keys())
            means = [statistics.fmean(losses[seed] for seed in both) for losses in (ours, mild)] if both else [0, 0]
            less = difference(ours, mild) if same_experts(here, reference) else f"{means[0] - means[1]:+.4f} †"
            shares = " / ".join(f"{100 * statistics.fmean(column):.1f}" for column in columns(here))
            guarded = [row for row in here if row["guarded"]]
            line = [
                title(where) if not number else "",
                named(kind),
                shown(list(ours.values())),
                "" if not both or kind == MILD else less,
                "" if not both or kind == MILD else f"{means[0] / means[1] - 1:+.0%}",
                shown(list(by_seed(guarded, "guarded").values())) if guarded else "",
                shares,
            ]
            lines.append(f"| {' | '.join(line)} |")
    other = "† these runs and mild_uniform's have different trained experts: not paired, so there is no interval."
    return "\n".join([*lines, "", *([other, ""] if any("†" in line for line in lines) else []), foot(shown_rows)])


def tally_table(rows: Sequence[Row]) -> str:
    """Over the cells, each method against mild and against plugin: how often better or worse, and how often significantly."""
    head = ["method", "cells"]
    for name in ("mild_uniform", "plugin"):
        head += [f"loss relative to {name}'s, mean over cells", "better in", "of these significantly"]
        head += ["worse in", "of these significantly"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    found = [members for _, members in cells(rows)]
    for kind in ROWS:
        if not (here := [members for members in found if picked(members, kind)]):
            continue
        line = [named(kind), str(len(here))]
        for other in (MILD, PLUGIN):
            line += [""] * 5 if kind == other else tally(here, kind, other)
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join([*lines, "", f"From the runs of the table below, {len(found)} cells."])


def tally(here: Sequence[Sequence[Row]], kind: Kind, other: Kind) -> list[str]:
    found = against(here, kind, other)
    counts = [
        sum(mean < 0 for mean, _, _ in found),
        sum(high < 0 for _, _, high in found),
        sum(mean > 0 for mean, _, _ in found),
        sum(low > 0 for _, low, _ in found),
    ]
    return [f"{100 * statistics.fmean(mean for mean, _, _ in found):+.1f} %" if found else "", *map(str, counts)]


def against(here: Sequence[Sequence[Row]], kind: Kind, other: Kind) -> list[tuple[float, float, float]]:
    """For each cell in which the two can be paired: their difference divided by the other's loss, mean and 95 % interval."""
    found = []
    for members in here:
        both = [picked(members, which) for which in (kind, other)]
        ours, theirs = (by_seed(rows, "test") for rows in both)
        if (interval := paired_interval(ours, theirs)) is not None and same_experts(*both):
            mean, low, high = interval
            loss = statistics.fmean(theirs[seed] for seed in ours.keys() & theirs.keys())
            found.append((mean / loss, low / loss, high / loss))
    return found


def first_table(rows: Sequence[Row]) -> str:
    """Which method to start with: its loss relative to mild's over the cells, by kind of experts and cost."""
    groups: dict[str, list[Sequence[Row]]] = defaultdict(list)
    for (_, _, experts, _, cost, _), members in cells(rows):
        made_how = "simulated" if experts == "synthetic" else experts
        groups[f"{made_how} experts, {'errors only' if cost == 'error' else 'with prices'}"].append(members)
    lines = [f"| deferral loss relative to `mild_uniform`'s | {' | '.join(groups)} |", "|---" * (len(groups) + 1) + "|"]
    used = []
    for kind in FIRST:
        line = [f"`{named(kind).replace(',', '')}`"]
        for here in groups.values():
            used += [row for members in here for which in (MILD, kind) for row in picked(members, which)]
            found = sorted(against(here, kind, MILD))
            ends = dict.fromkeys(f"{100 * mean:+.0f}" for mean, _, _ in (*found[:1], *found[-1:]))
            less, more = sum(high < 0 for _, _, high in found), sum(low > 0 for _, low, _ in found)
            line.append(f"{' to '.join(ends)} %; less in {less} of {len(found)}, more in {more}" if found else "")
        lines.append(f"| {' | '.join(line)} |")
    runs = {tuple(row[key] for key in KEYS): row for row in used}.values()
    seeds = sorted({len(picked(members, kind)) for _, members in cells(rows) for kind in [MILD, *FIRST]} - {0})
    sources = "`python bench/beyond.py docs`, from `experiment=beyond`, `beyond_aux` and docs/why_mild.md (some of `mild_uniform`)"
    said = f"{len(runs)} runs, {' or '.join(map(str, seeds))} seeds a cell; {made(list(runs))}"
    return "\n".join([*lines, "", f"{sources}: {said}."])


def same_experts(ours: Sequence[Row], theirs: Sequence[Row]) -> bool:
    """Whether runs of one seed had the same experts: retrained experts differ, and so does their oracle."""
    oracle = {row["seed"]: row["oracle"] for row in theirs}
    return all(row["oracle"] == oracle.get(row["seed"], row["oracle"]) for row in ours)


def cells(rows: Sequence[Row]) -> list[tuple[tuple[str, ...], list[Row]]]:
    """The cells that have a run of this benchmark, in order."""
    found: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[cell(row)].append(row)
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
            mild = by_seed(picked(members, MILD), "test").values()
            losses = [loss / statistics.fmean(mild) for loss in by_seed(picked(members, kind), "test").values() if mild]
            if losses:
                at = line + (number - (len(drawn) - 1) / 2) * 0.8 / len(drawn)
                axes.plot(losses, [at] * len(losses), ".", color=f"C{number}", alpha=0.5)
                axes.plot(statistics.fmean(losses), at, "o", color=f"C{number}", label=label)
                label = "_"  # once in the legend
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(here)), [title(where).replace(" (simulated)", "").rsplit(",", 1)[0] for where, _ in here])
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


def columns(rows: Sequence[Row]) -> list[tuple[float, ...]]:
    return list(zip(*([float(ratio) for ratio in row["ratios"].split()] for row in rows), strict=True))


def title(where: tuple[str, ...]) -> str:
    dataset, setup, experts, cross_fit, cost, epochs = where
    kind = "synthetic (simulated)" if experts == "synthetic" else experts
    fit = f", cross-fit {cross_fit}" if cross_fit not in ("", "1") else ""
    return f"{title_of(dataset)} {setup}, {kind} experts{fit}, {cost.replace('_', ' ')}, {epochs} epochs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collect", "docs"])
    parser.add_argument("runs_dir", type=Path, nargs="?", default=Path("runs"))
    arguments = parser.parse_args()
    if arguments.what == "collect":
        new = collected(arguments.runs_dir)
        write(
            CSV,
            FIELDS,
            KEYS,
            merged(read(CSV), new, KEYS, ("validation", "test", "guarded", "constant", "offsets", "torch")),
        )
        print(f"{len(new)} runs, {len(read(CSV))} in all")
    else:
        rows = read(CSV)
        rows += others(rows, read(WHY))
        file = PAGE.parent / "figures" / "beyond_images.png"
        tallied, whole, picture = tally_table(rows), table(rows), figure(rows)
        picture.savefig(file, dpi=110)
        put(PAGE, "images-tally", tallied)
        put(PAGE, "first", first_table(rows))
        put(PAGE, "images", f"![deferral losses relative to mild_uniform's](figures/{file.name})\n\n{whole}")


if __name__ == "__main__":
    main()
