"""A curve for a reader: a table, a CSV file, a picture."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from itertools import cycle
from typing import TYPE_CHECKING, Any

from l2d.analysis.curve.trace import GUARDED, REACHED, Curve, Mark, points_by_curve
from l2d.config.identity import NAMED
from l2d.core.prices import Prices
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
    """The label of a kind of mark, or of a repriced method; guarded or not."""
    name = kind.removesuffix(GUARDED)
    return LABELS.get(name, f"{name}, one run for all prices") + kind[len(name) :]


def curve_csv(curve: Curve) -> str:
    text = io.StringIO()
    rows = [[field.name for field in fields(Mark)], *map(astuple, curve.marks)]
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def curve_text(curve: Curve) -> str:
    found, two, prices = curve.summary, curve.summary["apgr"] is not None, curve.prices
    guarded = {mark.at: mark for mark in curve.of("guarded") if not mark.name}
    rows = []
    for mark in curve.of("router"):
        at = prices.setting(mark.at)
        rows.append([f"router, {at}", *_cells(mark, two, prices)])
        if mark.at in guarded and guarded[mark.at].point != mark.point:
            rows.append([f"router, guarded, {at}", *_cells(guarded[mark.at], two, prices)])
    rows += [[f"always {mark.name}", *_cells(mark, two, prices)] for mark in curve.of("single")]
    title, scales = " ".join(found[key] for key in NAMED), len(found["scales"])
    listed = ", ".join(prices.short(model["price"]) for model in found["models"])  # groups may differ in nothing else
    loss = ["loss a query"] if prices.sign else []
    lines = [
        f"{title} (prices {listed}): {scales} scale{'s' if scales > 1 else ''}, {found['rows']:,} rows",
        aligned(["held-out rows", "price", "error", *loss, "std", "seeds", *(["APGR"] if two else [])], rows),
        *prices.latency_notes,
        areas_line(found),
        reached_line(curve),
        *gains_lines(curve),
    ]
    for name, run in found["repriced"].items():
        where = "its points are in curve.csv" if run in found["runs"].values() else run
        lines.append(f"{curve_label(name)}: {where}{guard_said(curve, name)}")
    return "\n".join(lines if found["cascade"] else [*lines, NO_CASCADE])


def guard_said(curve: Curve, method: str) -> str:
    """At how many multiples of the prices the guard would send everything to one model."""
    own = {mark.at: mark.point for mark in curve.of("repriced") if mark.name == method}
    guarded = {mark.at: mark.point for mark in curve.of("guarded") if mark.name == method}
    changed = sum(own[at] != point for at, point in guarded.items())
    told = f"changes {changed} of its {len(own)} points, to one model for all" if changed else "changes no point"
    return f"; the guard {told}" if guarded else ""


def _cells(mark: Mark, two: bool, prices: Prices) -> list[str]:
    spread = "-" if mark.error_std is None else f"{mark.error_std:.4f}"
    gap = ["" if mark.apgr is None else f"{mark.apgr:.4f}"] if two else []
    whole = prices.loss(mark.error, mark.price)
    loss = [] if whole is None else [prices.money(whole)]
    return [prices.show_amount(mark.price), f"{mark.error:.4f}", *loss, spread, str(mark.seeds), *gap]


def areas_line(found: dict[str, Any]) -> str:
    areas = "; ".join(f"{curve_label(kind)} {value:.4f}" for kind, value in found["auc"].items() if value is not None)
    spread = "" if found["auc_std"] is None else f" (std of the router's {found['auc_std']:.4f})"
    return f"AUC, mean accuracy from the cheapest to the dearest model's price: {areas or 'none, all prices are equal'}{spread}"


def reached_line(curve: Curve) -> str:
    reached = "; ".join(  # labels have commas
        f"{curve_label(kind)} {'never' if price is None else curve.prices.show_amount(price)}"
        for kind, price in curve.summary["price_to_reach"].items()
        if kind != "cascade" or curve.of(kind)
    )
    return f"price at which {REACHED:.0%} of {curve.summary['strong']}'s accuracy is reached: {reached}"


def gains_lines(curve: Curve) -> list[str]:
    """The figures of public benchmarks. Random mixtures gain nothing, so they are compared by AIQ alone."""
    found, budget = curve.summary, curve.prices.short(curve.summary["budget"])
    strong, shown = found["strong"], [kind for kind in found["gain_at_budget"] if kind != "mixture"]
    gains = "; ".join(
        f"{curve_label(kind)} {round(gain, 4) + 0.0:+.4f}"
        + ("" if (share := found["gap_closed"][kind]) is None else f" ({share:.0%} of the oracle's)")
        for kind in shown
        if (gain := found["gain_at_budget"][kind]) is not None
    )
    shares = {kind: found["price_saved"][kind] for kind in shown}
    words = {kind: "never as accurate" if share is None else f"{share:.0%}" for kind, share in shares.items()}
    saved = "; ".join(f"{curve_label(kind)} {word}" for kind, word in words.items())
    areas = "; ".join(f"{curve_label(kind)} {value:.4f}" for kind, value in found["aiq"].items() if value is not None)
    lines = [f"AIQ, mean accuracy on the hull of the points: {areas or 'none, all prices are equal'}"]
    if not shown:
        return [*lines, "no curve of a router: gains and savings need one"]
    return [
        *lines,
        f"accuracy gained on {strong} at its price, {budget}: {gains or 'none, all points are dearer'}",
        f"price saved at {strong}'s accuracy: {saved}",
    ]


def gains_table(summaries: Sequence[Mapping[str, Any]]) -> str:
    """The same figures of several curves as Markdown, a row per curve and method; empty if there are none."""
    head = [*NAMED, "curve", "AIQ", "gain at the budget", "of the oracle's gap", "price saved at equal accuracy"]
    lines = []
    for found in summaries:
        for kind, gain in found.get("gain_at_budget", {}).items():
            area, share, saved = (found[name][kind] for name in ("aiq", "gap_closed", "price_saved"))
            told = [(area, ".4f"), (gain, "+.4f"), (share, ".0%"), (saved, ".0%")]
            numbers = ["" if x is None else f"{x:{form}}" for x, form in told]
            lines.append(f"| {' | '.join([*(found[key] for key in NAMED), curve_label(kind), *numbers])} |")
    if not lines:
        return ""
    about = "The budget is the price of the most accurate model. The gain is in accuracy, over the best model within the budget."
    table = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines]
    return "\n".join(["### Error against price", "", about, "", *table, ""])


def curve_figure(curve: Curve) -> "Figure":
    """Mean price per query against error, lower left is better; bars are one standard deviation over seeds."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(8, 5.5), layout="constrained")
    axes, summary, drawn = picture.subplots(), curve.summary, points_by_curve(curve.marks)
    for kind, style in STYLES.items():
        if marks := curve.of(kind):
            axes.plot(*_xy(marks), label=LABELS[kind], **style)
    for method, colour in zip(sorted(summary["repriced"]), cycle(COLOURS), strict=False):
        marks = [mark for mark in curve.of("repriced") if mark.name == method]
        axes.plot(*_xy(marks), color=colour, label=curve_label(method))
        if (name := f"{method}{GUARDED}") in drawn:
            marks = [mark for mark in curve.of("guarded") if mark.name == method]
            axes.plot(*_xy(marks), color=colour, linestyle=":", marker=".", label=curve_label(name))
    _draw_router(axes, curve)
    _draw_models(axes, curve.of("single"))
    seeds = sorted({mark.seeds for mark in curve.of("router")})
    many = f"{' to '.join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))} seed{'s' if seeds[-1] > 1 else ''}"
    title = f"{summary['dataset']}, {summary['setup']}: {summary['rows']:,} test queries, {many}"
    money = ", $" if curve.prices.sign else ""
    axes.set(xlabel=f"{curve.prices.mean_price} per query{money}", ylabel="error (%)", title=title)
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
    if (name := f"router{GUARDED}") in points_by_curve(curve.marks):
        guarded = [mark for mark in curve.of("guarded") if not mark.name]
        axes.plot(*_xy(guarded), color="tab:blue", linestyle=":", marker="o", markerfacecolor="none", label=name)


def _draw_models(axes: Any, models: Sequence[Mark]) -> None:
    axes.plot(*_xy(models), "ks", label="one model for all")
    middle = (min(mark.price for mark in models) + max(mark.price for mark in models)) / 2
    for mark in models:  # names stay inside the frame
        side, shift = ("left", (4, 4)) if mark.price <= middle else ("right", (-6, -12))
        at = (mark.price, 100 * mark.error)
        axes.annotate(mark.name, at, xytext=shift, textcoords="offset points", ha=side, fontsize=8)
