"""A run's result as a table and as a picture, from the content of metrics.json alone."""

import math
from itertools import product
from typing import TYPE_CHECKING

from l2d.core.prices import ERRORS, Prices
from l2d.core.results import Estimate, GuardEvidence, LoggedOutcomes, RunMetrics, Score
from l2d.utils.text import Z, aligned, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENOUGH = 30  # test rows for a verdict
FEW = 3  # categories shown at each end: the largest gains and the smallest
MOST_EXPERTS = 8  # that have a row each
BEST_EXPERTS = 3  # that have one if there are more
FAR = 100  # times as many rows: nobody waits for them
SURE = "(95 %)"  # after each ±


def result_table(metrics: RunMetrics, prices: Prices = ERRORS) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the router first, then what it is compared with."""
    baselines, by_fold = metrics.baselines, " by fold" if cross_validated(metrics) else ""
    scores: dict[str, Score | None] = {
        "router": metrics,
        f"router, guarded{by_fold}": metrics.guarded if shows_guarded(metrics) else None,
        "oracle": baselines.oracle,
        "best simple plan": None if metrics.plans is None else metrics.plans.simple,
        "best single expert": baselines.best_single,
        **other_experts(metrics),
        "nearest neighbours": baselines.nearest_neighbours,
        "per-category table": baselines.category_table,
        "random expert": baselines.random,
        "always the majority expert": baselines.majority,
    }
    judged = "every row, held out once" if cross_validated(metrics) else "test split"
    header = [judged, "deferral loss", SURE.strip("()"), "error rate", prices.mean_price]
    rows = []
    for name, row in scores.items():
        if row is not None:
            loss, spread = prices.show(row.deferral_loss), prices.plus_minus(row.standard_error).strip()
            shares = (f"{ratio:.1%}" for ratio in row.ratios)
            rows.append([name, loss, spread, f"{row.error_rate:.4f}", prices.show(row.mean_price), *shares])
    return [*header, *(expert.name for expert in metrics.experts)], rows


def other_experts(metrics: RunMetrics) -> dict[str, Score]:
    """Always asking one expert, or following one plan: cheapest first, without what has a row of its own; of many the first few."""
    shown = [metrics.baselines.best_single, *([metrics.plans.simple, metrics] if metrics.plans else [])]
    found, p = dict[str, Score](), len(metrics.experts)
    for k, one in enumerate(metrics.experts):
        if not any(score.ratios[k] == 1 for score in shown):
            ratios, loss = [float(j == k) for j in range(p)], one.error_rate + one.price
            name = one.name if is_plan(metrics, one.name) else f"always {one.name}"
            found[name] = Score(loss, one.error_rate, one.price, ratios, one.standard_error)
    cheapest = sorted(found.items(), key=lambda item: item[1].deferral_loss)
    return dict(cheapest if p <= MOST_EXPERTS else cheapest[:BEST_EXPERTS])


def is_plan(metrics: RunMetrics, name: str) -> bool:
    return metrics.plans is not None and name in [one.name for one in metrics.experts[metrics.plans.singles :]]


def one_for_all(metrics: RunMetrics, name: str) -> str:
    return f"the plan “{name}”" if is_plan(metrics, name) else f"{name} alone"


def shows_guarded(metrics: RunMetrics) -> bool:
    """True if the guard, or those of some folds, changes what is chosen on the rows that judge the router."""
    guarded = metrics.guarded
    differs = (guarded.deferral_loss, guarded.ratios) != (metrics.deferral_loss, metrics.ratios)
    return differs and (guarded.changes_decisions or cross_validated(metrics))


def cross_validated(metrics: RunMetrics) -> bool:
    """True if every row was judged by a router and a guard that did not see it. The guard that is used was fitted to all rows."""
    return metrics.evaluation == "cross_validate"


def format_line(metrics: RunMetrics, prices: Prices = ERRORS) -> str:
    """The result of one run among many."""
    guarded = f", guarded {prices.show(metrics.guarded.deferral_loss)}" if metrics.guarded.changes_decisions else ""
    oracle = metrics.baselines.oracle
    best = "" if oracle is None else f", oracle {prices.show(oracle.deferral_loss)}"
    single = f"best single expert {prices.show(metrics.baselines.best_single.deferral_loss)}"
    return f"deferral loss {prices.show(metrics.deferral_loss)}{guarded} ({single}{best})"


def format_table(metrics: RunMetrics, prices: Prices = ERRORS) -> str:
    """The table as aligned text, with notes beneath it."""
    lines = [line.rstrip() for line in aligned(*result_table(metrics, prices)).splitlines()]
    lines.insert(4 if shows_guarded(metrics) else 3, lines[1])
    best = 3 if metrics.plans else 1  # which have rows of their own
    if (hidden := len(metrics.experts) - best - len(other_experts(metrics))) > 0:
        lines.append(f"not shown: {counted(hidden, 'expert')} that would cost more alone")
    lines += prices.notes
    if (kept := metrics.kept_epoch) != (epochs := metrics.epochs):
        lines.append(f"checkpoint={metrics.checkpoint}: the weights are those of epoch {kept} of {epochs}")
    if metrics.rho:
        lines.append(f"ρ: {', '.join(f'{value:.4g}' for value in metrics.rho)}")
    lines += [*log_lines(metrics, prices), *collapse_warning(metrics)]
    lines += [guard_line(metrics, prices), verdict_line(metrics, prices)]
    if (found := metrics.extreme) is not None:
        listed = ", ".join(f"{price:g}" for price in found.prices)
        share = f"{found.share_train:.1%} of the training rows (target {found.target:.0%})"
        oracle = f"the oracle gives {found.expert} {share} and {found.share_test:.1%} of the test rows"
        lines.append(f"cost=extreme: prices {listed}; {oracle}")
    return "\n".join([*lines, *category_lines(metrics, prices)])


def collapse_warning(metrics: RunMetrics) -> list[str]:
    """Empty if the guard's line says the same already."""
    oracle, collapsed = metrics.baselines.oracle, metrics.collapsed_expert
    if collapsed is None or oracle is None or metrics.guarded.constant == metrics.experts[collapsed - 1].name:
        return []
    share, best = metrics.ratios[collapsed - 1], oracle.ratios[collapsed - 1]
    gets = f"{metrics.experts[collapsed - 1].name} gets {share:.1%} of the inputs, the oracle would give it {best:.1%}"
    tries = "decision=posterior, a larger ρ (method.rho)," if metrics.rho else "another method or"
    return [f"WARNING: the router has collapsed: {gets}. Try {tries} more epochs."]


