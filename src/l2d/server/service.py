"""The service behind the endpoints: it decides, logs each decision before it is answered, and swaps runs."""

import asyncio
import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from l2d.logs.capacity import NobodyFree
from l2d.logs.decision import Call, Decision, new_decision_id
from l2d.logs.last_hour import read_last_hour
from l2d.logs.outcome_log import Draft, OutcomeLog, ReportedOutcome
from l2d.logs.refusals import LogUnavailable
from l2d.logs.trials import Compared
from l2d.networks.estimators.planner import unplanned
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.server.bodies import Message, PreviewBody, QueryBody, RouteBody, chat_query, queries_of, read_query
from l2d.server.course import PLAN, Course, begun
from l2d.server.decisions import AnsweredTogether, Batcher, DriftMonitor, draw_expert
from l2d.server.metrics import ServerMetrics
from l2d.server.scarcity import Scarcity
from l2d.server.served import (
    FORCE,
    ReloadRefused,
    ServedRun,
    ServeSettings,
    about_choice,
    about_inputs,
    best_single,
    check_successor,
    prices_of,
)
from l2d.server.trial import CANDIDATE, Trial
from l2d.utils.errors import L2DError, unknown

LOG_SECONDS = 10.0  # for what is read and written of the log; a database may hang
FOLLOW = 1.0  # seconds between looks at the log for a reload of another server
ROUTED = "l2d"  # the model that means: choose

T = TypeVar("T")
# Who gets a query, who decided that, the propensity, and the comparison with a candidate.
Drawn = tuple[str, str, float | None, Compared | None]
logger = logging.getLogger("l2d.serve")


async def written(waiting: Future[T]) -> T:
    """The result of an operation of the log. Raises LogUnavailable, also if it takes too long: if it has not begun, it never
    will."""
    try:
        async with asyncio.timeout(LOG_SECONDS):
            return await asyncio.wrap_future(waiting)
    except TimeoutError:
        raise LogUnavailable(f"no answer within {LOG_SECONDS:g} seconds") from None


@dataclass(frozen=True)
class Wishes:
    """The wishes of a request, beside its query. session: the digest of a conversation, which stays with who held it, if it is to
    stay. alone: ask one expert, unless it fails. away: who may not be asked. variant: of the router, if a plan waits for
    answers that are reported. beside: draws with a candidate."""

    session: str | None = None
    stays: bool = False
    held: str | None = None
    alone: bool = False
    away: frozenset[str] = frozenset()
    variant: Sequence[Any] | None = None
    beside: Callable[..., Drawn] | None = None


def away(router: Router, available: Sequence[str] | None) -> frozenset[str]:
    """The experts that a request does not allow."""
    if available is None:
        return frozenset()
    if unplanned(router.network) is not None:
        raise L2DError("available: this router follows a plan, which may ask all")
    for name in available:
        if name not in router.experts:
            raise L2DError(f"available={name[:64]}: {unknown('expert', name[:64], router.experts)}")
    return frozenset(router.experts) - {*available}


