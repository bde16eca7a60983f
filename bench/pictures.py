"""The pictures of README.md and the documentation, from bench/results/ into docs/pictures/: python bench/pictures.py"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from l2d.utils.text import Z
from records import DOCS, RESULTS, Row, mean_of, mean_shares, paper_runs, read, title_of

BLUE, ORANGE, GREEN, RED, GREY = "#3b6fb6", "#e08a2e", "#3f8f55", "#c0504d", "#8a8a8a"
# Deterministic files: otherwise ids of SVG elements and the date would differ.
STYLE: dict[Any, Any] = {"svg.hashsalt": "l2d", "figure.facecolor": "white", "savefig.facecolor": "white"}
STYLE |= {"font.size": 10.5, "axes.spines.top": False, "axes.spines.right": False}

# What flow.svg shows, by title: benchmark, prices and method of benchmarks.csv.
GAINS = {
    "RouterDC: 7 models, 5 tasks, no prices": ("routerdc", "", "label_regression"),
    "MMLU: 3 Llamas, prices 0.3, 0.15, 0": ("mmlu, llama", "0.3 0.15 0", "mix, by label"),
    "MMLU: 3 Mistrals, prices 0.2, 0.1, 0": ("mmlu, mixtral", "0.2 0.1 0", "mix, by label"),
    "MMLU: 3 Llamas, no prices": ("mmlu, llama", "0 0 0", "mix, by label"),
}

# What collapse.svg shows.
CELL = {"dataset": "svhn", "setup": "III", "experts": "synthetic", "cost": "error"}


def flow(benchmarks: Sequence[Row]) -> Figure:
    """A log goes in, a router comes out, and what it saves. benchmarks: rows of bench/results/benchmarks.csv."""
    picture = Figure(figsize=(8, 3.6), layout="constrained")
    left, middle, right = picture.subplots(1, 3, width_ratios=[3.1, 2.5, 3.4])
    titles = ("What goes in:\na log of who was right", "What comes out:\none expert per query")
    for axes, title in zip((left, middle), titles, strict=True):
        axes.set_title(title, fontweight="bold", fontsize=11)
        axes.set(xlim=(0, 10), ylim=(0, 6))
        axes.axis("off")
    _draw_log(left)
    _draw_router(middle)
    gains = [gain_of(benchmarks, *case) for case in GAINS.values()]
    places = range(len(gains), 0, -1)
    right.axvline(0, color="0.3", lw=1)
    for y, title, (gain, interval) in zip(places, GAINS, gains, strict=True):
        pays = gain > interval
        said = f"{gain:.1f} ± {interval:.1f}" if pays else "0: “use one model”"
        right.errorbar(gain, y, xerr=interval, fmt="o", color=BLUE if pays else GREY, capsize=4, lw=2)
        right.text(0.15, y + 0.34, title, fontsize=9, va="center")
        right.text(gain + interval + 0.25, y, said, fontsize=9.5, va="center", fontweight="bold")
    right.set(xlim=(-0.3, 8.3), ylim=(0.5, len(gains) + 0.6), yticks=[], xticks=[0, 2, 4, 6])
    right.spines["left"].set_visible(False)
    right.set_title("What it saves, per 100 questions:\nerrors + prices, ± 95 %", fontweight="bold", fontsize=11)
    answers = "Right: real answers of real models to held-out questions, against always asking the best single one."
    price = "A price of 0.3 counts as 0.3 errors (bench/results/benchmarks.csv, docs/benchmarks.md)."
    _note(picture, f"Left and middle: an example. {answers} {price}")
    return picture


def gain_of(rows: Sequence[Row], benchmark: str, prices: str, method: str) -> tuple[float, float]:
    """What the guarded router saves per 100 questions, and half of the 95 % interval: means over seeds."""
    found = [row for row in rows if (row["benchmark"], row["prices"], row["method"]) == (benchmark, prices, method)]
    return 100 * mean_of(found, "guarded_gain"), 100 * Z * mean_of(found, "guarded_error")


def _draw_log(axes: Axes) -> None:
    """A table of queries, who was right, and at what price."""
    columns = (5.4, 7.3, 9.3)
    for x, name in zip(columns, ("small", "medium", "large"), strict=True):
        axes.text(x, 5.4, name, ha="center", fontsize=9.5)
    right = {"tell me a story": "✓✓✓", "sort this list": "✗✓✓", "solve x² = 7": "✗✗✓", "a film for tonight": "✓✓✗"}
    for line, (query, marks) in enumerate(right.items()):
        y = 4.5 - 0.85 * line
        axes.text(0, y, query, fontsize=9.5, va="center")
        for x, mark in zip(columns, marks, strict=True):
            axes.text(x, y, mark, ha="center", va="center", fontsize=13, color=GREEN if mark == "✓" else RED)
    axes.plot([0, 10], [1.45, 1.45], color=GREY, lw=0.8)
    axes.text(0, 0.9, "price of a call", fontsize=9.5, va="center")
    for x, price in zip(columns, ("0.02", "0.1", "0.4"), strict=True):
        axes.text(x, 0.9, price, ha="center", va="center", fontsize=9.5)


def _draw_router(axes: Axes) -> None:
    arrow = {"arrowstyle": "-|>", "color": "0.25", "lw": 1.3}
    axes.text(0, 4.6, "a new query", fontsize=9.5, va="center")
    axes.annotate("", (2.2, 3.45), (1.2, 4.35), arrowprops=arrow)
    axes.add_patch(FancyBboxPatch((1.5, 2.4), 2.9, 1.0, boxstyle="round,pad=0.15", fc=BLUE, ec="none"))
    axes.text(2.95, 2.9, "router", color="white", ha="center", va="center", fontweight="bold")
    for y, name, chosen in ((4.6, "small", False), (2.9, "medium", True), (1.2, "large", False)):
        axes.annotate("", (6.6, y), (4.65, 2.9), arrowprops=arrow | ({} if chosen else {"color": "0.8"}))
        colour = ORANGE if chosen else "0.92"
        axes.add_patch(FancyBboxPatch((6.8, y - 0.42), 2.9, 0.84, boxstyle="round,pad=0.1", fc=colour, ec="none"))
        axes.text(8.25, y, name, ha="center", va="center", color="black" if chosen else "0.5", fontsize=9.5)
    axes.text(0, 0.15, "least expected error + price", fontsize=9.5, va="center")


def collapse(rows: Sequence[Row], default: Sequence[Row]) -> Figure:
    """Shares of the oracle, of a router that collapsed, and of MILD. rows: of bench/results/collapse.csv. default: MILD's runs of
    paper_runs.csv."""
    bare = [row for row in rows if CELL.items() <= row.items()]
    panels = [
        ("oracle", mean_shares(bare, "oracle"), None, GREEN),
        ("collapsed:\nunequal ρ,\nargmax", mean_shares(bare), mean_of(bare, "argmax"), RED),
        ("same network,\nposterior\ndecision", mean_shares(bare, "posterior_ratios"), mean_of(bare, "posterior"), BLUE),
        ("mild:\nnearly equal ρ,\nargmax", mean_shares(default), mean_of(default, "test"), BLUE),
    ]
    picture = Figure(figsize=(8, 3.6), layout="constrained")
    for axes, (title, shares, loss, colour) in zip(picture.subplots(1, 4, sharey=True), panels, strict=True):
        axes.bar([str(k + 1) for k in range(len(shares))], [100 * share for share in shares], color=colour)
        axes.set_title(title, fontsize=10.5, fontweight="bold")
        axes.set(xlabel="expert", ylim=(0, 105))
        said = "knows the answers" if loss is None else f"deferral loss\n{loss:.3f}"
        axes.text(0.5, 0.98, said, transform=axes.transAxes, ha="center", va="top", fontsize=9.5)
    picture.axes[0].set_ylabel("inputs sent to it (%)")
    where = f"{title_of('svhn')}, setup III, five simulated experts, errors only, mean of {len(bare)} seeds"
    _note(picture, f"{where}, {int(bare[0]['n']):,} test images (bench/results/collapse.csv, paper_runs.csv).")
    return picture


def _note(picture: Figure, text: str) -> None:
    picture.supxlabel("\n".join(textwrap.wrap(text, 125)), fontsize=8.5, color="0.35", x=0.01, ha="left")


def draw(out: Path) -> list[Path]:
    """All pictures, from the committed figures alone."""
    with mpl.rc_context(STYLE):
        default = paper_runs(method="mild", recipe="fast", **CELL)
        pictures = {"flow.svg": flow(read(RESULTS / "benchmarks.csv"))}
        pictures["collapse.svg"] = collapse(read(RESULTS / "collapse.csv"), default)
        out.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            picture.savefig(out / name, dpi=100, metadata={"Date": None})  # no date and no version of matplotlib
    return [out / name for name in pictures]


if __name__ == "__main__":
    for file in draw(DOCS / "pictures"):
        print(f"{file} ({file.stat().st_size / 1000:.0f} kB)")