def log_lines(metrics: RunMetrics, prices: Prices = ERRORS) -> list[str]:
    """The judgement of a log, which does not know every cost."""
    if (log := metrics.log) is None:
        return []
    asked = ", ".join(f"{expert.name} {share:.0%}" for expert, share in zip(metrics.experts, log.asked, strict=False))
    guessed = "estimated, since the log does not give them for these rows and experts"
    known = "given" if log.propensities == "given" else guessed
    estimates = {"doubly robust": log.router.doubly_robust, "SNIPS": log.router.snips, "direct": log.router.direct}
    never = "the log never asked the expert that the router chooses" if metrics.plans is None else "this is a plan"
    values = [f"{name} {_estimated(found, prices, never)}" for name, found in estimates.items()]
    own = "own choices" if metrics.plans is None else "first answers, as if all had ended there,"
    return [
        f"from a log: asked on {asked} of the rows; propensities {known}. All losses above are doubly robust estimates.",
        f"value of the router, ± 95 %: {'; '.join(values)}",
        f"the log's {own} cost {_estimated(log.policy, prices)} {SURE}",
        *overlap_lines(metrics, log),
    ]


def _estimated(found: Estimate | None, prices: Prices, why: str = "") -> str:
    if found is None:
        return f"unknown, since {why}"
    return prices.show(found.value) + prices.plus_minus(found.standard_error)


