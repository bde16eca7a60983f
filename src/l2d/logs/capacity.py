"""Limits on how often experts are asked. The log counts, so all servers with one log keep them together, also through restarts."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from l2d.logs.databases import Database
from l2d.logs.decision import Decision, NobodyFree
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


def last_asked(database: Database, expert: str) -> tuple[int, float]:
    """The place of the last question to the expert, and the time now. A clock that went back stands still."""
    place, at = database.execute(LAST, (expert,)).fetchone() or (0, 0.0)
    return place, max(time.time(), at)


def wait(database: Database, expert: str, limit: Limit) -> float:
    """Seconds until the expert may be asked; 0 if now. The question `most` places before must be older than the unit."""
    place, now = last_asked(database, expert)
    found = database.execute(ASKED_AT, (expert, place + 1 - limit.most)).fetchone()
    return 0.0 if found is None else max(0.0, found[0] + limit.seconds - now)


def take(database: Database, expert: str, limits: Limits) -> None:
    if expert in limits:
        place, now = last_asked(database, expert)
        database.execute(ASK, (expert, place + 1, now))


def decide_within(database: Database, drafts: Sequence[Draft], limits: Limits) -> list[Decision]:
    """Decide and write, so that no expert is asked more often than its limit; all, or nothing by NobodyFree."""
    found = list[Decision]()
    database.execute("SAVEPOINT drafts")
    try:
        for draft in drafts:
            waits = {name: wait(database, name, limit) for name, limit in limits.items()}
            found.append(draft({name: seconds for name, seconds in waits.items() if seconds > 0}))
            take(database, found[-1].expert, limits)
    except NobodyFree:
        database.execute("ROLLBACK TO drafts")
        raise
    database.execute("RELEASE drafts")
    add_decisions(database, found)
    return found


def ask_within(database: Database, expert: str, limits: Limits) -> bool:
    """Count one more question to the expert; False if it may not be asked now."""
    if wait(database, expert, limits[expert]):
        return False
    take(database, expert, limits)
    return True


def left(database: Database, limits: Limits) -> dict[str, int]:
    """Return how often each expert with a limit may be asked now."""
    found = {}
    for name, limit in limits.items():
        place, now = last_asked(database, name)
        since = (name, place - limit.most, now - limit.seconds)
        found[name] = limit.most - int(database.execute(COUNTED, since).fetchone()[0])
    return found