class RouterService:
    """load: reads a run's folder, with the options of the first run. swaps: the number of reloads in the log when the first worker
    started; the service follows later ones. None: follow reloads from now on. reloaded: the run of the last reload in the log.
    trial: of a candidate beside the run; it ends when another run serves."""

    trial: Trial | None = None

    def __init__(
        self,
        run: ServedRun,
        log: OutcomeLog,
        settings: ServeSettings,
        load: Callable[[Path], ServedRun],
        rng: random.Random | None = None,
        swaps: int | None = None,
    ) -> None:
        self.current, self.log, self.settings, self.load = run, log, settings, load
        self.previous = run  # plans that wait for an answer go on with the run that began them
        self.metrics, self.drift = ServerMetrics(), DriftMonitor(settings.drift_limit)
        self.scarcity = Scarcity(settings.capacity)
        self.batcher = Batcher(settings.batch, self.metrics.batch.observe)
        self.rng = rng or random.Random()
        self._reloading, self._fitting, self._previewing = (asyncio.Lock() for _ in range(3))
        try:
            log.add_run(run.name, about_inputs(run.router)).result()
            last, self.reloaded = log.last_swap().result()
            self.swaps = last if swaps is None else swaps
        except LogUnavailable as error:
            raise L2DError(f"{log.name}: the log cannot be written ({error})") from error
        self.metrics.run.labels(run.name).set(1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.try_to_follow()  # a worker that replaces another one begins with the run that the others serve
        following = asyncio.create_task(self.keep_following())
        try:
            yield
        finally:
            following.cancel()
            await asyncio.to_thread(self.batcher.stop)
            await asyncio.to_thread(self.log.close)  # here: after SIGTERM uvicorn does not come back

    async def decide_for(self, body: RouteBody) -> list[Decision]:
        """Answer /v1/route. Raises L2DError, Overloaded, LogUnavailable, NobodyFree."""
        run, asked = self.current, (body.prices, body.budget, body.confidence, body.raw)
        router = await self.router_at(run, *asked)
        if self.settings.capacity and router.operating_point is not None:
            raise L2DError("budget: experts have limits here (--capacity), which would break it")
        wishes = Wishes(away=away(router, body.available), variant=asked)
        found = await self._decide(run, router, queries_of(body), wishes)
        for one in found:
            if one.state is None:  # else its calls are counted
                self.count_spend(one.expert, one.price)
        return found

    async def router_at(self, run: ServedRun, *asked: Any) -> Router:
        """asked: prices, budget, confidence, raw."""
        if all(given is None or given is False for given in asked):
            return run.router
        async with self._fitting:  # one at a time: guards are fitted on the cores that decide
            return await asyncio.to_thread(run.variant, *asked)

    async def decide_chat(self, messages: list[Message], features: Mapping[str, Any], wishes: Wishes) -> Decision:
        """features: by column, maybe among others."""
        run = self.current
        query = chat_query(messages, features, run.router.description)
        if wishes.stays:
            wishes = replace(wishes, held=await written(self.log.expert_of(str(wishes.session))))
        [found] = await self._decide(run, run.router, [query], wishes)
        return found

    async def log_asked(self, expert: str, wishes: Wishes) -> Decision:
        """Log an expert that the client named, so that it can have an outcome. No policy chose it."""
        run = self.current
        prices = prices_of(run.router)
        about: dict[str, Any] = {"price": prices[expert], "session": wishes.session, "prices": prices}
        named = Decision(new_decision_id(), run.name, expert, None, "client", None, **about)

        def decide(full: Mapping[str, float]) -> Decision:
            if expert in full:
                raise NobodyFree(full[expert])
            return named

        [found] = await self._log([decide])
        return found

    async def _decide(
        self, run: ServedRun, router: Router, bodies: Sequence[QueryBody], wishes: Wishes
    ) -> list[Decision]:
        """Return decisions that are on disk."""
        queries = [read_query(body, router.description) for body in bodies]
        rivals: Sequence[Choice | None] = [None] * len(queries)
        asked, trial = self.batcher.ask(router, queries), self.trial
        if trial is not None and trial.compares(router):
            answered, rivals = await asyncio.gather(asked, trial.choices(queries))
            if None in rivals:
                self.count_error("candidate")
        else:
            answered = await asked
        if run is self.current:  # after a reload, other inputs are far
            self._note_drift(answered)
        prices, keep, drafts = prices_of(router), self.settings.keep, list[Draft]()
        numbers = answered.inputs.flatten(1).numpy().astype("<f4", copy=False) if keep == "features" else None
        for place, (query, choice, rival) in enumerate(zip(queries, answered.choices, rivals, strict=True)):
            course = begun(router, choice, answered.outputs[place : place + 1], self.settings, wishes.alone)
            about: dict[str, Any] = {"session": wishes.session, "prices": prices, **about_choice(choice)}
            if keep == "text" and not choice.unread:
                about["text"] = query
            if numbers is not None and not choice.unread:
                about["features"] = numbers[place].tobytes()
            if trial is not None:
                wishes = replace(wishes, beside=None if rival is None else partial(trial.draw, (choice, rival)))
            drafts.append(self._draft(run.name, router, choice, course, wishes, about))
        return await self._log(drafts)

    def _draft(
        self, run: str, router: Router, choice: Choice, course: Course | None, wishes: Wishes, about: dict[str, Any]
    ) -> Draft:
        """A decision that waits to hear whose capacity is used up."""

        def decide(full: Mapping[str, float]) -> Decision:
            allowed = [name for name in router.experts if name not in wishes.away]
            free = [name for name in allowed if name not in full]
            if not free:
                raise NobodyFree(min((full[name] for name in allowed), default=0.0))
            expert, by, propensity, compared = self._draw(router, choice, wishes, course, free)
            opened = None if course is None else course.opened(expert, by, propensity, self.rng)
            chosen = (expert, choice.expert, by, propensity, about["prices"][expert])
            planned, known = opened is not None and not opened.alone, {**about, "compared": compared}
            state = None if opened is None or wishes.variant is None else opened.state(wishes.variant)
            return Decision(new_decision_id(), run, *chosen, **known, planned=planned, course=opened, state=state)

        return decide

    def _draw(
        self, router: Router, choice: Choice, wishes: Wishes, course: Course | None, free: Sequence[str]
    ) -> Drawn:
        """Only the first turn of a conversation is a decision, so later ones have no propensity."""
        beside = wishes.beside
        if self.settings.shadow in free:
            return str(self.settings.shadow), "shadow", 1.0, None
        if wishes.held in free:
            return str(wishes.held), "session", None, None
        preferred, by = self.scarcity.preferred(router, choice, free), "unreadable" if choice.unread else "router"
        by = by if preferred == choice.expert else "capacity"
        if course is not None:
            preferred, by, free = str(course.turn), by if course.alone else PLAN, course.affordable
        if self.drift.beyond and not choice.unread and best_single(router) in free:
            preferred, by, beside = best_single(router), "drift", None
        if beside is not None:
            return beside(preferred, by, free, self.rng)
        return *draw_expert(preferred, by, free, self.settings.explore, self.rng), None

    async def _log(self, drafts: Sequence[Draft]) -> list[Decision]:
        """Decide, where limits may change the choice in the same transaction that counts it."""
        if self.settings.capacity:
            found = await written(self.log.decide(drafts, self.settings.capacity))
        else:
            found = [draft({}) for draft in drafts]
            await written(self.log.add_decisions(found))
        for one in found:
            self.metrics.choices.labels(one.expert, one.decided_by).inc()
            if one.guard is not None:
                self.metrics.guarded.labels(one.guard.partition(":")[0]).inc()
        return found

    async def may_ask(self, expert: str) -> bool:
        """Count a question that no decision counted; False if the expert has no capacity left."""
        limits = self.settings.capacity
        return expert not in limits or await written(self.log.ask(expert, {expert: limits[expert]}))

    async def left(self) -> dict[str, int]:
        """The number of questions that each expert with a limit may still be asked now."""
        return await written(self.log.left(self.settings.capacity)) if self.settings.capacity else {}

    async def preview(self, body: PreviewBody) -> dict[str, Any]:
        """The router's own choice, which leaves no trace."""
        run = self.current
        router, query = run.router, read_query(body, run.router.description)
        if body.prices is not None:
            async with self._previewing:
                router = await asyncio.to_thread(router.at, body.prices)
        [choice] = (await self.batcher.ask(router, [query])).choices
        return {"expert": choice.expert, **about_choice(choice), "guard_note": router.guard_note, "run": run.name}

    async def record(self, outcomes: Sequence[ReportedOutcome]) -> int:
        """Return how many were new; only these are counted. Raises OutcomeRefused, LogUnavailable."""
        new = await written(self.log.add_outcomes(outcomes))
        self.metrics.outcomes.inc(len(new))
        self.metrics.wrong.inc(sum(one.error for one in new))
        return len(new)

    async def note_substitute(self, decision: Decision, expert: str) -> None:
        """Record who answers in place of the chosen expert, at its price in the run that decided."""
        await written(self.log.add_answer(decision.id, expert, decision.prices[expert], None))

    def note_answer(self, decision: Decision, expert: str | None, price: float | None, seconds: float | None) -> None:
        """Record an answer's price, by its usage if that is known, and count it for the expert. Nobody waits for the log: a failure
        is only counted."""
        if expert is not None:
            self.count_spend(expert, decision.prices[expert] if price is None else price)
        self._count_failure(self.log.add_answer(decision.id, None, price, seconds))

    def note_call(self, decision: Decision, call: Call) -> None:
        """Record a call of a plan, and count its price. Nobody waits for the log, as for an answer."""
        self.count_spend(call.expert, call.price)
        self._count_failure(self.log.add_call(decision.id, call))

    def _count_failure(self, written: Future[Any]) -> None:
        errors = self.metrics.errors.labels("log")
        written.add_done_callback(lambda done: None if done.cancelled() or done.exception() is None else errors.inc())

    def count_error(self, kind: str) -> None:
        self.metrics.errors.labels(kind).inc()

    def count_spend(self, expert: str, price: float | None) -> None:
        if price is not None:
            self.metrics.spend.labels(expert).inc(price)

    async def ready(self) -> str:
        """Return the run's name. Raises LogUnavailable."""
        await written(self.log.check())
        return self.current.name

    def model_names(self) -> list[str]:
        """The models of /v1/chat/completions."""
        upstreams, seen = self.settings.upstreams, self.current.router.description.seen
        return [*([ROUTED] if upstreams and (seen.text is not None or seen.features) else []), *upstreams]

    def last_hour(self) -> dict[str, Any]:
        """Read by a connection of its own, so decisions go on. Raises LogUnavailable."""
        return read_last_hour(self.log.address, time.time(), self.current.router.experts)

    async def reload(self, folder: Path, force: bool) -> str:
        """Swap to another run; other servers with this log follow. Requests that have begun end with the old one. Raises
        ReloadRefused, L2DError."""
        async with self._reloading:
            new = await asyncio.to_thread(self.load, folder)
            check_successor(self.settings, self.current, new, force)
            about, before = new.router.description, self.current.router.description
            if about.kind != before.kind and not force:
                raise ReloadRefused(f"{folder}: it sees {about.sees}, not {before.sees}; {FORCE}")
            if about.guard.constant is not None and not new.router.raw and not force:
                raise ReloadRefused(f"{folder}: {new.router.guard_note}; {FORCE}")
            await self._swap(new)
            return new.name

    async def _swap(self, new: ServedRun) -> None:
        await written(self.log.add_run(new.name, about_inputs(new.router)))
        self.swaps = await written(self.log.add_swap(new.name))
        self.swap_to(new)

    async def judge(self) -> None:
        """Say which router is better, the run's or the candidate's, and let it take over if that is wanted. The log holds all that
        counts, so a server that starts again goes on."""
        if (trial := self.trial) is None:
            return
        await trial.look(self.log.address)
        for part in ("mean", "low", "high"):
            self.metrics.difference.labels(part).set(getattr(trial.found, part))
        trial.over = trial.promotes and trial.better is not None
        if trial.over and trial.better == CANDIDATE:
            async with self._reloading:
                if trial is self.trial:  # else another run serves meanwhile
                    await self._swap(trial.candidate)

    def swap_to(self, new: ServedRun) -> None:
        self.metrics.run.labels(self.current.name).set(0)
        self.metrics.run.labels(new.name).set(1)
        self.previous, self.current, self.trial = self.current, new, None
        self.drift.forget()
        self.scarcity.forget()
        print(f"l2d serves {new.name} now", file=sys.stderr, flush=True)

    async def follow(self) -> None:
        """Swap to the run that another server with this log reloaded, if this one can serve it. Its guard was checked there."""
        number, run = await written(self.log.last_swap())
        if number <= self.swaps or run is None:
            return
        async with self._reloading:
            if number <= self.swaps:  # it reloaded meanwhile
                return
            new = await asyncio.to_thread(self.load, Path(run))
            self.swaps = number  # a run that does not fit is refused once
            check_successor(self.settings, self.current, new, force=True)
            self.swap_to(new)

    async def try_to_follow(self) -> None:
        """Follow, judge a candidate, learn prices. If anything goes wrong, requests go on with the run that it has."""
        for step in (self.follow, self.judge, self.learn_prices):
            try:
                await step()
            except Exception as error:
                self.metrics.errors.labels("follow").inc()
                if not isinstance(error, LogUnavailable):  # the log reports that itself
                    logger.error("cannot follow the log: %s", error)

    async def keep_following(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW)
            await self.try_to_follow()

    async def learn_prices(self) -> None:
        """Learn what scarce experts are worth now. Without the log, they keep the prices that they have."""
        if not (limits := self.settings.capacity):
            return
        with suppress(LogUnavailable):
            decided = await written(self.log.decided_since([one.seconds for one in limits.values()]))
            known = dict(zip(limits, decided, strict=True))
            await asyncio.to_thread(self.scarcity.learn, self.current.router.experts, known)

    def _note_drift(self, answered: AnsweredTogether) -> None:
        was = self.drift.beyond
        far = [one for one, choice in zip(answered.far or (), answered.choices, strict=False) if not choice.unread]
        self.drift.add(far)
        if self.drift.beyond != was:
            who = f"{best_single(self.current.router)} answers" if self.drift.beyond else "the router decides again"
            print(f"drift: {self.drift.share:.0%} of the last inputs are far; {who}", file=sys.stderr, flush=True)
        if (share := self.drift.share) is not None:
            self.metrics.far.set(share)