def guard_line(metrics: RunMetrics, prices: Prices = ERRORS) -> str:
    """The guard's change, and the router's gain on the rows that the guard was fitted to."""
    guarded, seen = metrics.guarded, metrics.guarded.validation
    where = "held-out rows" if cross_validated(metrics) else "validation"
    over, gain = one_for_all(metrics, seen.best_constant), f"{prices.show(seen.gain, '+')}{_plus_minus(seen, prices)}"
    evidence = f"on {where} its gain over {over} is {gain} per input"
    if guarded.constant is not None:
        does = "follows" if is_plan(metrics, guarded.constant) else "sends everything to"
        rows = counted(metrics.rows.validation, "row")
        return f"guard: {does} {guarded.constant}; l2d route --raw asks the router: {evidence} ({rows})"
    if guarded.offsets is None:
        return f"guard: leaves the router as it is; {evidence}"
    names = (expert.name for expert in metrics.experts)
    offsets = ", ".join(f"{name} {offset:+.3g}" for name, offset in zip(names, guarded.offsets, strict=True))
    return f"guard: adds offsets to the experts' scores ({offsets}); {evidence} then; l2d route --raw leaves them out"


def verdict_line(metrics: RunMetrics, prices: Prices = ERRORS) -> str:
    """The verdict on the router with its guard, by its gain on rows that neither of them saw."""
    guarded, seen, by_fold = metrics.guarded, metrics.guarded.test, cross_validated(metrics)
    if metrics.rows.test < ENOUGH:
        tested = counted(metrics.rows.test, "test row")
        return f"verdict: unclear. Too few rows to tell: {tested}, and at least {ENOUGH} are needed."
    what = "routing" if metrics.plans is None else "the learned plan"
    tail = settled_by(metrics) + over_single(metrics, prices)
    if guarded.constant is not None:
        hopeful = not by_fold and guarded.validation.gain > 0
        more = " More validation rows might show one (validation_fraction)." if hopeful else ""
        use, where = one_for_all(metrics, guarded.constant), "held-out rows" if by_fold else "validation"
        return f"verdict: use {use}. No gain from {what} could be shown on {where}.{more}{tail}"
    gain = f"{prices.show(abs(seen.gain))}{_plus_minus(seen, prices)} {'less' if seen.gain > 0 else 'more'} per input"
    costs = f"{gain} than" if seen.gain else "the same as"
    where = "held-out rows" if by_fold else "the test split"
    found = f"On {where} it costs {costs} {one_for_all(metrics, seen.best_constant)}"
    if seen.gain <= 0:
        kept = "The guard keeps the router." if by_fold else "Routing gained on validation."
        return f"verdict: unclear. {kept} {found}.{tail}"
    if seen.standard_error is None or seen.gain <= Z * seen.standard_error:
        return f"verdict: {what} may pay. {found}, which may be chance.{tail}"
    alone, oracle = guarded.deferral_loss + seen.gain, metrics.baselines.oracle
    way = "" if oracle is None else f", {seen.gain / (alone - oracle.deferral_loss):.0%} of the way to the oracle"
    return f"verdict: {what} pays. {found}: {seen.gain / alone:.0%} less{way}.{over_single(metrics, prices)}"


def over_single(metrics: RunMetrics, prices: Prices) -> str:
    """A sentence on the gain over the best single expert, if the guard compared the router with a plan."""
    if metrics.plans is None or not is_plan(metrics, metrics.guarded.test.best_constant):
        return ""
    seen, which = metrics.plans.gain, "the plan that is followed"
    gain = f"{prices.show(abs(seen.gain))}{_plus_minus(seen, prices)} {'less' if seen.gain >= 0 else 'more'}"
    chance = "" if seen.standard_error and abs(seen.gain) > Z * seen.standard_error else ", which may be chance"
    return f" By held-out rows, {which} costs {gain} than {seen.best_constant}, the best single expert{chance}."


