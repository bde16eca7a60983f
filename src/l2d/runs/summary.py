"""A run's result as a table and as a picture, from the content of metrics.json alone."""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from l2d.core.results import GuardEvidence, RunMetrics, Score
from l2d.utils.text import aligned, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURE = 2  # standard errors that a gain on the test split must exceed to count
ENOUGH = 30  # test rows for a verdict
FEW = 3  # categories shown at each end: the largest gains and the smallest


def result_table(metrics: RunMetrics) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the router first, then what it is compared with."""
    baselines = metrics.baselines
    scores: dict[str, Score] = {
        "router": metrics,
        **({"router, guarded": metrics.guarded} if shows_guarded(metrics) else {}),
        "oracle": baselines.oracle,
        "best single expert": baselines.best_single,
        **({"nearest neighbours": near} if (near := baselines.nearest_neighbours) else {}),
        **({"per-category table": table} if (table := baselines.category_table) else {}),
        "random expert": baselines.random,
        "always the majority expert": baselines.majority,
    }
    judged = "every row, held out once" if cross_validated(metrics) else "test split"
    header = [judged, "deferral loss", "error rate", "mean price", *(expert.name for expert in metrics.experts)]
    return header, [
        [name, *_fixed(row.deferral_loss, row.error_rate, row.mean_price), *(f"{ratio:.1%}" for ratio in row.ratios)]
        for name, row in scores.items()
    ]


def shows_guarded(metrics: RunMetrics) -> bool:
    """Also if only the guards of some folds change decisions: the verdict goes by these."""
    differs = cross_validated(metrics) and metrics.guarded.deferral_loss != metrics.deferral_loss
    return metrics.guarded.changes_decisions or differs


def cross_validated(metrics: RunMetrics) -> bool:
    """Whether every row was judged by a router that did not see it. Then the guard was fitted to the same rows."""
    return metrics.evaluation == "cross_validate"


def _fixed(*values: float) -> list[str]:
    return [f"{value:.4f}" for value in values]


def format_line(metrics: RunMetrics) -> str:
    """The result of one run among many."""
    guarded = f", guarded {metrics.guarded.deferral_loss:.4f}" if metrics.guarded.changes_decisions else ""
    single, oracle = metrics.baselines.best_single.deferral_loss, metrics.baselines.oracle.deferral_loss
    return f"deferral loss {metrics.deferral_loss:.4f}{guarded} (best single expert {single:.4f}, oracle {oracle:.4f})"


def format_table(metrics: RunMetrics) -> str:
    """The table as aligned text, with notes beneath it."""
    lines = aligned(*result_table(metrics)).splitlines()
    lines.insert(4 if shows_guarded(metrics) else 3, lines[1])
    kept, epochs = metrics.kept_epoch, metrics.epochs
    if kept != epochs:
        lines.append(f"checkpoint={metrics.checkpoint}: the weights are those of epoch {kept} of {epochs}")
    if metrics.rho:
        lines.append(f"ρ: {', '.join(f'{value:.4g}' for value in metrics.rho)}")
    lines += [*collapse_warning(metrics), guard_line(metrics), verdict_line(metrics)]
    if (found := metrics.extreme) is not None:
        lines.append(
            f"cost=extreme: prices {', '.join(f'{price:g}' for price in found.prices)}; the oracle gives {found.expert}"
            f" {found.share_train:.1%} of the training rows (target {found.target:.0%}) and {found.share_test:.1%} of the test rows"
        )
    return "\n".join([*lines, *category_lines(metrics)])


def collapse_warning(metrics: RunMetrics) -> list[str]:
    """Says what to try with this method. Empty if there is nothing to try and the guard's line says the same already."""
    if metrics.collapsed_expert is None:
        return []
    k = metrics.collapsed_expert - 1
    name, tries = metrics.experts[k].name, []
    if metrics.decision == "argmax" and metrics.capabilities.has_posterior:
        tries.append("decision=posterior")
    if metrics.rho:
        tries.append("one ρ for all or a larger one (method.rho)")
    if not tries and metrics.guarded.constant == name:
        return []
    return [
        f"WARNING: the router has collapsed: {name} gets {metrics.ratios[k]:.1%} of the inputs, the oracle would give it"
        f" {metrics.baselines.oracle.ratios[k]:.1%}. Try {', '.join([*tries, 'more epochs', 'another method'])}."
    ]


