"""The log: one thread does what is asked of it, and acknowledges that only when it is on disk."""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from l2d.logs.databases import Database, open_database
from l2d.logs.decision import LogUnavailable, Refused
from l2d.logs.operations import decided_since, expert_of, last_swap, left, state_of, swaps_before

READS = (decided_since, expert_of, last_swap, left, state_of, swaps_before)  # the operations that write nothing
MOST = 512  # operations in one commit
MOST_WAITING = 20_000  # operations; more are refused, as behind a database that hangs
LOG_SECONDS = 10.0  # for an operation; a database may hang
CLOSING = 20.0  # seconds

P = ParamSpec("P")
T = TypeVar("T")
logger = logging.getLogger("l2d.serve")


class Waiting(NamedTuple):
    operation: Callable[[Database], Any]
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

    def do(self, operation: Callable[Concatenate[Database, P], T], *given: P.args, **named: P.kwargs) -> Future[T]:
        """Let the thread do an operation of l2d.logs.operations; the future has its result."""
        done: Future[T] = Future()
        if self._waiting.qsize() >= MOST_WAITING:
            done.set_exception(LogUnavailable("too many operations wait"))
            return done
        self._waiting.put(Waiting(lambda database: operation(database, *given, **named), done, operation not in READS))
        return done

    async def done(self, operation: Callable[Concatenate[Database, P], T], *given: P.args, **named: P.kwargs) -> T:
        """The result of an operation. Raises LogUnavailable, also if it takes too long: if it has not begun, it never will."""
        try:
            async with asyncio.timeout(LOG_SECONDS):
                return await asyncio.wrap_future(self.do(operation, *given, **named))
        except TimeoutError:
            raise LogUnavailable(f"no answer within {LOG_SECONDS:g} seconds") from None

    def close(self) -> None:
        """Write what waits, then end. A second call does nothing."""
        self._waiting.put(None)
        self._writer.join(CLOSING)
        if not self._writer.is_alive():  # else it waits for a database that hangs
            self._database.close()

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
                except Refused as refusal:
                    results.append((one.done, refusal))
            self._database.commit()
        except Exception as error:  # whatever it is: the thread that writes must live
            with suppress(Exception):
                self._database.roll_back()
            problem = f"{self.name}: the log cannot be written ({error})"
            results = [(one.done, LogUnavailable(problem)) for one in batch]
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
