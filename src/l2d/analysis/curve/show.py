"""A curve for a reader: a table, a CSV file, a picture."""

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, fields
from itertools import cycle
from typing import TYPE_CHECKING, Any

from l2d.analysis.curve.trace import REACHED, Curve, Mark
from l2d.config.identity import NAMED
from l2d.utils.text import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_CASCADE = (
    "no confidence cascade: needs a finished run of one_vs_all, threshold or cascade with these data and this router"
    " (the same command with method=one_vs_all cost.scale=0 makes one)"
)
LABELS = {"router": "router", "mixture": "random mixtures", "cascade": "confidence cascade", "oracle": "oracle"}
STYLES: dict[str, dict[str, Any]] = {
    "mixture": {"color": "0.5", "linestyle": "--"},
    "cascade": {"color": "tab:orange", "linestyle": "-."},
    "oracle": {"color": "tab:green", "linestyle": ":"},
}
COLOURS = ("tab:red", "tab:purple", "tab:brown")  # of repriced methods, in turn


def curve_label(kind: str) -> str:
    """The label of a kind of mark, or of a repriced method."""
    return LABELS.get(kind, f"{kind}, one run for all prices")


def curve_csv(curve: Curve) -> str:
    text = io.StringIO()
    rows = [[field.name for field in fields(Mark)], *map(astuple, curve.marks)]
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def curve_text(curve: Curve) -> str:
    found, two = curve.summary, curve.summary["apgr"] is not None
    rows = [[f"router, cost.scale={mark.at:g}", *_cells(mark, two)] for mark in curve.of("router")]
    rows += [[f"always {mark.name}", *_cells(mark, two)] for mark in curve.of("single")]
    title, scales = " ".join(found[key] for key in NAMED), len(found["scales"])
    prices = ", ".join(f"{model['price']:.4g}" for model in found["models"])  # groups may differ in nothing else
    lines = [
        f"{title} (prices {prices}): {scales} scale{'s' if scales > 1 else ''}, {found['rows']} test rows",
        aligned(["held-out rows", "price", "error", "std", "seeds", *(["APGR"] if two else [])], rows),
        areas_line(found),
        reached_line(curve),
    ]
    for name, run in found["repriced"].items():
        own = run in found["runs"].values()
        lines.append(f"{curve_label(name)}: {'its points are in curve.csv' if own else run}")
    return "\n".join(lines if found["cascade"] else [*lines, NO_CASCADE])


def _cells(mark: Mark, two: bool) -> list[str]:
    spread = "-" if mark.error_std is None else f"{mark.error_std:.4f}"
    gap = ["" if mark.apgr is None else f"{mark.apgr:.4f}"] if two else []
    return [f"{mark.price:.4f}", f"{mark.error:.4f}", spread, str(mark.seeds), *gap]


def areas_line(found: dict[str, Any]) -> str:
    areas = "; ".join(f"{curve_label(kind)} {value:.4f}" for kind, value in found["auc"].items() if value is not None)
    spread = "" if found["auc_std"] is None else f" (std of the router's {found['auc_std']:.4f})"
    return f"AUC, mean accuracy from the cheapest to the dearest model's price: {areas or 'none, all prices are equal'}{spread}"


def reached_line(curve: Curve) -> str:
    reached = "; ".join(  # labels have commas
        f"{curve_label(kind)} {'never' if price is None else f'{price:.4f}'}"
        for kind, price in curve.summary["price_to_reach"].items()
        if kind != "cascade" or curve.of(kind)
    )
    return f"price at which {REACHED:.0%} of {curve.summary['strong']}'s accuracy is reached: {reached}"


def curve_figure(curve: Curve) -> "Figure":
    """Mean price per query against error, lower left is better; bars are one standard deviation over seeds."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(8, 5.5), layout="constrained")
    axes, summary = picture.subplots(), curve.summary
    for kind, style in STYLES.items():
        if marks := curve.of(kind):
            axes.plot(*_xy(marks), label=LABELS[kind], **style)
    for method, colour in zip(sorted(summary["repriced"]), cycle(COLOURS), strict=False):
        marks = [mark for mark in curve.of("repriced") if mark.name == method]
        axes.plot(*_xy(marks), color=colour, label=curve_label(method))
    _draw_router(axes, curve)
    _draw_models(axes, curve.of("single"))
    seeds = sorted({mark.seeds for mark in curve.of("router")})
    many = f"{' to '.join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))} seed{'s' if seeds[-1] > 1 else ''}"
    title = f"{summary['dataset']}, {summary['setup']}: {summary['rows']:,} test queries, {many}"
    axes.set(xlabel="mean price per query", ylabel="error (%)", title=title)
    axes.legend()
    return picture


def _xy(marks: Sequence[Mark]) -> tuple[list[float], list[float]]:
    in_order = sorted(marks, key=lambda mark: mark.point)
    return [mark.price for mark in in_order], [100 * mark.error for mark in in_order]


def _draw_router(axes: Any, curve: Curve) -> None:
    router = sorted(curve.of("router"), key=lambda mark: mark.point)
    yerr, xerr = [100 * (mark.error_std or 0.0) for mark in router], [mark.price_std or 0.0 for mark in router]
    label = f"router ({curve.summary['method']})"
    axes.errorbar(*_xy(router), yerr, xerr, marker="o", markersize=4, capsize=2, color="tab:blue", label=label)


def _draw_models(axes: Any, models: Sequence[Mark]) -> None:
    axes.plot(*_xy(models), "ks", label="one model for all")
    middle = (min(mark.price for mark in models) + max(mark.price for mark in models)) / 2
    for mark in models:  # names stay inside the frame
        side, shift = ("left", (4, 4)) if mark.price <= middle else ("right", (-6, -12))
        at = (mark.price, 100 * mark.error)
        axes.annotate(mark.name, at, xytext=shift, textcoords="offset points", ha=side, fontsize=8)
