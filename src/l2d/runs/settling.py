"""Trust in a verdict, and what would settle an unclear one: lines of a run's result."""

import math

from l2d.core.results import LoggedOutcomes, RunMetrics
from l2d.utils.text import Z

FAR = 100  # times as many rows: nobody waits for them


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
