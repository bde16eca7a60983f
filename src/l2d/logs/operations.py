"""The operations of a server on its log. Each is a part of one transaction."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from l2d.logs.databases import Database
from l2d.logs.decision import Call, Decision, NobodyFree, Refused, ReportedOutcome, id_at
from l2d.utils.errors import ParameterError, unknown

COLUMNS = "id, time, run, expert, router_choice, decided_by, propensity, price, session, text, features"
INSERT = f"INSERT INTO decisions ({COLUMNS}) VALUES ({', '.join('?' * 11)})"
RUN = "INSERT INTO runs VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET about = excluded.about"
TRIAL_BEGAN = """SELECT min(d.time) FROM trials AS t JOIN decisions AS d ON d.id = t.decision_id
WHERE d.run = ? AND t.candidate = ? AND t.bound = ?"""
SWAPS_BEFORE = "SELECT coalesce(max(number), 0) FROM swaps WHERE time < ?"
ANSWER = """UPDATE decisions
SET served = coalesce(?, served), price = coalesce(?, price), latency = coalesce(?, latency) WHERE id = ?"""
HOLDER = "SELECT coalesce(served, expert) FROM decisions WHERE session = ? ORDER BY number DESC LIMIT 1"
STATE = """
SELECT d.run, coalesce(d.served, d.expert), s.state FROM decisions AS d LEFT JOIN steps AS s ON s.decision_id = d.id WHERE d.id = ?
"""
NEXT = "UPDATE steps SET state = ? WHERE decision_id = ? AND state = ?"
END = "DELETE FROM steps WHERE decision_id = ? AND state = ?"
GRADE = "UPDATE calls SET correct = ?, loss = ? WHERE decision_id = ? AND expert = ?"
GRADED = """SELECT c.correct, c.loss, coalesce(d.served, d.expert) FROM calls AS c JOIN decisions AS d ON d.id = c.decision_id
WHERE c.decision_id = ? AND c.expert = ?"""
SUMS = """UPDATE decisions SET served = coalesce(?, served), price = (SELECT sum(price) FROM calls WHERE decision_id = ?),
latency = (SELECT sum(latency) FROM calls WHERE decision_id = ?) WHERE id = ?"""
SINCE = "SELECT (SELECT max(number) FROM decisions) - number + 1 FROM decisions WHERE id >= ? ORDER BY id LIMIT 1"
KNOWN = "SELECT correct, loss, price, latency FROM outcomes WHERE decision_id = ?"
KEPT = 86_400.0  # seconds that a plan may wait for an answer
SECONDS = {"minute": 60.0, "hour": 3600.0, "day": 86_400.0}
LIMIT = rf"\s*0*([1-9]\d*)\s*/\s*({'|'.join(SECONDS)})(?:\s+(\d{{1,2}})-(\d{{1,2}}))?\s*"
LAST = "SELECT place, time FROM asks WHERE expert = ? ORDER BY place DESC LIMIT 1"
ASKED_AT = "SELECT time FROM asks WHERE expert = ? AND place = ?"
COUNTED = "SELECT count(*) FROM asks WHERE expert = ? AND place > ? AND time > ?"
# A decision, given who may not be asked and for how long; or NobodyFree.
Draft = Callable[[Mapping[str, float]], Decision]


def add_run(database: Database, name: str, about: str) -> None:
    """about: the inputs of its routers and how they count prices, as JSON. Training from the log needs it."""
    database.execute(RUN, (name, about))


def add_swap(database: Database, run: str) -> int:
    """Return the number of the swap. Other servers with this log follow it."""
    database.execute("INSERT INTO swaps (run, time) VALUES (?, ?)", (run, time.time()))
    return last_swap(database)[0]


def last_swap(database: Database) -> tuple[int, str | None]:
    """Return its number and its run; 0 and None if there was none."""
    return database.execute("SELECT number, run FROM swaps ORDER BY number DESC LIMIT 1").fetchone() or (0, None)


def swaps_before(database: Database, run: str, candidate: str, bound: float) -> int | None:
    """Return the number of the last swap before the first decision of a trial, 0 if there was none; None without a decision."""
    [began] = database.execute(TRIAL_BEGAN, (run, candidate, bound)).fetchone()
    return None if began is None else int(database.execute(SWAPS_BEFORE, (began,)).fetchone()[0])


def write_nothing(database: Database) -> None:
    """Fails if nothing can be written: a full disk lets an empty transaction pass, but not a row."""
    add_run(database, "", "")
    database.execute("DELETE FROM runs WHERE name = ?", ("",))


def add_decisions(database: Database, decisions: Sequence[Decision]) -> None:
    now = time.time()
    database.execute_many(INSERT, [one.row(now) for one in decisions])
    if compared := [(one.id, *one.compared) for one in decisions if one.compared is not None]:
        database.execute_many("INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?)", compared)
    if waiting := [(one.id, one.state) for one in decisions if one.state is not None]:
        database.execute_many("INSERT INTO steps VALUES (?, ?)", waiting)
        database.execute("DELETE FROM steps WHERE decision_id < ?", (id_at(now - KEPT),))


def expert_of(database: Database, session: str) -> str | None:
    """Return who held a conversation last."""
    found = database.execute(HOLDER, (session,)).fetchone()
    return None if found is None else str(found[0])


def decided_since(database: Database, limits: "Sequence[Limit]") -> list[int]:
    """The number of decisions within each limit's unit of time until now; of a day, those in its hours."""
    now = time.time()

    def last(seconds: float) -> int:
        found = database.execute(SINCE, (id_at(now - seconds),)).fetchone()
        return 0 if found is None else int(found[0])

    counts = list[int]()
    for one in limits:
        (begun, ended), whole = one.since(now), last(one.seconds)
        if one.hours is not None and one.unit == "day":
            whole = last(begun) - last(ended) + (whole if begun < ended else 0)
        counts.append(whole)
    return counts


