"""A curve for a reader: a table, a CSV file, a picture."""

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from l2d.analysis.curve.trace import REACHED, Curve, Mark
from l2d.config.identity import NAMED
from l2d.core.prices import Prices
from l2d.utils.text import aligned, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_CASCADE = "no confidence cascade: run the same command with method=one_vs_all cost.scale=0"
LABELS = {"router": "router", "mixture": "random mixtures", "cascade": "confidence cascade", "oracle": "oracle"}
STYLES: dict[str, dict[str, Any]] = {
    "mixture": {"color": "0.5", "linestyle": "--"},
    "cascade": {"color": "tab:orange", "linestyle": "-."},
    "oracle": {"color": "tab:green", "linestyle": ":"},
}
COLOURS = ("tab:red", "tab:purple", "tab:brown")  # of repriced methods, in turn
FIGURES = {  # by title: the key of the summary, and how it is shown
    "AUC": ("auc", ".4f"),
    "AIQ": ("aiq", ".4f"),
    "gain at the budget": ("gain_at_budget", "+z.4f"),
    "of the oracle's gap": ("gap_closed", ".0%"),
    "price saved at equal accuracy": ("price_saved", ".0%"),
}


def curve_label(kind: str) -> str:
    return LABELS.get(kind, f"{kind}, one run for all prices")


def curve_text(curve: Curve) -> str:
    found, prices = curve.summary, curve.prices
    error_price = None if prices.error_price is None else f"cost.error_price={prices.error_price:g}"
    rows = [[f"router, {error_price or f'cost.scale={one.at:g}'}", *_cells(one, prices)] for one in curve.of("router")]
    rows += [[f"always {mark.name}", *_cells(mark, prices)] for mark in curve.of("single")]
    title, figures = " ".join(found[key] for key in NAMED), list[list[str]]()
    for kind in found["gain_at_budget"]:
        price = found["price_to_reach"][kind]
        cells = ["" if (x := found[name].get(kind)) is None else f"{x:{form}}" for name, form in FIGURES.values()]
        figures.append([curve_label(kind), "never" if price is None else prices.show_amount(price), *cells])
    listed = ", ".join(prices.short(model["price"]) for model in found["models"])  # groups may differ in nothing else
    loss = ["loss a query"] if prices.sign else []
    lines = [
        f"{title} (prices {listed}): {counted(len(found['scales']), 'scale')}, {counted(found['rows'], 'row')}",
        aligned(["held-out rows", "price", "error", *loss, "std", "seeds"], rows),
        *prices.latency_notes,
        "",
        aligned(["curve", f"price at {REACHED:.0%} of {found['strong']}", *FIGURES], figures),
        f"budget: {prices.short(found['budget'])}, the price of {found['strong']}",
    ]
    for name, run in found["repriced"].items():
        where = "its points are in curve.csv" if run in found["runs"].values() else run
        lines.append(f"{curve_label(name)}: {where}")
    return "\n".join(lines if found["cascade"] else [*lines, NO_CASCADE])


def _cells(mark: Mark, prices: Prices) -> list[str]:
    spread = "-" if mark.error_std is None else f"{mark.error_std:.4f}"
    dollars = prices.error_price
    loss = [] if dollars is None else [prices.money(mark.error * dollars + mark.price)]
    return [prices.show_amount(mark.price), f"{mark.error:.4f}", *loss, spread, str(mark.seeds)]


def curve_figure(curve: Curve) -> "Figure":
    """Mean price per query against error, lower left is better; bars are one standard deviation over seeds."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(8, 5.5), layout="constrained")
    axes, summary = picture.subplots(), curve.summary
    for kind, style in STYLES.items():
        if marks := curve.of(kind):
            axes.plot(*_xy(marks), label=LABELS[kind], **style)
    for method, colour in zip(sorted(summary["repriced"]), cycle(COLOURS), strict=False):
        axes.plot(*_xy(curve.of("repriced", method)), color=colour, label=curve_label(method))
    router = sorted(curve.of("router"), key=lambda mark: mark.point)
    yerr, xerr = [100 * (mark.error_std or 0.0) for mark in router], [mark.price_std or 0.0 for mark in router]
    label = f"router ({summary['method']})"
    axes.errorbar(*_xy(router), yerr, xerr, marker="o", markersize=4, capsize=2, color="tab:blue", label=label)
    models = curve.of("single")
    axes.plot(*_xy(models), "ks", label="one model for all")
    middle = (min(mark.price for mark in models) + max(mark.price for mark in models)) / 2
    for mark in models:  # names stay inside the frame
        side, shift = ("left", (4, 4)) if mark.price <= middle else ("right", (-6, -12))
        at = (mark.price, 100 * mark.error)
        axes.annotate(mark.name, at, xytext=shift, textcoords="offset points", ha=side, fontsize=8)
    seeds = counted(len(summary["seeds"]), "seed")
    title = f"{summary['dataset']}, {summary['setup']}: {summary['rows']:,} test queries, {seeds}"
    money = ", $" if curve.prices.sign else ""
    axes.set(xlabel=f"{curve.prices.mean_price} per query{money}", ylabel="error (%)", title=title)
    axes.legend()
    return picture


def _xy(marks: Sequence[Mark]) -> tuple[list[float], list[float]]:
    in_order = sorted(marks, key=lambda mark: mark.point)
    return [mark.price for mark in in_order], [100 * mark.error for mark in in_order]
