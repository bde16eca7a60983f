"""Which method to start with on images: docs/beyond.md, from bench/results/paper_runs.csv (`make evidence`)."""

import statistics
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from matplotlib.figure import Figure

import paper_runs
import records
from l2d.analysis.report.averages import Losses, differences, interval_of, mean_and_variances, paired_interval
from l2d.analysis.report.tables import interval_text
from records import Row

METHODS = {
    ("tdef", ""): "tdef",
    ("mild", ""): "mild",
    ("plugin", ""): "plugin",
    ("cost_regression", ""): "cost_regression",
    ("label_regression", "1"): "label_regression, weight 1",
    ("label_regression", "4"): "label_regression, weight 4",
}
LABELS, NO_LABELS, MILD = "label_regression, weight 4", "cost_regression", "mild"
FAR = 0.02  # of the best method's loss
Cell = tuple[str, ...]
Tried = dict[str, list[Row]]  # runs by method


@cache
def cells() -> dict[Cell, Tried]:
    """The cells in which all methods were run with recipe=fast and learned from outcomes of the same kind: of simulated experts, or
    held-out ones of trained experts."""
    rows, _ = paper_runs.stored()
    same = [row for row in rows if row["recipe"] == "fast" and row["cross_fit"] != "1"]
    found = {}
    for cell, members in records.grouped(same, lambda row: tuple(row[key] for key in paper_runs.CELL)).items():
        by_method = records.grouped(members, lambda row: METHODS.get((row["method"], row["label_weight"]), ""))
        tried = {name: by_method[name] for name in METHODS.values() if len(by_method.get(name, ())) >= 3}
        if len(tried) == len(METHODS):
            found[cell] = tried
    return dict(sorted(found.items(), key=lambda pair: (pair[0][2], pair[0][4], pair[0][0], pair[0][1])))


def title(cell: Cell) -> str:
    dataset, setup, experts, cross_fit, cost = cell
    return f"{records.cell_title(dataset, setup, experts, cross_fit)}, {'errors' if cost == 'error' else 'prices'}"


def means(tried: Tried, column: str = "test") -> dict[str, float]:
    return {name: statistics.fmean(float(row[column]) for row in rows) for name, rows in tried.items()}


def losses(tried: Tried, name: str) -> Losses:
    return paper_runs.losses(tried[name], paper_runs.stored()[1])


def losses_table() -> str:
    """A line for each cell: the methods' losses, and the recommended one against MILD and against the best of the others."""
    lines, used = [], list[Row]()
    for cell, tried in cells().items():
        found = means(tried)
        least = min(found.values())
        shown = [f"**{loss:.4f}**" if loss == least else f"{loss:.4f}" for loss in found.values()]
        others = min(loss for name, loss in found.items() if name != LABELS)
        ahead = f"{100 * (found[LABELS] / others - 1):+.1f} %"
        lines.append([title(cell), *shown, against(tried, LABELS, MILD), ahead])
        used += [row for rows in tried.values() for row in rows]
    head = ["cell", *METHODS.values(), f"{LABELS} − {MILD}, 95 %", "to the best of the others"]
    return f"{records.markdown(head, lines)}\n\n`bench/beyond.py`; {paper_runs.count(used)} runs; {records.made(used)}."


def excess(found: Mapping[str, float], name: str) -> float:
    """Relative to the best of the other methods; another weight of the label makes no other method."""
    rivals = [loss for other, loss in found.items() if other.split(",")[0] != name.split(",")[0]]
    return found[name] / min(rivals) - 1


def against(tried: Tried, name: str, other: str) -> str:
    both = [losses(tried, one) for one in (name, other)]
    known = all(np.ndim(loss) for some in both for loss in some.values())
    return interval_text(paired_interval(*both)) + ("" if known else " \\*")