def _plus_minus(seen: GuardEvidence, prices: Prices) -> str:
    return "" if seen.standard_error is None else f"{prices.plus_minus(seen.standard_error)} {SURE}"


def overlap_lines(metrics: RunMetrics, log: LoggedOutcomes) -> list[str]:
    """The number of rows that a log is worth, and the strength of something unseen that flips the verdict."""
    known = zip(metrics.experts, log.effective_rows, strict=False)
    rows = ", ".join(f"{one.name} {count:,.0f}" for one, count in known)
    rare = "" if log.rare is None else f"; {log.rare:.1%} of the rows have an expert whose propensity is below .02"
    lines = [f"overlap: effective rows {rows}, of {metrics.rows.test:,}{rare}"]
    if log.propensities == "estimated" and log.flip_strength > 1:
        alone = metrics.guarded.constant
        what = "the router costs less" if alone is None else f"{alone} is the cheapest single expert"
        factor = f"an unseen factor changes the odds of being asked by more than ×{log.flip_strength:.3g}"
        lines.append(f"sensitivity: {what} unless {factor}")
    return lines


def settled_by(metrics: RunMetrics) -> str:
    """A sentence on the rows after which the 95 % interval of the gain would exclude 0; empty if it does, or if none follows."""
    seen, rows = metrics.guarded.test, metrics.rows.test
    if metrics.guarded.constant is not None:
        seen, rows = metrics.guarded.validation, metrics.rows.validation
        if seen.gain <= 0:
            return ""
    if seen.standard_error is None or not seen.gain:
        return ""
    needed = rows * (Z * seen.standard_error / seen.gain) ** 2  # a standard error falls with the root of their number
    if needed <= rows:
        return ""
    if needed > FAR * rows:
        return f" To settle it would take more than {FAR} times as many rows."
    ways = [f"about {rounded(needed - rows)} more graded rows"]
    if (log := metrics.log) is not None:
        decisions = (Z * log.explored_deviation / seen.gain) ** 2
        days = "" if log.rows_per_day is None else f", about {rounded(decisions / log.rows_per_day)} days at your rate"
        ways.append(f"`l2d serve --explore 0.1` until about {rounded(decisions)} decisions are graded{days}")
    return f" To settle it: {', or '.join(ways)}."


def rounded(count: float) -> str:
    """A whole number, at least 1, with two digits that count."""
    whole = max(1, math.ceil(count))
    return f"{int(float(f'{whole:.1e}')):,}"


def category_lines(metrics: RunMetrics, prices: Prices = ERRORS) -> list[str]:
    """Categories by the router's gain over the best single expert, largest first; if there are many, the first and last few."""
    found = metrics.by_category or {}
    if len(found) < 2:
        return []
    gains = {name: row.best_single - row.deferral_loss for name, row in found.items()}
    rows = []
    for name, row in sorted(found.items(), key=lambda item: -gains[item[0]]):
        losses = (row.deferral_loss, row.best_single, *(() if row.oracle is None else (row.oracle,)))
        rows.append([name, str(row.rows), *map(prices.show, losses), prices.show(gains[name], "+")])
    if len(rows) > 2 * FEW:
        rows[FEW:-FEW] = [[f"({len(rows) - 2 * FEW} others)", *[""] * (len(rows[0]) - 1)]]
    oracle = [] if metrics.baselines.oracle is None else ["oracle"]
    text = aligned(["category", "rows", "router", "best single expert", *oracle, "gain"], rows)
    return ["", *(line.rstrip() for line in text.splitlines())]


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
    if confusion:
        [grid], shares = grids, [[count / max(1, sum(row)) for count in row] for row in confusion]
        grid.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        for i, j in product(places, places):
            colour = "white" if shares[i][j] > 0.6 else "black"
            grid.text(j, i, str(confusion[i][j]), ha="center", va="center", color=colour)
        grid.set_xticks(places, names)
        grid.set_yticks(places, names)
        grid.set(xlabel="router's expert", ylabel="oracle's expert", title="test inputs")
    return picture