def guard_line(metrics: RunMetrics) -> str:
    guarded, seen = metrics.guarded, metrics.guarded.validation
    error, where = _plus_minus(seen), "held-out rows" if cross_validated(metrics) else "validation"
    gain = f"{seen.gain:+.4f}{error} per input"
    if guarded.constant is not None:
        return (
            f"guard: sends everything to {guarded.constant}; on {where} {_no_gain(seen)}"
            f" ({counted(metrics.rows.validation, 'row')}); l2d route --raw asks the router instead"
        )
    if guarded.offsets is None:
        return f"guard: leaves the router as it is; on {where} its gain over {seen.best_constant} alone is {gain}"
    names = (expert.name for expert in metrics.experts)
    offsets = ", ".join(f"{name} {offset:+.3g}" for name, offset in zip(names, guarded.offsets, strict=True))
    return (
        f"guard: adds offsets to the experts' scores ({offsets}); on {where} the router's gain over"
        f" {seen.best_constant} alone is then {gain}; l2d route --raw leaves them out"
    )


def _no_gain(seen: GuardEvidence) -> str:
    if seen.standard_error is None:
        return "there are too few rows to tell"
    return (
        f"the router costs {-seen.gain:.4f}{_plus_minus(seen)} more per input"
        if seen.gain < 0
        else "the router costs no less"
    )


def verdict_line(metrics: RunMetrics) -> str:
    """Whether routing pays, with the guard, as the router will be used."""
    guarded, seen = metrics.guarded, metrics.guarded.test
    if metrics.rows.test < ENOUGH:
        tested = counted(metrics.rows.test, "test row")
        return f"verdict: unclear. Too few rows to tell: {tested}, and at least {ENOUGH} are needed."
    first, then = ("held-out rows", "held-out rows") if cross_validated(metrics) else ("validation", "the test split")
    if guarded.constant is not None:
        return f"verdict: use {guarded.constant} alone. No gain from routing could be shown on {first}."
    found = f"On {then} it costs {abs(seen.gain):.4f}{_plus_minus(seen)} {{}} per input than {seen.best_constant} alone"
    if seen.gain <= 0:
        before = "The guard keeps the router" if cross_validated(metrics) else "Routing gained on validation"
        same = f"On {then} it costs the same as {seen.best_constant} alone"
        return f"verdict: unclear. {before}. {found.format('more') if seen.gain < 0 else same}."
    if seen.standard_error is None or seen.gain <= SURE * seen.standard_error:
        return f"verdict: routing may pay. {found.format('less')}, which may be chance."
    alone = guarded.deferral_loss + seen.gain
    way = seen.gain / (alone - metrics.baselines.oracle.deferral_loss)
    return f"verdict: routing pays. {found.format('less')}: {seen.gain / alone:.0%} less, {way:.0%} of the way to the oracle."


def _plus_minus(seen: GuardEvidence) -> str:
    """The standard error of a gain; one row has none."""
    return "" if seen.standard_error is None else f" ± {seen.standard_error:.4f}"


def category_lines(metrics: RunMetrics) -> list[str]:
    """Categories by the router's gain over the best single expert, largest first; if there are many, the first and last few."""
    found = metrics.by_category or {}
    if len(found) < 2:
        return []
    gains = {name: row.best_single - row.deferral_loss for name, row in found.items()}
    rows = [
        [name, str(row.rows), *_fixed(row.deferral_loss, row.best_single, row.oracle), f"{gains[name]:+.4f}"]
        for name, row in sorted(found.items(), key=lambda item: -gains[item[0]])
    ]
    if len(rows) > 2 * FEW:
        rows[FEW:-FEW] = [[f"({len(rows) - 2 * FEW} others)", *[""] * 5]]
    text = aligned(["category", "rows", "router", "best single expert", "oracle", "gain"], rows)
    return ["", *(line.rstrip() for line in text.splitlines())]


def write_run_picture(metrics: RunMetrics, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(run_figure(metrics)).print_png(path)  # type: ignore[no-untyped-call]  # savefig draws twice


def run_figure(metrics: RunMetrics) -> "Figure":
    """Shares per expert beside the oracle's, and the router's choice against the oracle's."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(10, 4), layout="constrained")
    bars, grid = picture.subplots(1, 2)
    names, places = [expert.name.removeprefix("expert ") for expert in metrics.experts], range(len(metrics.experts))
    for shift, label, score in ((-0.2, "router", metrics), (0.2, "oracle", metrics.baselines.oracle)):
        bars.bar([i + shift for i in places], [100 * ratio for ratio in score.ratios], width=0.4, label=label)
    bars.set_xticks(places, names)
    bars.set(xlabel="expert", ylabel="inputs sent to it (%)", title=f"deferral loss {metrics.deferral_loss:.4f}")
    bars.legend()
    shares = [[count / max(1, sum(row)) for count in row] for row in metrics.confusion]
    grid.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in product(places, places):
        colour = "white" if shares[i][j] > 0.6 else "black"
        grid.text(j, i, str(metrics.confusion[i][j]), ha="center", va="center", color=colour)
    grid.set_xticks(places, names)
    grid.set_yticks(places, names)
    grid.set(xlabel="router's expert", ylabel="oracle's expert", title="test inputs")
    return picture
