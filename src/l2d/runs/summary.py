"""A run's result as a table and as a picture, from the content of metrics.json alone."""

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from l2d.core.results import Estimate, GuardEvidence, RunMetrics, Score
from l2d.utils.text import aligned, counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
        **({"oracle": oracle} if (oracle := baselines.oracle) else {}),
        "best single expert": baselines.best_single,
        **({"nearest neighbours": near} if (near := baselines.nearest_neighbours) else {}),
        **({"per-category table": table} if (table := baselines.category_table) else {}),
        "random expert": baselines.random,
        **({"always the majority expert": majority} if (majority := baselines.majority) else {}),
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
    oracle = metrics.baselines.oracle
    best = "" if oracle is None else f", oracle {oracle.deferral_loss:.4f}"
    single = f"best single expert {metrics.baselines.best_single.deferral_loss:.4f}"
    return f"deferral loss {metrics.deferral_loss:.4f}{guarded} ({single}{best})"


def format_table(metrics: RunMetrics) -> str:
    """The table as aligned text, with notes beneath it."""
    lines = aligned(*result_table(metrics)).splitlines()
    lines.insert(4 if shows_guarded(metrics) else 3, lines[1])
    kept, epochs = metrics.kept_epoch, metrics.epochs
    if kept != epochs:
        lines.append(f"checkpoint={metrics.checkpoint}: the weights are those of epoch {kept} of {epochs}")
    if metrics.rho:
        lines.append(f"ρ: {', '.join(f'{value:.4g}' for value in metrics.rho)}")
    lines += [*log_lines(metrics), *collapse_warning(metrics), guard_line(metrics), verdict_line(metrics)]
    if (found := metrics.extreme) is not None:
        lines.append(
            f"cost=extreme: prices {', '.join(f'{price:g}' for price in found.prices)}; the oracle gives {found.expert}"
            f" {found.share_train:.1%} of the training rows (target {found.target:.0%}) and {found.share_test:.1%} of the test rows"
        )
    return "\n".join([*lines, *category_lines(metrics)])


def collapse_warning(metrics: RunMetrics) -> list[str]:
    """Says what to try with this method. Empty if there is nothing to try and the guard's line says the same already."""
    oracle = metrics.baselines.oracle
    if metrics.collapsed_expert is None or oracle is None:
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
        f" {oracle.ratios[k]:.1%}. Try {', '.join([*tries, 'more epochs', 'another method'])}."
    ]


def log_lines(metrics: RunMetrics) -> list[str]:
    """How a log, which does not know every cost, judges the router."""
    log = metrics.log
    if log is None:
        return []
    asked = ", ".join(f"{expert.name} {share:.0%}" for expert, share in zip(metrics.experts, log.asked, strict=True))
    known = "given" if log.propensities == "given" else "estimated from the inputs, since the log has none"
    values = [_interval("doubly robust", log.router.doubly_robust), _interval("SNIPS", log.router.snips)]
    values.append(_interval("direct", log.router.direct))
    return [
        f"from a log: asked on {asked} of the rows; propensities {known}. All losses above are doubly robust estimates.",
        f"value of the router, 95 % intervals: {'; '.join(values)}",
        f"the log's own choices cost {_interval('', log.policy)}",
    ]


def _interval(name: str, found: Estimate | None) -> str:
    if found is None:
        return f"{name} unknown, since the log never asked the expert that the router chooses"
    half = "" if found.standard_error is None else f" ± {1.96 * found.standard_error:.4f}"
    return f"{name} {found.value:.4f}{half}".strip()


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
    oracle = metrics.baselines.oracle
    way = "" if oracle is None else f", {seen.gain / (alone - oracle.deferral_loss):.0%} of the way to the oracle"
    return f"verdict: routing pays. {found.format('less')}: {seen.gain / alone:.0%} less{way}."


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
        [
            name,
            str(row.rows),
            *_fixed(row.deferral_loss, row.best_single),
            *([] if row.oracle is None else _fixed(row.oracle)),
            f"{gains[name]:+.4f}",
        ]
        for name, row in sorted(found.items(), key=lambda item: -gains[item[0]])
    ]
    if len(rows) > 2 * FEW:
        rows[FEW:-FEW] = [[f"({len(rows) - 2 * FEW} others)", *[""] * (len(rows[0]) - 1)]]
    oracle = [] if metrics.baselines.oracle is None else ["oracle"]
    text = aligned(["category", "rows", "router", "best single expert", *oracle, "gain"], rows)
    return ["", *(line.rstrip() for line in text.splitlines())]


def write_run_picture(metrics: RunMetrics, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(run_figure(metrics)).print_png(path)  # type: ignore[no-untyped-call]  # savefig draws twice


def run_figure(metrics: RunMetrics) -> "Figure":
    """Shares per expert beside the oracle's and the router's choice against it; for a log, beside the guarded router's."""
    from matplotlib.figure import Figure

    oracle, confusion = metrics.baselines.oracle, metrics.confusion
    picture = Figure(figsize=(10 if confusion else 5, 4), layout="constrained")
    bars, *grids = picture.subplots(1, 2 if confusion else 1, squeeze=False)[0]
    names, places = [expert.name.removeprefix("expert ") for expert in metrics.experts], range(len(metrics.experts))
    other, second = ("router, guarded", metrics.guarded) if oracle is None else ("oracle", oracle)
    for shift, label, score in ((-0.2, "router", metrics), (0.2, other, second)):
        bars.bar([i + shift for i in places], [100 * ratio for ratio in score.ratios], width=0.4, label=label)
    bars.set_xticks(places, names)
    bars.set(xlabel="expert", ylabel="inputs sent to it (%)", title=f"deferral loss {metrics.deferral_loss:.4f}")
    bars.legend()
    for grid in grids:
        draw_confusion(grid, confusion or [], names)
    return picture


def draw_confusion(grid: "Axes", confusion: list[list[int]], names: list[str]) -> None:
    places = range(len(names))
    shares = [[count / max(1, sum(row)) for count in row] for row in confusion]
    grid.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in product(places, places):
        colour = "white" if shares[i][j] > 0.6 else "black"
        grid.text(j, i, str(confusion[i][j]), ha="center", va="center", color=colour)
    grid.set_xticks(places, names)
    grid.set_yticks(places, names)
    grid.set(xlabel="router's expert", ylabel="oracle's expert", title="test inputs")
