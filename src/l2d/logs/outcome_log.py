"""The log: decisions and their outcomes, acknowledged only when they are on disk."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from l2d.logs.capacity import Ledger, Limits
from l2d.logs.databases import Database, connect
from l2d.logs.decision import Call, Decision, id_at
from l2d.logs.refusals import LogUnavailable, OutcomeRefused
from l2d.utils.errors import L2DError

# Step n brings the tables from version n to version n + 1. A released step never changes; append a new one.
STEPS = (
    """
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, time REAL NOT NULL, run TEXT NOT NULL, expert TEXT NOT NULL,
    router_choice TEXT, decided_by TEXT NOT NULL, propensity REAL, price REAL, latency REAL, served TEXT, session TEXT,
    text TEXT, features BLOB
);
CREATE INDEX sessions ON decisions (session) WHERE session IS NOT NULL;
CREATE TABLE outcomes (
    decision_id TEXT PRIMARY KEY REFERENCES decisions (id), correct REAL, loss REAL, price REAL, latency REAL, time REAL NOT NULL
) WITHOUT ROWID""",
    "CREATE TABLE runs (name TEXT PRIMARY KEY, about TEXT NOT NULL)",
    "CREATE TABLE swaps (number INTEGER PRIMARY KEY, run TEXT NOT NULL, time REAL NOT NULL)",
    """