def add_answer(database: Database, id: str, served: str | None, price: float | None, latency: float | None) -> None:
    """Record who answered in place of the chosen expert, the price by usage, and the seconds."""
    database.execute(ANSWER, (served, price, latency, id))


def state_of(database: Database, id: str) -> tuple[str, str, str | None] | None:
    """Return the run that decided, whose answer is given, and the state of a plan that waits; None for an unknown decision."""
    return database.execute(STATE, (id,)).fetchone()


def add_call(database: Database, id: str, call: Call, served: str | None = None) -> None:
    """Record a call of a plan, and the sums of all. served: whose answer is given, if that is decided and not the first one's."""
    database.execute("INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", (id, *astuple(call)))
    database.execute(SUMS, (served, id, id, id))


def move_on(database: Database, id: str, before: str, after: str | None, call: Call, served: str | None) -> bool:
    """Record a call of a plan that waits in the state before; after: None at its end. False if its state is another by now."""
    change = (END, (id, before)) if after is None else (NEXT, (after, id, before))
    if database.execute(*change).rowcount != 1:
        return False
    add_call(database, id, call, served)
    return True


def add_outcomes(database: Database, outcomes: Sequence[ReportedOutcome]) -> list[ReportedOutcome]:
    """Return the new ones; those that are known already stay as they are. It reads first: a refusal leaves nothing behind."""
    new: dict[tuple[str, str | None], ReportedOutcome] = {}
    for outcome in outcomes:
        id, (expert, known) = outcome.decision_id, known_outcome(database, outcome)
        before = known or (new[id, expert].values() if (id, expert) in new else None)
        if before is None:
            if database.execute("SELECT 1 FROM decisions WHERE id = ?", (id,)).fetchone() is None:
                raise Refused(404, f"decision_id={id[:64]}: no such decision; nothing was recorded")
            if database.execute("SELECT 1 FROM steps WHERE decision_id = ?", (id,)).fetchone() is not None:
                raise Refused(409, f"decision_id={id}: its plan waits for an answer; nothing was recorded")
            new[id, expert] = outcome
        elif tuple(before) != outcome.values():
            raise Refused(409, f"decision_id={id}: has another outcome already; nothing was recorded")
    now = time.time()
    first = [(id, *one.values(), now) for (id, expert), one in new.items() if expert is None]
    database.execute_many("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?)", first)
    database.execute_many(GRADE, [(one.correct, one.loss, *key) for key, one in new.items() if key[1] is not None])
    return [*new.values()]


