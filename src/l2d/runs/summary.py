"""A run's result for a reader: the table under a finished run, and its picture. Made from metrics.json's content alone."""

import math
from typing import TYPE_CHECKING, Any

from l2d.core.results import GuardEvidence, RowCounts, RunMetrics, Score
from l2d.utils.text import aligned

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROWS = {
    "oracle": "oracle",
    "best_single": "best single expert",
    "random": "random expert",
    "majority": "always the majority expert",
}
# In multiples of the validation rows there are: with fewer, the gain is as good as shown; with more, it is as good as none.
WORTH = (1.5, 100)
FEW = 3  # categories shown of those where routing gains the most, and of those where it gains the least


def result_table(metrics: RunMetrics) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the router first, then what it is compared with."""
    scores: dict[str, Score] = {"router": metrics}
    if metrics.guarded.changes_decisions:
        scores["router, guarded"] = metrics.guarded
    scores |= {title: getattr(metrics.baselines, name) for name, title in ROWS.items()}
    header = ["test split", "deferral loss", "error rate", "mean price"]
    return [*header, *(expert.name for expert in metrics.experts)], [
        [name, *_cells(row)] for name, row in scores.items()
    ]


def _cells(score: Score) -> list[str]:
    losses = (score.deferral_loss, score.error_rate, score.mean_price)
    return [*(f"{value:.4f}" for value in losses), *(f"{ratio:.1%}" for ratio in score.ratios)]


def format_table(metrics: RunMetrics) -> str:
    """The table as aligned text, and beneath it what a reader has to know: each part says nothing where there is nothing to say."""
    lines = aligned(*result_table(metrics)).splitlines()
    lines.insert(4 if metrics.guarded.changes_decisions else 3, lines[1])
    for said in (epoch_line, collapse_warning, guard_line, extreme_line, category_lines):
        lines += said(metrics)
    return "\n".join(lines)


def epoch_line(metrics: RunMetrics) -> list[str]:
    if metrics.kept_epoch == metrics.epochs:
        return []
    return [f"checkpoint={metrics.checkpoint}: the weights are those of epoch {metrics.kept_epoch} of {metrics.epochs}"]


def collapse_warning(metrics: RunMetrics) -> list[str]:
    """With what this method has to try. Nothing where it has nothing and the guard's line says the same already."""
    if metrics.collapsed_expert is None:
        return []
    k = metrics.collapsed_expert - 1
    name, tries = metrics.experts[k].name, remedies(metrics)
    if not tries and metrics.guarded.constant == name:
        return []
    return [
        f"WARNING: the router has collapsed: {name} gets {metrics.ratios[k]:.1%} of the inputs, the oracle would give it"
        f" {metrics.baselines.oracle.ratios[k]:.1%}. Try {', '.join([*tries, 'more epochs', 'another method'])}."
    ]


def remedies(metrics: RunMetrics) -> list[str]:
    """What a method can try against a collapse."""
    tries = []
    if metrics.decision == "argmax" and metrics.capabilities.has_posterior:
        tries.append("decision=posterior")
    if metrics.rho:
        tries.append("one ρ for all or a larger one (method.rho)")
    return tries


def guard_line(metrics: RunMetrics) -> list[str]:
    guarded, seen = metrics.guarded, metrics.guarded.validation
    error = "unknown" if seen.standard_error is None else f"{seen.standard_error:.4f}"
    gain = f"{seen.gain:+.4f} ± {error} per input"
    if guarded.constant is not None:
        return [
            f"guard: sends everything to {guarded.constant}; on validation the router's gain over that, {gain}"
            f" ({metrics.rows.validation:,} rows), is not more than one standard error; l2d route --raw asks the router instead"
            f"{rows_to_tell(metrics.rows, seen)}"
        ]
    if guarded.offsets is None:
        return [f"guard: leaves the router as it is; on validation its gain over always {seen.best_constant} is {gain}"]
    names = (expert.name for expert in metrics.experts)
    offsets = ", ".join(f"{name} {offset:+.3g}" for name, offset in zip(names, guarded.offsets, strict=True))
    return [
        f"guard: adds offsets to the experts' scores ({offsets}); on validation the router's gain over always"
        f" {seen.best_constant} is then {gain}; l2d route --raw leaves them out"
    ]


def rows_to_tell(rows: RowCounts, seen: GuardEvidence) -> str:
    """From how many validation rows on the gain would exceed one standard error, which shrinks with the root of their number."""
    if seen.standard_error is None or not seen.gain > 0:
        return ""
    n, (least, most) = rows.validation, WORTH
    gain, error = seen.gain, seen.standard_error
    needed = n * (error / gain) ** 2
    if not least * n < needed <= most * n:
        return ""
    step = 10 ** (len(str(int(needed))) - 2) if needed >= 10 else 1
    about = math.ceil(needed / step) * step
    how = "raise validation_fraction" if about < n + rows.train else "more than there are"
    return f"; with about {about:,} validation rows a gain of this size would be ({how})"


def extreme_line(metrics: RunMetrics) -> list[str]:
    found = metrics.extreme
    if found is None:
        return []
    prices = ", ".join(f"{price:g}" for price in found.prices)
    return [
        f"cost=extreme: prices {prices}; the oracle gives {found.expert} {found.share_train:.1%} of the training rows"
        f" (target {found.target:.0%}) and {found.share_test:.1%} of the test rows"
    ]


def category_lines(metrics: RunMetrics) -> list[str]:
    """Categories by the router's gain over the best single expert, the largest first; of many, the first and the last few."""
    found = metrics.by_category or {}
    if len(found) < 2:
        return []
    gains = {name: row.best_single - row.deferral_loss for name, row in found.items()}
    rows = []
    for name in sorted(found, key=lambda name: -gains[name]):
        row = found[name]
        losses = [f"{loss:.4f}" for loss in (row.deferral_loss, row.best_single, row.oracle)]
        rows.append([name, str(row.rows), *losses, f"{gains[name]:+.4f}"])
    if len(rows) > 2 * FEW:
        rows[FEW:-FEW] = [[f"({len(rows) - 2 * FEW} others)", *[""] * 5]]
    text = aligned(["category", "rows", "router", "best single expert", "oracle", "gain"], rows)
    return ["", *(line.rstrip() for line in text.splitlines())]


def run_figure(metrics: RunMetrics) -> "Figure":
    """Shares per expert beside the oracle's, and the router's choice against the oracle's."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(10, 4), layout="constrained")
    bars, grid = picture.subplots(1, 2)
    names = [expert.name.removeprefix("expert ") for expert in metrics.experts]
    _draw_shares(bars, metrics, names)
    _draw_confusion(grid, metrics.confusion, names)
    return picture


def _draw_shares(axes: Any, metrics: RunMetrics, names: list[str]) -> None:
    positions = range(len(names))
    for shift, label, score in ((-0.2, "router", metrics), (0.2, "oracle", metrics.baselines.oracle)):
        axes.bar([i + shift for i in positions], [100 * ratio for ratio in score.ratios], width=0.4, label=label)
    axes.set_xticks(list(positions), names)
    axes.set(xlabel="expert", ylabel="inputs sent to it (%)", title=f"deferral loss {metrics.deferral_loss:.4f}")
    axes.legend()


def _draw_confusion(axes: Any, counts: list[list[int]], names: list[str]) -> None:
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(counts):
        for j, count in enumerate(row):
            axes.text(j, i, str(count), ha="center", va="center", color="white" if shares[i][j] > 0.6 else "black")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="router's expert", ylabel="oracle's expert", title="test inputs")
