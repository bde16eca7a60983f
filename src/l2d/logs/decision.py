"""A decision about one query, as it is answered and logged; and why one is refused."""

import hashlib
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from l2d.utils.errors import L2DError

# Of a decision that two routers had a part in: the candidate, its choice, a bound, base and weight. base + weight·cost estimates
# the cost of its choice less that of the other router's; it is at most ±bound.
Compared = tuple[str, str, float, float, float]


@dataclass(frozen=True)
class Decision:
    """What is not logged: ranking, price_weight and guard, as clients get them; prices: that the run knows, by expert.
    planned: the calls have the propensities. state: of a plan that waits for an answer; course: the server's view."""

    id: str
    run: str  # that decided
    expert: str  # who gets the query
    router_choice: str | None  # whom the router prefers, None if it was not asked
    decided_by: str  # router, candidate, explore, shadow, drift, capacity, unreadable, plan, session or client
    propensity: float | None  # the chance with which the policy chose the expert, None if no policy did
    price: float | None = None  # of the expert, as the run knows it
    session: str | None = None  # a digest
    text: str | None = None  # the input, if it is kept, or its
    features: bytes | None = None  # float32
    ranking: Sequence[Mapping[str, Any]] = ()
    price_weight: float | None = None
    guard: str | None = None
    prices: Mapping[str, float | None] = field(default_factory=dict)
    planned: bool = False
    state: str | None = None
    course: Any = None
    compared: Compared | None = None  # with a candidate, in a table of its own

    def expected_cost(self, expert: str) -> float | None:
        return next((one["expected_cost"] for one in self.ranking if one["expert"] == expert), None)

    def row(self, now: float) -> tuple[Any, ...]:
        propensity = None if self.planned else self.propensity
        known = (self.run, self.expert, self.router_choice, self.decided_by, propensity, self.price)
        text = self.text and self.text.replace("\0", "\N{REPLACEMENT CHARACTER}")  # PostgreSQL refuses \0
        return (self.id, now, *known, self.session, text, self.features)


@dataclass(frozen=True)
class Call:
    place: int
    expert: str
    propensity: float | None
    price: float
    latency: float | None
    same_as: str | None  # the first expert that gave this answer, None if there was no answer
    confidence: float | None
    length: int | None  # in characters


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


def new_decision_id() -> str:
    """Nobody can guess it, and two servers do not make the same. It begins with the time, which keeps the index small."""
    return f"{id_at(time.time())}{secrets.token_hex(10)}"


def id_at(seconds: float) -> str:
    """The start of all ids of this time. It sorts after all earlier ids."""
    return f"{int(seconds * 1000):012x}"


def session_digest(session: str | None) -> str | None:
    """The part of a conversation's name that is kept; None without a name."""
    return None if not session else hashlib.sha256(session.encode()).hexdigest()[:32]


class LogUnavailable(L2DError):
    """Nothing was written: the database is locked, the disk is full, or the file is gone."""


class Refused(Exception):
    """A request that is not answered, and of which nothing is recorded. status: of the HTTP answer. kind: of error, in the metrics;
    None if it is the client's. retry_after: seconds."""

    def __init__(self, status: int, problem: str, kind: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(problem)
        self.status, self.kind, self.retry_after = status, kind, retry_after


class NobodyFree(Refused):
    """Nobody who may be asked can be asked now."""

    def __init__(self, wait: float) -> None:
        super().__init__(429, "no expert that may be asked has capacity left; try again later", None, int(wait) + 1)
