"""The last hour in the log: decisions, spend and outcomes by expert, in steps of five minutes."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from l2d.logs.databases import Database, reading
from l2d.logs.decision import id_at
from l2d.utils.text import six_digits

SECONDS, STEPS = 300, 12
# An id begins with the time and has an index; the column time has none.
COUNTED = """
SELECT coalesce(d.served, d.expert), CASE WHEN d.served IS NULL OR d.decided_by = 'plan' THEN d.decided_by ELSE 'fallback' END,
       count(*), sum(coalesce(o.price, d.price)), count(coalesce(o.price, d.price)), count(o.decision_id),
       sum(coalesce(o.loss, 1 - o.correct))
FROM decisions AS d LEFT JOIN outcomes AS o ON o.decision_id = d.id WHERE d.id >= ? AND d.id < ? GROUP BY 1, 2
"""


class CountedDecisions(NamedTuple):
    expert: str
    by: str
    decisions: int
    spend: float | None  # of the `priced`, whose price is known
    priced: int
    outcomes: int
    wrong: float | None  # the sum of the errors


def read_last_hour(address: Path | str, now: float, experts: Sequence[str]) -> dict[str, Any]:
    with reading(address) as database:
        return count_last_hour(database, now, experts)


def count_last_hour(database: Database, now: float, experts: Sequence[str]) -> dict[str, Any]:
    """Steps are those of the clock, so the last one is not over yet. experts: named first, also without a decision."""
    start = (int(now) // SECONDS + 1 - STEPS) * SECONDS
    bounds = [id_at(start + step * SECONDS) for step in range(STEPS + 1)]
    found = [database.execute(COUNTED, span).fetchall() for span in pairwise(bounds)]
    steps = [[CountedDecisions(*row) for row in rows] for rows in found]
    decided_by, names = Counter[str](), dict.fromkeys(experts)
    for one in (one for step in steps for one in step):
        decided_by[one.by] += one.decisions
        names[one.expert] = None
    return {
        "start": start,
        "seconds": SECONDS,
        "decided_by": dict(decided_by),
        "experts": [
            {"name": name, **sum_steps([[one for one in step if one.expert == name] for step in steps])}
            for name in names
        ],
    }


def sum_steps(steps: Sequence[Sequence[CountedDecisions]]) -> dict[str, Any]:
    """The sums of one expert. spend: where the price is known, `priced` in all; mean_error: of decisions with an outcome."""
    outcomes = sum(one.outcomes for step in steps for one in step)
    wrong = sum(one.wrong for step in steps for one in step if one.wrong is not None)
    paid = [[one.spend for one in step if one.spend is not None] for step in steps]
    return {
        "choices": [sum(one.decisions for one in step) for step in steps],
        "spend": [six_digits(sum(known)) if known else None for known in paid],
        "priced": sum(one.priced for step in steps for one in step),
        "outcomes": outcomes,
        "mean_error": six_digits(wrong / outcomes) if outcomes else None,
    }