CREATE TABLE steps (decision_id TEXT PRIMARY KEY REFERENCES decisions (id), state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE calls (
    decision_id TEXT NOT NULL REFERENCES decisions (id), place INTEGER NOT NULL, expert TEXT NOT NULL, propensity REAL, price REAL,
    latency REAL, same_as TEXT, confidence REAL, length INTEGER, PRIMARY KEY (decision_id, place)
) WITHOUT ROWID""",
    "ALTER TABLE calls ADD COLUMN correct REAL;\nALTER TABLE calls ADD COLUMN loss REAL",
    """
CREATE TABLE asks (expert TEXT NOT NULL, place INTEGER NOT NULL, time REAL NOT NULL, PRIMARY KEY (expert, place)) WITHOUT ROWID""",
    """
CREATE TABLE trials (
    decision_id TEXT PRIMARY KEY REFERENCES decisions (id), candidate TEXT NOT NULL, choice TEXT NOT NULL, bound REAL NOT NULL,
    base REAL NOT NULL, weight REAL NOT NULL
) WITHOUT ROWID""",
)
MOST = 512  # operations in one commit
MOST_WAITING = 20_000  # operations; more are refused, as behind a database that hangs
COLUMNS = "id, time, run, expert, router_choice, decided_by, propensity, price, session, text, features"
INSERT = f"INSERT INTO decisions ({COLUMNS}) VALUES ({', '.join('?' * 11)})"
COMPARED = "INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?)"
RUN = "INSERT INTO runs VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET about = excluded.about"
LAST_SWAP = "SELECT number, run FROM swaps ORDER BY number DESC LIMIT 1"
ANSWER = """UPDATE decisions
SET served = coalesce(?, served), price = coalesce(?, price), latency = coalesce(?, latency) WHERE id = ?"""
HOLDER = "SELECT coalesce(served, expert) FROM decisions WHERE session = ? ORDER BY number DESC LIMIT 1"
STATE = """
SELECT d.run, coalesce(d.served, d.expert), s.state FROM decisions AS d LEFT JOIN steps AS s ON s.decision_id = d.id WHERE d.id = ?
"""
NEXT = "UPDATE steps SET state = ? WHERE decision_id = ? AND state = ?"
END = "DELETE FROM steps WHERE decision_id = ? AND state = ?"
CALL = "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)"
GRADE = "UPDATE calls SET correct = ?, loss = ? WHERE decision_id = ? AND expert = ?"
GRADED = """SELECT c.correct, c.loss, coalesce(d.served, d.expert) FROM calls AS c JOIN decisions AS d ON d.id = c.decision_id
WHERE c.decision_id = ? AND c.expert = ?"""
SUMS = """UPDATE decisions SET served = coalesce(?, served), price = (SELECT sum(price) FROM calls WHERE decision_id = ?),
latency = (SELECT sum(latency) FROM calls WHERE decision_id = ?) WHERE id = ?"""
SINCE = "SELECT (SELECT max(number) FROM decisions) - number + 1 FROM decisions WHERE id >= ? ORDER BY id LIMIT 1"
KNOWN = "SELECT correct, loss, price, latency FROM outcomes WHERE decision_id = ?"
KEPT = 86_400.0  # seconds that a plan may wait for an answer
CLOSING = 20.0  # seconds

logger = logging.getLogger("l2d.serve")


@dataclass(frozen=True)
class ReportedOutcome:
    decision_id: str
    correct: float | None  # from 0 to 1, or the
    loss: float | None  # in units of one error, without the price
    price: float | None = None
    latency: float | None = None  # seconds
    expert: str | None = None  # whose answer it is about, of a plan's; None: the one that was given

    @property
    def error(self) -> float:
        return 1 - self.correct if self.loss is None else self.loss  # type: ignore[operator] # one of the two is given

    def values(self) -> tuple[float | None, ...]:
        return self.correct, self.loss, self.price, self.latency


def open_database(address: Path | str) -> Database:
    """Connect for one thread at a time; a new log gets its tables, an older one is brought up to date. Raises L2DError."""
    database = connect(address)
    try:
        database.set_durable()
        database.begin()
        found = database.version()
        if found < len(STEPS):
            database.no_limit()
            for statement in ";\n".join(STEPS[found:]).split(";\n"):
                database.execute(statement)
            database.set_version(len(STEPS))
        database.commit()
    except database.errors as error:
        database.close()
        raise L2DError(f"{database.name}: cannot be used as a log ({error})") from error
    if found > len(STEPS):
        database.close()
        problem = f"a newer version of l2d wrote this log (tables {found}; this version knows {len(STEPS)})"
        raise L2DError(f"{database.name}: {problem}; update l2d, or choose another log")
    return database


Operation = Callable[[Database], Any]
Draft = Callable[
    [Mapping[str, float]], Decision
]  # a decision, given who may not be asked, and for how long; or NobodyFree


class Waiting(NamedTuple):
    operation: Operation
    done: Future[Any]
    writes: bool


class OutcomeLog:
    """One thread writes. Operations that arrive while it commits share the next commit, so a slow disk costs latency, not
    throughput. address: an SQLite file, or a PostgreSQL URL."""

    def __init__(self, address: Path | str) -> None:
        self.address, self._database = address, open_database(address)
        self.name = self._database.name
        self._problem: str | None = None  # why the last commit failed
        self._waiting: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()  # None: the log is closed
        self._writer = threading.Thread(target=self._write_all, name="outcome log", daemon=True)
        self._writer.start()

    def add_run(self, name: str, about: str) -> Future[None]:
        """about: the inputs of its routers and how they count prices, as JSON. Training from the log needs it."""
        return self._do(lambda database: database.execute(RUN, (name, about)) and None)

    def add_decisions(self, decisions: Sequence[Decision]) -> Future[None]:
        return self._do(lambda database: add_decisions(database, decisions))

    def decide(self, drafts: Sequence[Draft], limits: Limits) -> Future[list[Decision]]:
        """Decide and write, so that no expert is asked more often than its limit; all, or nothing by NobodyFree."""
        return self._do(lambda database: decide_within(database, drafts, limits))

    def ask(self, expert: str, limits: Limits) -> Future[bool]:
        """Count one more question to the expert; False if it may not be asked now."""
        return self._do(lambda database: ask_within(database, expert, limits))

    def left(self, limits: Limits) -> Future[dict[str, int]]:
        return self._do(lambda database: Ledger(database, limits).left, writes=False)

    def decided_since(self, seconds: Sequence[float]) -> Future[list[int]]:
        return self._do(lambda database: [decided_since(database, one) for one in seconds], writes=False)

    def state_of(self, id: str) -> Future[tuple[str, str, str | None] | None]:
        """Return the run that decided, whose answer is given, and the state of a plan that waits; None for an unknown decision."""
        return self._do(lambda database: database.execute(STATE, (id,)).fetchone(), writes=False)

    def add_call(
        self, id: str, call: Call, served: str | None = None, before: str | None = None, after: str | None = None
    ) -> Future[bool]:
        """Record a call of a plan, and the sums of all. served: whose answer is given, if that is decided and not the first one's.
        before, after: the states of a plan that waits, after is None at its end. False if it is no longer in the state before."""
        return self._do(lambda database: add_call(database, id, call, served, before, after))

    def add_outcomes(self, outcomes: Sequence[ReportedOutcome]) -> Future[list[ReportedOutcome]]:
        """Return the new ones. Outcomes that are known already are left as they are. All are recorded, or none."""
        return self._do(lambda database: add_outcomes(database, outcomes))

    def add_answer(self, id: str, served: str | None, price: float | None, latency: float | None) -> Future[None]:
        """Record who answered in place of the chosen expert, the price by usage, and the seconds."""
        return self._do(lambda database: database.execute(ANSWER, (served, price, latency, id)) and None)

    def expert_of(self, session: str) -> Future[str | None]:
        return self._do(lambda database: (database.execute(HOLDER, (session,)).fetchone() or [None])[0], writes=False)

    def add_swap(self, run: str) -> Future[int]:
        """Return the number of the swap. Other servers with this log follow it."""

        def add(database: Database) -> int:
            database.execute("INSERT INTO swaps (run, time) VALUES (?, ?)", (run, time.time()))
            return int(database.execute(LAST_SWAP).fetchone()[0])

        return self._do(add)

    def last_swap(self) -> Future[tuple[int, str | None]]:
        """Return its number and its run; 0 and None if there was none."""
        return self._do(lambda database: tuple(database.execute(LAST_SWAP).fetchone() or (0, None)), writes=False)

    def check(self) -> Future[None]:
        """Raises LogUnavailable if nothing can be written."""
        return self._do(write_nothing)

    def close(self) -> None:
        """Write what waits, then end. A second call does nothing."""
        self._waiting.put(None)
        self._writer.join(CLOSING)
        if not self._writer.is_alive():  # else it waits for a database that hangs
            self._database.close()

    def _do(self, operation: Operation, *, writes: bool = True) -> Future[Any]:
        done: Future[Any] = Future()
        if self._waiting.qsize() >= MOST_WAITING:
            done.set_exception(LogUnavailable("too many operations wait"))
            return done
        self._waiting.put(Waiting(operation, done, writes))
        return done

    def _write_all(self) -> None:
        while (first := self._waiting.get()) is not None:
            batch = [first]
            while len(batch) < MOST and not self._waiting.empty():
                if (another := self._waiting.get()) is None:
                    self._waiting.put(None)
                    break
                batch.append(another)
            self._commit(batch)

    def _commit(self, batch: Sequence[Waiting]) -> None:
        """Refused operations wrote nothing; those for which nobody waits are left out. Success is told after the commit."""
        batch = [one for one in batch if one.done.set_running_or_notify_cancel()]
        results: list[tuple[Future[Any], Any]] = []
        try:
            self._database.begin()
            for one in batch:
                try:
                    results.append((one.done, one.operation(self._database)))
                except OutcomeRefused as refusal:
                    results.append((one.done, refusal))
            self._database.commit()
        except Exception as error:  # whatever it is: the thread that writes must live
            with suppress(Exception):
                self._database.roll_back()
            results = [(one.done, LogUnavailable(str(error))) for one in batch]
            self._tell(" ".join(str(error).split()))
        else:
            if any(one.writes for one in batch):  # a full disk lets others pass
                self._tell(None)
        for done, result in results:
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)

    def _tell(self, problem: str | None) -> None:
        """Log a problem or its end for the operator, once and not with every request."""
        if problem != self._problem:
            said = "can be written again" if problem is None else f"cannot be written ({problem})"
            logger.error("%s: the log %s", self.name, said)
        self._problem = problem


def write_nothing(database: Database) -> None:
    database.check_room()  # then a row for a moment: a full disk lets an empty transaction pass
    database.execute(RUN, ("", ""))
    database.execute("DELETE FROM runs WHERE name = ?", ("",))


def add_decisions(database: Database, decisions: Sequence[Decision]) -> None:
    now = time.time()
    database.execute_many(INSERT, [one.row(now) for one in decisions])
    if compared := [(one.id, *one.compared) for one in decisions if one.compared is not None]:
        database.execute_many(COMPARED, compared)
    if waiting := [(one.id, one.state) for one in decisions if one.state is not None]:
        database.execute_many("INSERT INTO steps VALUES (?, ?)", waiting)
        database.execute("DELETE FROM steps WHERE decision_id < ?", (id_at(now - KEPT),))


def decide_within(database: Database, drafts: Sequence[Draft], limits: Limits) -> list[Decision]:
    ledger, found = Ledger(database, limits), list[Decision]()
    for draft in drafts:
        decision = draft(ledger.full)
        ledger.take(decision.expert)
        found.append(decision)
    ledger.write()
    add_decisions(database, found)
    return found


def ask_within(database: Database, expert: str, limits: Limits) -> bool:
    ledger = Ledger(database, limits)
    if free := not ledger.wait(expert):
        ledger.take(expert)
        ledger.write()
    return free


def decided_since(database: Database, seconds: float) -> int:
    found = database.execute(SINCE, (id_at(time.time() - seconds),)).fetchone()
    return 0 if found is None else int(found[0])


def add_call(
    database: Database, id: str, call: Call, served: str | None, before: str | None, after: str | None
) -> bool:
    if before is not None:
        change = (END, (id, before)) if after is None else (NEXT, (after, id, before))
        if database.execute(*change).rowcount != 1:
            return False
    database.execute(CALL, (id, *astuple(call)))
    database.execute(SUMS, (served, id, id, id))
    return True


def add_outcomes(database: Database, outcomes: Sequence[ReportedOutcome]) -> list[ReportedOutcome]:
    """Read first, then write, so that a refusal leaves nothing behind. Return the new ones."""
    new: dict[tuple[str, str | None], ReportedOutcome] = {}
    for outcome in outcomes:
        id, (expert, known) = outcome.decision_id, known_outcome(database, outcome)
        before = known or (new[id, expert].values() if (id, expert) in new else None)
        if before is None:
            if database.execute("SELECT 1 FROM decisions WHERE id = ?", (id,)).fetchone() is None:
                raise OutcomeRefused(404, f"decision_id={id[:64]}: no such decision; nothing was recorded")
            if database.execute("SELECT 1 FROM steps WHERE decision_id = ?", (id,)).fetchone() is not None:
                raise OutcomeRefused(409, f"decision_id={id}: its plan waits for an answer; nothing was recorded")
            new[id, expert] = outcome
        elif tuple(before) != outcome.values():
            raise OutcomeRefused(409, f"decision_id={id}: has another outcome already; nothing was recorded")
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
            raise OutcomeRefused(404, problem)
        if found[2] != expert:
            return expert, None if found[:2] == (None, None) else (*found[:2], None, None)
    return None, database.execute(KNOWN, (id,)).fetchone()
