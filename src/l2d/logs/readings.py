"""Readings of a log that grows: its last hour, and two routers side by side. Other servers go on writing meanwhile."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, Generic, TypeVar

from l2d.logs.databases import reading
from l2d.logs.decision import id_at
from l2d.utils.text import six_digits

T = TypeVar("T")
BUSY = 0.05  # the largest share of the time in which the log is read
SECONDS, STEPS = 300, 12  # of the hour
# An id begins with the time and has an index; the column time has none. Decisions without a propensity that explored are of plans,
# which may give another expert's answer though nobody failed.
COUNTED = """
SELECT coalesce(d.served, d.expert),
       CASE WHEN d.served IS NULL OR d.decided_by = 'plan' OR d.decided_by = 'explore' AND d.propensity IS NULL
            THEN d.decided_by ELSE 'fallback' END,
       count(*), sum(coalesce(o.price, d.price)), count(coalesce(o.price, d.price)), count(o.decision_id),
       coalesce(sum(coalesce(o.loss, 1 - o.correct)), 0)
FROM decisions AS d LEFT JOIN outcomes AS o ON o.decision_id = d.id WHERE d.id >= ? AND d.id < ? GROUP BY 1, 2
"""
SUMS = """
SELECT count(*), coalesce(sum(x), 0), coalesce(sum(x * x), 0) FROM (
    SELECT base + weight * CASE WHEN cost < ? THEN cost ELSE ? END AS x FROM (
        SELECT t.base, t.weight, coalesce(o.loss, 1 - o.correct) + ? * coalesce(o.price, d.price, 0) AS cost
        FROM trials AS t JOIN outcomes AS o ON o.decision_id = t.decision_id JOIN decisions AS d ON d.id = t.decision_id
        WHERE t.candidate = ? AND t.bound = ? AND d.run = ?
    ) AS graded
) AS differences
"""


class KeptReading(Generic[T]):
    """Keeps an answer for some seconds, and longer if it took longer: many questions or a large log cost no more."""

    def __init__(self, read: Callable[..., T], seconds: float = 0.0) -> None:
        self.read, self.seconds = read, seconds
        self._lock, self._until = asyncio.Lock(), 0.0
        self._found: T

    async def look(self, *asked: Any) -> T:
        async with self._lock:
            if (begun := monotonic()) >= self._until:
                self._found = await asyncio.to_thread(self.read, *asked)
                end = monotonic()
                self._until = end + max(self.seconds, (end - begun) / BUSY)
            return self._found


def read_last_hour(address: Path | str, now: float, experts: Sequence[str]) -> dict[str, Any]:
    """Decisions, spend and outcomes by expert, in steps of the clock; the last is not over. experts: named first, even
    without a decision. spend: where the price is known, `priced` in all; mean_error: of decisions with an outcome."""
    start = (int(now) // SECONDS + 1 - STEPS) * SECONDS
    bounds = [id_at(start + step * SECONDS) for step in range(STEPS + 1)]
    found, decided_by = {name: no_decisions(name) for name in experts}, Counter[str]()
    with reading(address) as database:
        for step, span in enumerate(pairwise(bounds)):
            for name, by, decisions, spend, priced, outcomes, wrong in database.execute(COUNTED, span).fetchall():
                one = found.setdefault(name, no_decisions(name))
                decided_by[by] += decisions
                one["choices"][step] += decisions
                if spend is not None:
                    one["spend"][step] = spend + (one["spend"][step] or 0.0)
                for key, more in (("priced", priced), ("outcomes", outcomes), ("mean_error", wrong)):
                    one[key] += more
    for one in found.values():
        one["spend"] = [six_digits(known) for known in one["spend"]]
        one["mean_error"] = six_digits(one["mean_error"] / one["outcomes"]) if one["outcomes"] else None
    return {"start": start, "seconds": SECONDS, "decided_by": dict(decided_by), "experts": [*found.values()]}


def no_decisions(name: str) -> dict[str, Any]:
    empty = {"choices": [0] * STEPS, "spend": [None] * STEPS}
    return {"name": name, **empty, "priced": 0, "outcomes": 0, "mean_error": 0.0}


def read_sums(
    address: Path | str, run: str, candidate: str, bound: float, most: float, rate: float
) -> tuple[int, float, float]:
    """The number of a trial's decisions with an outcome, the sum of their differences, and that of the squares. most: that a cost
    counts. rate: of a price, in units of one error. Raises LogUnavailable."""
    with reading(address) as database:
        n, total, squares = database.execute(SUMS, (most, most, rate, candidate, bound, run)).fetchone()
        return int(n), float(total), float(squares)
