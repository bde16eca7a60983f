"""The service behind the endpoints: it decides, and logs each decision before it is answered."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import partial
from itertools import zip_longest
from typing import Any

from l2d.logs import operations
from l2d.logs.decision import Call, Decision, LogUnavailable, NobodyFree, Refused, ReportedOutcome, new_decision_id
from l2d.networks.estimators.planner import unplanned
from l2d.router.router import Router
from l2d.server.bodies import AnswerBody, Message, PreviewBody, QueryBody, RouteBody, chat_query, queries_of, read_query
from l2d.server.course import begun, heard, resumed
from l2d.server.decisions import AnsweredTogether, Batcher
from l2d.server.policy import Beside, Pending, Wishes
from l2d.server.served import ServedRun, about_choice, best_single, prices_of
from l2d.server.succession import Succession
from l2d.utils.errors import L2DError, unknown
from l2d.utils.text import six_digits

FOLLOW = 1.0  # seconds between looks at the log for what other servers wrote
ROUTED = "l2d"  # the model that means: choose

logger = logging.getLogger("l2d.serve")


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
    """runs: which one serves."""

    def __init__(self, runs: Succession) -> None:
        self.runs, self.log, self.policy, self.metrics = runs, runs.log, runs.policy, runs.metrics
        self.settings = runs.policy.settings
        self.batcher = Batcher(observe=self.metrics.batch.observe)
        self._fitting = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.look()  # a worker that replaces another one begins with the run that the others serve
        keeping_up = asyncio.create_task(self._keep_up())
        try:
            yield
        finally:
            keeping_up.cancel()
            await asyncio.to_thread(self.batcher.stop)
            await asyncio.to_thread(self.log.close)  # here: after SIGTERM uvicorn does not come back

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW)
            await self.look()

    async def look(self) -> None:
        """Learn from the log which run serves and what scarce experts are worth. If that fails, requests go on as before."""
        for step in (self.runs.follow_and_judge, self._learn_prices):
            try:
                await step()
            except Exception as error:
                self.metrics.count_error("follow")
                if not isinstance(error, LogUnavailable):  # the log reports that itself
                    logger.error("cannot follow the log: %s", error)

    async def _learn_prices(self) -> None:
        if limits := self.settings.capacity:
            scarcity, experts = self.policy.scarcity, self.runs.current.router.experts
            decided = await self.log.done(operations.decided_since, [*limits.values()])
            await asyncio.to_thread(scarcity.learn, experts, dict(zip(limits, decided, strict=True)))

    async def decide_for(self, body: RouteBody) -> list[Decision]:
        """Answer /v1/route. Raises L2DError, Refused, LogUnavailable."""
        run, asked = self.runs.current, (body.prices, body.budget, body.confidence, body.raw)
        router = await self.router_at(run, *asked)
        if self.settings.capacity and router.operating_point is not None:
            raise L2DError("budget: experts have limits here (--capacity), which would break it")
        wishes = Wishes(away=away(router, body.available), variant=asked)
        found = await self._decide(run, router, queries_of(body), wishes)
        for one in found:
            if one.state is None:  # else its calls are counted
                self.metrics.count_spend(one.expert, one.price)
        return found

    async def router_at(self, run: ServedRun, *asked: Any) -> Router:
        """asked: prices, budget, confidence, raw."""
        if all(given is None or given is False for given in asked):
            return run.router
        async with self._fitting:  # one at a time: guards are fitted on the cores that decide
            return await asyncio.to_thread(run.variant, *asked)

    async def decide_chat(
        self, messages: list[Message], features: Mapping[str, Any], session: str | None, stays: bool, alone: bool
    ) -> Decision:
        """features: by column, maybe among others. stays: with the expert that has the conversation."""
        run = self.runs.current
        query = chat_query(messages, features, run.router.description)
        held = await self.log.done(operations.expert_of, session) if session is not None and stays else None
        [found] = await self._decide(run, run.router, [query], Wishes(session, held, alone))
        return found

    async def log_asked(self, expert: str, session: str | None) -> Decision:
        """Log an expert that the client named, so that it can have an outcome. No policy chose it."""
        run = self.runs.current
        prices = prices_of(run.router)
        about: dict[str, Any] = {"price": prices[expert], "session": session, "prices": prices}
        named = Decision(new_decision_id(), run.name, expert, None, "client", None, **about)

        def decide(full: Mapping[str, float]) -> Decision:
            if expert in full:
                raise NobodyFree(full[expert])
            return named

        [found] = await self._log([decide])
        return found

    async def _decide(self, run: ServedRun, router: Router, bodies: list[QueryBody], wishes: Wishes) -> list[Decision]:
        """Return decisions that are on disk."""
        read: partial[list[Any]] = partial(list, map(partial(read_query, about=router.description), bodies))
        queries = await asyncio.to_thread(read) if router.description.kind == "image" else read()  # pictures take long
        asked, trial, besides = self.batcher.ask(router, queries), self.runs.trial, list[Beside | None]()
        if trial is not None and router is trial.run.router:  # not at a client's own prices
            answered, rivals = await asyncio.gather(asked, trial.choices(queries))
            besides = [partial(trial.draw, pair) for pair in zip(answered.choices, rivals, strict=False)]
            if not rivals:
                self.metrics.count_error("candidate")
        else:
            answered = await asked
        if run is self.runs.current:  # after a reload, other inputs are far
            self._note_drift(answered)
        known, keep = {"run": run.name, "prices": prices_of(router)}, self.settings.keep
        drafts: list[operations.Draft] = []
        numbers = answered.inputs.flatten(1).numpy().astype("<f4", copy=False) if keep == "features" else None
        for place, (query, choice, beside) in enumerate(zip_longest(queries, answered.choices, besides)):
            course = begun(router, choice, answered.outputs[place : place + 1], self.settings, wishes.alone)
            about: dict[str, Any] = {**known, "session": wishes.session, **about_choice(choice)}
            if keep == "text" and not choice.unread:
                about["text"] = query
            if numbers is not None and not choice.unread:
                about["features"] = numbers[place].tobytes()
            pending = Pending(router, choice, course, wishes, beside, about)
            drafts.append(partial(self.policy.decide, pending))
        return await self._log(drafts)

    async def _log(self, drafts: Sequence[operations.Draft]) -> list[Decision]:
        """Decide, where limits may change the choice in the same transaction that counts it."""
        if limits := self.settings.capacity:
            found = await self.log.done(operations.decide_within, drafts, limits)
        else:
            found = [draft({}) for draft in drafts]
            await self.log.done(operations.add_decisions, found)
        for one in found:
            self.metrics.choices.labels(one.expert, one.decided_by).inc()
            if one.guard is not None:
                self.metrics.guarded.labels(one.guard.partition(":")[0]).inc()
        return found

    async def may_ask(self, expert: str) -> bool:
        """Count a question that no decision counted; False if the expert has no capacity left."""
        limits = self.settings.capacity
        return expert not in limits or await self.log.done(operations.ask_within, expert, {expert: limits[expert]})

    async def left(self) -> dict[str, int]:
        """The number of questions that each expert with a limit may still be asked now."""
        return await self.log.done(operations.left, self.settings.capacity) if self.settings.capacity else {}

    async def take_answer(self, id: str, body: AnswerBody) -> dict[str, Any]:
        """An answer that a client reports: the plan of the decision goes on, in whichever process, and each answer counts once.
        Return whom to ask next, or whose answer to give. Raises Refused, L2DError, LogUnavailable."""
        while True:
            found = await self.log.done(operations.state_of, id)
            if found is None:
                raise Refused(404, f"decision_id={id[:64]}: no such decision; nothing was recorded")
            run, given, before = found
            if before is None:
                raise Refused(409, f"decision_id={id}: waits for no answer; it ended with {given}")
            state = json.loads(before)
            router = await self._router_that_began(run, state["variant"])
            course = heard(resumed(router, state, self.settings), body, id)
            call, ended = course.last_call(None), course.ask is None
            served = course.accept if ended and course.accept != given else None
            after = None if ended else course.state(state["variant"])
            if await self.log.done(operations.move_on, id, before, after, call, served):
                break  # else another answer came meanwhile: look again
        self.metrics.count_spend(call.expert, call.price)
        if not ended:
            return {"ask": course.ask}
        self.metrics.calls.observe(call.place)
        return {"accept": course.accept, "chance": six_digits(course.now.chance)}

    async def _router_that_began(self, run: str, variant: list[Any]) -> Router:
        """The router that began a plan. Another server may have reloaded."""
        if run != self.runs.current.name:
            await self.look()
        for known in (self.runs.current, self.runs.previous):
            if known.name == run:
                return await self.router_at(known, *variant)
        raise Refused(409, f"run={run}: it decided, and this server has {self.runs.current.name} now; route again")

    async def preview(self, body: PreviewBody) -> dict[str, Any]:
        """The router's own choice, which leaves no trace."""
        run = self.runs.current
        query = read_query(body, run.router.description)
        router = await self.router_at(run, body.prices, None, None, False)
        [choice] = (await self.batcher.ask(router, [query])).choices
        return {"expert": choice.expert, **about_choice(choice), "guard_note": router.guard_note, "run": run.name}

    async def record(self, outcomes: Sequence[ReportedOutcome]) -> int:
        """Return how many were new; only these are counted. Raises Refused, LogUnavailable."""
        new = await self.log.done(operations.add_outcomes, outcomes)
        self.metrics.outcomes.inc(len(new))
        self.metrics.wrong.inc(sum(one.error for one in new))
        return len(new)

    def note_answer(self, decision: Decision, expert: str | None, price: float | None, seconds: float | None) -> None:
        """Record an answer's price, by its usage if known, and count it. Nobody waits: a failure is only counted."""
        if expert is not None:
            self.metrics.count_spend(expert, decision.prices[expert] if price is None else price)
        self._count_failure(self.log.do(operations.add_answer, decision.id, None, price, seconds))

    def note_call(self, decision: Decision, call: Call) -> None:
        """Record a call of a plan, and count its price. Nobody waits for the log, as for an answer."""
        self.metrics.count_spend(call.expert, call.price)
        self._count_failure(self.log.do(operations.add_call, decision.id, call))

    def _count_failure(self, written: Future[Any]) -> None:
        errors = self.metrics.errors.labels("log")
        written.add_done_callback(lambda done: None if done.cancelled() or done.exception() is None else errors.inc())

    async def ready(self) -> str:
        """Return the run's name. Raises LogUnavailable."""
        await self.log.done(operations.write_nothing)
        return self.runs.current.name

    def model_names(self) -> list[str]:
        """The models of /v1/chat/completions."""
        upstreams, seen = self.settings.upstreams, self.runs.current.router.description.seen
        return [*([ROUTED] if upstreams and (seen.text is not None or seen.features) else []), *upstreams]

    def _note_drift(self, answered: AnsweredTogether) -> None:
        drift = self.policy.drift
        was = drift.beyond
        drift.add([one for one, choice in zip(answered.far or (), answered.choices, strict=False) if not choice.unread])
        if drift.beyond != was:
            who = f"{best_single(self.runs.current.router)} answers" if drift.beyond else "the router decides again"
            print(f"drift: {drift.share:.0%} of the last inputs are far; {who}", file=sys.stderr, flush=True)
        if (share := drift.share) is not None:
            self.metrics.far.set(share)
