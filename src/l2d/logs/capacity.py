"""Limits on how often experts are asked. The log counts, so all servers with one log keep them together, also through restarts."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from l2d.logs.databases import Database
from l2d.logs.refusals import OutcomeRefused
from l2d.utils.errors import ParameterError, unknown

SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86_400.0}
LAST = "SELECT place, time FROM asks WHERE expert = ? ORDER BY place DESC LIMIT 1"
ASKED_AT = "SELECT time FROM asks WHERE expert = ? AND place = ?"
COUNTED = "SELECT count(*) FROM asks WHERE expert = ? AND place > ? AND time > ?"
ASK = "INSERT INTO asks VALUES (?, ?, ?)"


class NobodyFree(OutcomeRefused):
    """Nobody who may be asked can be asked now. retry_after: seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(429, "no expert that may be asked has capacity left; try again later")
        self.retry_after = str(int(wait) + 1)


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
        most, _, unit = text.partition("/")
        if name not in experts:
            raise ParameterError("capacity", unknown("expert", name, experts), name)
        if unit.strip() not in SECONDS:
            raise ParameterError(f"capacity.{name}", "must be such as 40/hour, by minute, hour or day", text)
        if not most.strip().isdecimal() or int(most) < 1:
            raise ParameterError(f"capacity.{name}", "the limit must be a whole number above 0", text)
        found[name] = Limit(int(most), unit.strip())
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

    @property
    def left(self) -> dict[str, int]:
        left = {}
        for name, limit in self.limits.items():
            since = (name, self.last[name] - limit.most, self.now - limit.seconds)
            left[name] = limit.most - self.database.execute(COUNTED, since).fetchone()[0]
        return left