def tally_table() -> str:
    """A line for each method, over the cells."""
    head = ["method", "cells", "at or below the best of the others in", f"more than {FAR:.0%} above it in"]
    head += ["most above it", f"relative to {MILD}, mean", "less in", "surely", "more in", "surely"]
    lines = []
    for name in METHODS.values():
        above, relative, sure = [], [], []
        for tried in cells().values():
            found = means(tried)
            above.append(excess(found, name))
            relative.append(found[name] / found[MILD] - 1)
            sure.append(paired_interval(losses(tried, name), losses(tried, MILD)) or (0.0, 0.0, 0.0))
        line = [len(above), sum(one <= 0 for one in above), sum(one > FAR for one in above), f"{max(above):+.1%}"]
        less = sum(one < 0 for one in relative), sum(high < 0 for _, _, high in sure)
        more = sum(one > 0 for one in relative), sum(low > 0 for _, low, _ in sure)
        beside = [""] * 5 if name == MILD else [f"{statistics.fmean(relative):+.1%}", *less, *more]
        lines.append([name, *map(str, [*line, *beside])])
    return records.markdown(head, lines)


def weights_table() -> str:
    """Validation losses of the two weights of the label, relative to the better one: the default is chosen by their mean."""
    weights = [name for name in METHODS.values() if name.startswith("label_regression")]
    found, lines = [means(tried, "validation") for tried in cells().values()], []
    for name in weights:
        above = [one[name] / min(one[weight] for weight in weights) - 1 for one in found]
        lines.append([name, f"{statistics.fmean(above):+.2%}", str(sum(one == 0 for one in above))])
    return records.markdown(["validation loss", "above the better weight, mean", "better or equal in"], lines)


def relative_to_mild(name: str, wanted: Mapping[str, str]) -> tuple[float, float, float]:
    """The mean over the cells of the relative difference to MILD, with its 95 % interval: cells are other datasets."""
    relative, parts = list[float](), list[tuple[float, float]]()
    for cell, tried in cells().items():
        if wanted.items() <= dict(zip(paper_runs.CELL, cell, strict=True)).items():
            loss = means(tried)[MILD]
            mean, variances = mean_and_variances(differences(losses(tried, name), losses(tried, MILD)))
            relative.append(mean / loss)
            parts += [(variance / loss**2, degrees) for variance, degrees in variances]
    number = len(relative)
    return interval_of(sum(relative) / number, [(variance / number**2, degrees) for variance, degrees in parts])


def headline() -> str:
    """A line for the summary of docs/verdicts.md."""
    trained = {"experts": "trained", "setup": "III", "cost": "error"}
    texts = [f"`{name}` {percent_text(relative_to_mild(name, trained))}" for name in (LABELS, NO_LABELS)]
    best = sum(excess(means(tried), LABELS) <= 0 for tried in cells().values())
    return (
        f"**Beyond the paper.** Deferral loss relative to MILD's with trained experts, setup III, errors: {' and '.join(texts)}"
        f" (95 %; the mean of the sets). `{LABELS}` is at or below the best of four others in {best} of {len(cells())} cells."
    )


def percent_text(interval: Sequence[float]) -> str:
    mean, low, high = (100 * one for one in interval)
    return f"{mean:+.0f} % [{low:+.0f}, {high:+.0f}]"


def figure() -> Figure:
    """Each run's deferral loss divided by MILD's mean in its cell."""
    drawn = [name for name in METHODS.values() if name != MILD]
    picture = Figure(figsize=(8.5, 0.45 * len(cells()) + 1.5), layout="constrained")
    axes = picture.subplots()
    for number, name in enumerate(drawn):
        for line, tried in enumerate(cells().values()):
            found = [float(row["test"]) / means(tried)[MILD] for row in tried[name]]
            at = line + (number - (len(drawn) - 1) / 2) * 0.8 / len(drawn)
            axes.plot(found, [at] * len(found), ".", color=f"C{number}", alpha=0.5)
            axes.plot(statistics.fmean(found), at, "o", color=f"C{number}", label="_" if line else name)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(cells())), [title(cell) for cell in cells()])
    axes.invert_yaxis()
    for line in range(len(cells()) - 1):
        axes.axhline(line + 0.5, color="lightgrey", linewidth=0.8)
    axes.set(xlabel=f"test deferral loss ÷ {MILD}'s mean; small dots: seeds")
    axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.3, 1), ncols=3)
    return picture
