"""Who gets a query: the router's choice, changed by what a request allows, by limits, drift, exploration and candidates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from l2d.logs.decision import Decision, new_decision_id
from l2d.logs.refusals import NobodyFree
from l2d.logs.trials import Compared
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.server.course import PLAN, Course
from l2d.server.served import ServeSettings, best_single
from l2d.server.succession import Succession
from l2d.server.trial import draw_expert

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

    run: str
    router: Router
    choice: Choice
    course: Course | None
    wishes: Wishes
    beside: Beside | None
    about: Mapping[str, Any]


class Policy:
    def __init__(self, settings: ServeSettings, runs: Succession, rng: Random) -> None:
        self.settings, self.runs, self.rng = settings, runs, rng

    def decide(self, query: Pending, full: Mapping[str, float]) -> Decision:
        """full: whose capacity is used up, and for how long. Raises NobodyFree."""
        choice, course, wishes = query.choice, query.course, query.wishes
        allowed = [name for name in query.router.experts if name not in wishes.away]
        free = [name for name in allowed if name not in full]
        if not free:
            raise NobodyFree(min((full[name] for name in allowed), default=0.0))
        expert, by, propensity, compared = self._draw(query, free)
        opened = None if course is None else course.opened(expert, by, propensity, self.rng)
        return Decision(
            new_decision_id(),
            query.run,
            expert,
            choice.expert,
            by,
            propensity,
            query.about["prices"][expert],
            **query.about,
            compared=compared,
            planned=opened is not None and not opened.alone,
            course=opened,
            state=None if opened is None or wishes.variant is None else opened.state(wishes.variant),
        )

    def _draw(self, query: Pending, free: Sequence[str]) -> Drawn:
        """Only the first turn of a conversation is a decision, so later ones have no propensity."""
        router, choice, course, beside = query.router, query.choice, query.course, query.beside
        if self.settings.shadow in free:
            return str(self.settings.shadow), "shadow", 1.0, None
        if query.wishes.held in free:
            return str(query.wishes.held), "session", None, None
        preferred, by = self.runs.scarcity.preferred(router, choice, free), "unreadable" if choice.unread else "router"
        by = by if preferred == choice.expert else "capacity"
        if course is not None:
            preferred, by, free = str(course.turn), by if course.alone else PLAN, course.affordable
        if self.runs.drift.beyond and not choice.unread and best_single(router) in free:
            preferred, by, beside = best_single(router), "drift", None
        if beside is not None:
            return beside(preferred, by, free, self.rng)
        return *draw_expert(preferred, by, free, self.settings.explore, self.rng), None
