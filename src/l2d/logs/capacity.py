"""Limits on how often experts are asked. The log counts, so all servers with one log keep them together, also through restarts."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from l2d.logs.databases import Database
from l2d.logs.decision import Decision
from l2d.logs.operations import add_decisions
from l2d.utils.errors import ParameterError, unknown

SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86_400.0}
LAST = "SELECT place, time FROM asks WHERE expert = ? ORDER BY place DESC LIMIT 1"
ASKED_AT = "SELECT time FROM asks WHERE expert = ? AND place = ?"
COUNTED = "SELECT count(*) FROM asks WHERE expert = ? AND place > ? AND time > ?"
ASK = "INSERT INTO asks VALUES (?, ?, ?)"
# A decision, given who may not be asked and for how long; or NobodyFree.
Draft = Callable[[Mapping[str, float]], Decision]


@dataclass(frozen=True)
class Limit:
    most: int
    unit: str

    @property
    def seconds(self) -> float:
        return SECONDS[self.unit]

    def __str__(self) -> str:
        return f"{self.most}/{self.unit}"


Limits = Mapping[str, Limit]  # by expert


def read_limits(given: Mapping[str, str], experts: Sequence[str]) -> dict[str, Limit]:
    found = {}
    for name, text in given.items():
        if name not in experts:
            raise ParameterError("capacity", unknown("expert", name, experts), name)
        parts = re.fullmatch(rf"\s*0*([1-9]\d*)\s*/\s*({'|'.join(SECONDS)})\s*", text)
        if parts is None:
            problem = "must be such as 40/hour: a whole number above 0, by minute, hour or day"
            raise ParameterError(f"capacity.{name}", problem, text)
        found[name] = Limit(int(parts[1]), parts[2])
    return found


class Ledger:
    """The questions to experts with a limit. Each has the next place; the one `most` places before must be older than the unit."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self.database, self.limits, self.taken = database, limits, Counter[str]()
        last = {name: database.execute(LAST, (name,)).fetchone() or (0, 0.0) for name in limits}
        self.last = {name: place for name, (place, _) in last.items()}
        self.now = max([time.time(), *(at for _, at in last.values())])  # a clock may go back

    def wait(self, expert: str) -> float:
        """Seconds until the expert may be asked; 0 if now."""
        if (limit := self.limits.get(expert)) is None:
            return 0.0
        before = self.last[expert] + self.taken[expert] + 1 - limit.most
        if before > self.last[expert]:  # asked in this transaction
            return limit.seconds
        found = self.database.execute(ASKED_AT, (expert, before)).fetchone()
        return 0.0 if found is None else max(0.0, found[0] + limit.seconds - self.now)

    @property
    def full(self) -> dict[str, float]:
        return {name: wait for name in self.limits if (wait := self.wait(name)) > 0}

    def take(self, expert: str) -> None:
        if expert in self.limits:
            self.taken[expert] += 1

    def write(self) -> None:
        for name, number in self.taken.items():
            self.database.execute_many(ASK, [(name, self.last[name] + 1 + k, self.now) for k in range(number)])


def decide_within(database: Database, drafts: Sequence[Draft], limits: Limits) -> list[Decision]:
    """Decide and write, so that no expert is asked more often than its limit; all, or nothing by NobodyFree."""
    ledger, found = Ledger(database, limits), list[Decision]()
    for draft in drafts:
        decision = draft(ledger.full)
        ledger.take(decision.expert)
        found.append(decision)
    ledger.write()
    add_decisions(database, found)
    return found


def ask_within(database: Database, expert: str, limits: Limits) -> bool:
    """Count one more question to the expert; False if it may not be asked now."""
    ledger = Ledger(database, limits)
    if free := not ledger.wait(expert):
        ledger.take(expert)
        ledger.write()
    return free


def left(database: Database, limits: Limits) -> dict[str, int]:
    """Return how often each expert with a limit may be asked now."""
    ledger, found = Ledger(database, limits), {}
    for name, limit in limits.items():
        since = (name, ledger.last[name] - limit.most, ledger.now - limit.seconds)
        found[name] = limit.most - database.execute(COUNTED, since).fetchone()[0]
    return found