def known_outcome(database: Database, outcome: ReportedOutcome) -> tuple[str | None, Any]:
    """The expert, None for the one whose answer was given; and its outcome, None if there is none yet."""
    id, expert = outcome.decision_id, outcome.expert
    if expert is not None:
        found = database.execute(GRADED, (id, expert)).fetchone()
        if found is None:
            problem = f"decision_id={id[:64]}, expert={expert[:64]}: no such call; nothing was recorded"
            raise Refused(404, problem)
        if found[2] != expert:
            return expert, None if found[:2] == (None, None) else (*found[:2], None, None)
    return None, database.execute(KNOWN, (id,)).fetchone()


# Limits on how often experts are asked. The log counts, so all servers with one log keep them together, also through restarts.


@dataclass(frozen=True)
class Limit:
    """hours: the first and the one after the last, of every day."""

    most: int
    unit: str
    hours: tuple[int, int] | None = None

    @property
    def seconds(self) -> float:
        return SECONDS[self.unit]

    def since(self, now: float) -> tuple[float, float]:
        """Seconds since its hours last began, and since they last ended, by this machine's clock."""
        (begin, end), clock = self.hours or (0, 0), time.localtime(now)
        seconds = 3600 * clock.tm_hour + 60 * clock.tm_min + clock.tm_sec
        return (seconds - 3600 * begin) % SECONDS["day"], (seconds - 3600 * end) % SECONDS["day"]

    def closed(self, now: float) -> float:
        """Seconds until its hours begin; 0 within them."""
        begun, ended = self.since(now)
        return 0.0 if self.hours is None or begun < ended else SECONDS["day"] - begun

    def __str__(self) -> str:
        return f"{self.most}/{self.unit}{'' if self.hours is None else ' {}-{}'.format(*self.hours)}"


Limits = Mapping[str, Limit]  # by expert


def read_limits(given: Mapping[str, str], experts: Sequence[str]) -> dict[str, Limit]:
    found = {}
    for name, text in given.items():
        if name not in experts:
            raise ParameterError("capacity", unknown("expert", name, experts), name)
        parts = re.fullmatch(LIMIT, text)
        hours = None if parts is None or parts[3] is None else (int(parts[3]), int(parts[4]))
        if parts is None or (hours is not None and (max(hours) > 24 or hours[0] % 24 == hours[1] % 24)):
            problem = (
                "must be such as 40/hour or 40/hour 9-17: a whole number above 0, by minute, hour or day, and hours"
            )
            raise ParameterError(f"capacity.{name}", problem, text)
        found[name] = Limit(int(parts[1]), parts[2], hours)
    return found


def last_asked(database: Database, expert: str) -> tuple[int, float]:
    """The place of the last question to the expert, and the time now. A clock that went back stands still."""
    place, at = database.execute(LAST, (expert,)).fetchone() or (0, 0.0)
    return place, max(time.time(), at)


def wait(database: Database, expert: str, limit: Limit) -> float:
    """Seconds until the expert may be asked; 0 if now. The question `most` places before must be older than the unit."""
    place, now = last_asked(database, expert)
    found = database.execute(ASKED_AT, (expert, place + 1 - limit.most)).fetchone()
    return max(limit.closed(now), 0.0 if found is None else found[0] + limit.seconds - now)


def take(database: Database, expert: str, limits: Limits) -> None:
    if expert in limits:
        place, now = last_asked(database, expert)
        database.execute("INSERT INTO asks VALUES (?, ?, ?)", (expert, place + 1, now))


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
        asked = int(database.execute(COUNTED, since).fetchone()[0])
        found[name] = 0 if limit.closed(now) else limit.most - asked
    return found
