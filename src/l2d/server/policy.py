"""Who gets a query: the router's choice, changed by what a request allows, by limits, drift, exploration and candidates."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from l2d.core.assignment import assign
from l2d.logs.decision import Compared, Decision, NobodyFree, new_decision_id
from l2d.logs.operations import Limits
from l2d.router.capacity import guarded_costs
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.server.course import PLAN, Course
from l2d.server.decisions import DriftMonitor
from l2d.server.served import ServeSettings, best_single

REMEMBERED = 1000  # decisions that prices are learned from
ENOUGH = 50
# Who gets a query, who decided that, the propensity, and the comparison with a candidate.
Drawn = tuple[str, str, float | None, Compared | None]
Beside = Callable[[str, str, Sequence[str], Random], Drawn]  # draws with a candidate


@dataclass(frozen=True)
class Wishes:
    """The wishes of a request, beside its query. session: the digest of a conversation. held: the expert that has it. alone: ask
    one expert, unless it fails. away: who may not be asked. variant: of the router, if a plan waits for reported answers."""

    session: str | None = None
    held: str | None = None
    alone: bool = False
    away: frozenset[str] = frozenset()
    variant: Sequence[Any] | None = None


@dataclass(frozen=True)
class Pending:
    """A query whose expert is not drawn yet. about: what else its decision says."""

    router: Router
    choice: Choice
    course: Course | None
    wishes: Wishes
    beside: Beside | None
    about: Mapping[str, Any]


class Policy:
    """drift, scarcity: of the inputs and costs of the run that serves."""

    def __init__(self, settings: ServeSettings, rng: Random) -> None:
        self.settings, self.rng = settings, rng
        self.begin()

    def begin(self) -> None:
        """Forget the run before."""
        self.drift, self.scarcity = DriftMonitor(self.settings.drift_limit), Scarcity(self.settings.capacity)

    def decide(self, query: Pending, full: Mapping[str, float]) -> Decision:
        """full: whose capacity is used up, and for how long. Raises NobodyFree."""
        allowed = [name for name in query.router.experts if name not in query.wishes.away]
        free = [name for name in allowed if name not in full]
        if not free:
            raise NobodyFree(min((full[name] for name in allowed), default=0.0))
        expert, by, propensity, compared = self._draw(query, free)
        course, variant = query.course, query.wishes.variant
        opened = None if course is None else course.opened(expert, by, propensity, self.rng)
        return Decision(
            new_decision_id(),
            expert=expert,
            router_choice=query.choice.expert,
            decided_by=by,
            propensity=propensity,
            price=query.about["prices"][expert],
            **query.about,
            compared=compared,
            planned=opened is not None and not opened.alone,
            course=opened,
            state=None if opened is None or variant is None else opened.state(variant),
        )

    def _draw(self, query: Pending, free: Sequence[str]) -> Drawn:
        """Only the first turn of a conversation is a decision, so later ones have no propensity."""
        router, choice, course, beside = query.router, query.choice, query.course, query.beside
        if self.settings.shadow in free:
            return str(self.settings.shadow), "shadow", 1.0, None
        if query.wishes.held in free:
            return str(query.wishes.held), "session", None, None
        preferred, by = self.scarcity.preferred(router, choice, free), "unreadable" if choice.unread else "router"
        by = by if preferred == choice.expert else "capacity"
        if course is not None:
            preferred, by, free = str(course.turn), by if course.alone else PLAN, course.affordable
        if self.drift.beyond and not choice.unread and best_single(router) in free:
            preferred, by, beside = best_single(router), "drift", None
        if beside is not None:
            return beside(preferred, by, free, self.rng)
        return *draw_expert(preferred, by, free, self.settings.explore, self.rng), None


def draw_expert(preferred: str, by: str, experts: Sequence[str], explore: float, rng: Random) -> tuple[str, str, float]:
    """Any expert with probability `explore`, else the preferred one. Return it, who decided, and the propensity."""
    expert, drawn_by = (rng.choice(experts), "explore") if rng.random() < explore else (preferred, by)
    return expert, drawn_by, propensity(expert, preferred, experts, explore)


def propensity(expert: str, preferred: str, experts: Sequence[str], explore: float) -> float:
    """π(k) = explore/p + (1 − explore)·1[k is preferred]"""
    return explore / len(experts) + (1 - explore if expert == preferred else 0.0)


class Scarcity:
    """Learns a shadow price of each limited expert from the last decisions of this process, and how many the log had within the
    unit of its limit: at these prices the decisions would have kept the limits, at the least expected cost."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.prices: Mapping[str, float] = {}
        self._costs: deque[np.ndarray] = deque(maxlen=REMEMBERED)

    def preferred(self, router: Router, choice: Choice, free: Sequence[str]) -> str:
        """Whom to ask among those who are free: the least expected cost, with the shadow price."""
        if self.limits and choice.expected_costs is not None:
            [costs] = guarded_costs(router, [choice])
            self._costs.append(costs)
            if any(self.prices.values()) and (router.raw or router.description.guard.constant is None):
                asked = dict(zip(router.experts, costs, strict=True))
                return min(free, key=lambda name: asked[name] + self.prices.get(name, 0.0))
        return next(name for name in choice.ranking if name in free)

    def learn(self, experts: Sequence[str], decided: Mapping[str, int]) -> None:
        """decided: how many decisions there were within the unit of each limit."""
        costs = np.array([one for one in self._costs.copy() if len(one) == len(experts)])  # a swap may be under way
        if len(costs) < ENOUGH:
            return
        known = {name: self.limits[name].most / max(1, number) for name, number in decided.items()}
        shares = np.array([known.get(name, 1.0) for name in experts])
        limits = np.minimum(1.0, shares) * len(costs)
        if np.floor(limits).sum() < len(costs):  # more than all can do: scarce for everybody alike
            limits = np.ceil(limits * len(costs) / limits.sum())
        prices = np.where(shares < 1, assign(costs, np.floor(limits).astype(int))[1], 0.0)
        self.prices = dict(zip(experts, prices.tolist(), strict=True))
