"""The service behind the endpoints: it decides, logs every decision before it is told, and swaps runs."""

import asyncio
import copy
import json
import logging
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from l2d.data.text.tokens import is_tokens
from l2d.logs.outcome_log import (
    LoggedDecision,
    LogUnavailable,
    OutcomeLog,
    ReportedOutcome,
    new_decision_id,
    session_digest,
)
from l2d.router.choices import Choice
from l2d.router.repriced import Prices
from l2d.router.router import Router
from l2d.server.answers import ranking_of
from l2d.server.bodies import QueryBody, RouteBody, queries_of, read_query
from l2d.server.decisions import AnsweredTogether, Batcher, DrawnExpert, DriftMonitor, draw_expert
from l2d.server.metrics import ServerMetrics
from l2d.server.upstreams import Upstream
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import six_digits

FOLLOW = 1.0  # seconds between looks at the log for a reload of another server
MOST_VARIANTS = 64  # routers at other prices that are kept
KEPT = ("text", "features", "none")
FORCE = "force swaps anyway"
MONEY = {"": "in units of one error", "$": "in dollars"}

logger = logging.getLogger("l2d.serve")


class ReloadRefused(Exception):
    """The new run does not fit. The old one goes on."""


@dataclass(frozen=True)
class ServeSettings:
    """keep: what the log keeps of inputs. explore: the share of queries whose expert is drawn. shadow: the expert that answers all
    queries. drift_limit: the share of far inputs beyond which the guard's expert answers. Tokens: None if there is none."""

    keep: str = "features"
    explore: float = 0.0
    shadow: str | None = None
    drift_limit: float | None = None
    upstreams: dict[str, Upstream] = field(default_factory=dict)
    api_token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    largest_body: int = 8_000_000
    batch: int = 64


class ServedRun:
    """A router that serves, the run's name, and the routers at other prices that clients asked for."""

    def __init__(self, router: Router, name: str) -> None:
        self.router, self.name = router, name
        self._variants: OrderedDict[str, Router] = OrderedDict()
        self._lock = threading.Lock()

    def variant(self, prices: Prices | None, budget: float | None, confidence: float | None, raw: bool) -> Router:
        """The router at other prices. It takes a while to fit, so the last ones are kept."""
        key = repr((sorted(prices.items()) if isinstance(prices, dict) else prices, budget, confidence, raw))
        with self._lock:
            if key not in self._variants:
                found = copy.copy(self.router)
                if prices is not None or budget is not None or confidence is not None:
                    found = found.at(prices, budget=budget, confidence=confidence)
                found.raw = found.raw or raw
                self._variants[key] = found
                if len(self._variants) > MOST_VARIANTS:
                    self._variants.popitem(last=False)
            self._variants.move_to_end(key)
            return self._variants[key]


@dataclass(frozen=True)
class Decision:
    """choice: the router's. drawn: who gets the query, which exploration, shadow, drift or a session may have changed."""

    id: str
    choice: Choice
    drawn: DrawnExpert
    run: str
    propensity: float | None

    def as_dict(self) -> dict[str, Any]:
        return {
            "decision_id": self.id,
            "expert": self.drawn.expert,
            "decided_by": self.drawn.by,
            "propensity": self.propensity,
            "ranking": ranking_of(self.choice),
            "price_weight": six_digits(self.choice.price_weight),
            "guard": self.choice.guard,
            "run": self.run,
        }


class RouterService:
    """load: reads a run's folder, as the command line asked for the first one. swaps: the number of swaps in the log when the
    first server of this kind began; it follows later ones. None: now. reloaded: the run of the last swap before."""

    def __init__(
        self,
        run: ServedRun,
        log: OutcomeLog,
        settings: ServeSettings,
        load: Callable[[Path], ServedRun],
        rng: random.Random | None = None,
        swaps: int | None = None,
    ) -> None:
        check_settings(settings, run.router)
        self.current, self.log, self.settings, self.load = run, log, settings, load
        self.metrics, self.drift = ServerMetrics(), DriftMonitor(settings.drift_limit)
        self.batcher = Batcher(settings.batch, self.metrics.batch.observe)
        self.rng = rng or random.Random()
        self._reloading = asyncio.Lock()
        try:
            log.add_run(run.name, about_inputs(run.router)).result()
            last, self.reloaded = log.last_swap().result()
            self.swaps = last if swaps is None else swaps
        except LogUnavailable as error:
            raise L2DError(f"{log.name}: the log cannot be written ({error})") from error
        self.metrics.run.labels(run.name).set(1)

    async def decide_for(self, body: RouteBody) -> list[Decision]:
        """Of /v1/route. Raises L2DError, Overloaded, LogUnavailable."""
        run = self.current
        router = run.router
        if body.raw or any(given is not None for given in (body.prices, body.budget, body.confidence)):
            router = await asyncio.to_thread(run.variant, body.prices, body.budget, body.confidence, body.raw)
        found = await self.decide(run, router, queries_of(body))
        for one in found:
            self.count_spend(one.drawn.expert, price_of(router, one.drawn.expert))
        return found

    async def decide(
        self,
        run: ServedRun,
        router: Router,
        bodies: Sequence[QueryBody],
        session: str | None = None,
        reroute: bool = False,
    ) -> list[Decision]:
        """Decisions that are on disk. session: of a conversation, which stays with its expert unless reroute."""
        queries = [read_query(body, router.description) for body in bodies]
        digest = None if session is None else session_digest(session)
        held = None if digest is None or reroute else await asyncio.wrap_future(self.log.expert_of(digest))
        answered = await self.batcher.ask(router, queries)
        self.note_drift(answered)
        found, logged = [], []
        for place, (query, choice) in enumerate(zip(queries, answered.choices, strict=True)):
            drawn, propensity = self.draw(router, choice, held)
            decision = Decision(new_decision_id(), choice, drawn, run.name, propensity)
            found.append(decision)
            logged.append(
                LoggedDecision(
                    decision.id,
                    run.name,
                    drawn.expert,
                    choice.expert,
                    drawn.by,
                    propensity,
                    price_of(router, drawn.expert),
                    digest,
                    query if self.settings.keep == "text" else None,
                    logged_features(answered, place) if self.settings.keep == "features" else None,
                )
            )
        await asyncio.wrap_future(self.log.add_decisions(logged))
        for one in found:
            self.count_choice(one)
        return found

    def draw(self, router: Router, choice: Choice, held: str | None) -> tuple[DrawnExpert, float | None]:
        """Who gets the query. Only the first turn of a conversation is a decision, so later ones have no propensity."""
        if self.settings.shadow is not None:
            return DrawnExpert(self.settings.shadow, "shadow", 1.0), 1.0
        if held in router.experts:
            return DrawnExpert(str(held), "session", 1.0), None
        preferred, by = choice.expert, "router"
        if self.drift.beyond:
            preferred, by = router.experts[router.guard.best], "drift"
        drawn = draw_expert(preferred, by, router.experts, self.settings.explore, self.rng)
        return drawn, drawn.propensity

    async def log_asked(self, expert: str, session: str | None) -> Decision:
        """The client named its expert: logged, so that it can have an outcome, but no decision of ours."""
        drawn, run = DrawnExpert(expert, "client", 1.0), self.current
        decision = Decision(new_decision_id(), Choice(expert, None, None, ranking=(expert,)), drawn, run.name, None)
        digest = None if session is None else session_digest(session)
        price = price_of(run.router, expert)
        logged = LoggedDecision(decision.id, run.name, expert, None, drawn.by, None, price, digest)
        await asyncio.wrap_future(self.log.add_decisions([logged]))
        self.count_choice(decision)
        return decision

    async def record(self, outcomes: Sequence[ReportedOutcome]) -> int:
        """How many were new. Raises OutcomeRefused, LogUnavailable."""
        new = await asyncio.wrap_future(self.log.add_outcomes(outcomes))
        if new == len(outcomes):  # a repetition was counted before
            self.metrics.outcomes.inc(new)
            self.metrics.wrong.inc(sum(one.loss if one.correct is None else 1 - one.correct for one in outcomes))  # type: ignore[misc]
        return new

    async def reload(self, folder: Path, force: bool) -> str:
        """Swap to another run; other servers with this log follow. Requests that have begun end with the old one. Raises
        ReloadRefused, L2DError."""
        async with self._reloading:
            new, old = await asyncio.to_thread(self.load, folder), self.current
            self.check_run(new, force)
            if new.router.kind != old.router.kind and not force:
                seen = f"it sees {new.router.sees}; the run that serves sees {old.router.sees}"
                raise ReloadRefused(f"{folder}: {seen}; {FORCE}")
            if new.router.guard.constant is not None and not new.router.raw and not force:
                raise ReloadRefused(f"{folder}: {new.router.guard_note}; {FORCE}")
            await asyncio.wrap_future(self.log.add_run(new.name, about_inputs(new.router)))
            self.swaps = await asyncio.wrap_future(self.log.add_swap(new.name))
            self.swap_to(new)
            return new.name

    def check_run(self, new: ServedRun, force: bool) -> None:
        """Raises if this server cannot serve the run. Upstreams fit no other experts, not even by force, and the log has room for
        one kind of money."""
        ours, theirs = self.current.router.experts, new.router.experts
        if set(theirs) != set(ours) and (self.settings.upstreams or not force):
            way = "the upstreams fit no others, so force does not help" if self.settings.upstreams else FORCE
            raise ReloadRefused(f"{new.name}: its experts are {', '.join(theirs)}, not {', '.join(ours)}; {way}")
        check_settings(self.settings, new.router)
        kinds = [money_of(router) for router in (new.router, self.current.router)]
        if None not in kinds and kinds[0] != kinds[1]:
            said = "its prices are {}, and those of the run that serves are {}".format(
                *(MONEY[str(kind)] for kind in kinds)
            )
            raise ReloadRefused(f"{new.name}: {said}; start a server with another log")

    def swap_to(self, new: ServedRun) -> None:
        self.metrics.run.labels(self.current.name).set(0)
        self.metrics.run.labels(new.name).set(1)
        self.current = new
        self.drift.forget()
        print(f"l2d serves {new.name} now", file=sys.stderr, flush=True)

    async def follow(self) -> None:
        """Swap to the run that another server with this log was told to reload, if this one can serve it. Its guard was looked at
        there."""
        number, run = await asyncio.wrap_future(self.log.last_swap())
        if number <= self.swaps or run is None:
            return
        async with self._reloading:
            if number <= self.swaps:  # it was told to reload meanwhile
                return
            new = await asyncio.to_thread(self.load, Path(run))
            self.swaps = number  # a run that does not fit is refused once
            self.check_run(new, force=True)
            self.swap_to(new)

    async def try_to_follow(self) -> None:
        """Whatever goes wrong, requests go on with the run that it has."""
        try:
            await self.follow()
        except Exception as error:
            self.metrics.errors.labels("follow").inc()
            if not isinstance(error, LogUnavailable):  # of which the log tells
                logger.error("cannot follow a reload: %s", error)

    async def keep_following(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW)
            await self.try_to_follow()

    def note_drift(self, answered: AnsweredTogether) -> None:
        was = self.drift.beyond
        self.drift.add(answered.far)
        if self.drift.beyond != was:
            router = self.current.router
            who = f"{router.experts[router.guard.best]} answers" if self.drift.beyond else "the router decides again"
            print(f"drift: {self.drift.share:.0%} of the last inputs are far; {who}", file=sys.stderr, flush=True)
        if (share := self.drift.share) is not None:
            self.metrics.far.set(share)

    def count_choice(self, decision: Decision) -> None:
        self.metrics.choices.labels(decision.drawn.expert, decision.drawn.by).inc()
        if decision.choice.guard is not None:
            self.metrics.guarded.labels(decision.choice.guard.partition(":")[0]).inc()

    def count_spend(self, expert: str, price: float | None) -> None:
        if price is not None:
            self.metrics.spend.labels(expert).inc(price)


def price_of(router: Router, expert: str) -> float | None:
    """In the unit of the prices in training, before cost.scale. None if it is not known: the run may have counted errors only."""
    prices = router.description.prices
    if prices is None or not router.counts_prices:
        return None
    return prices[router.experts.index(expert)] / router.later_scale


def money_of(router: Router) -> str | None:
    """The sign of the money that prices are in, empty for units of one error; None if it counts none."""
    if not router.counts_prices:
        return None
    return "" if router.unit.error_price is None else "$"


def about_inputs(router: Router) -> str:
    """What the log says of a run, as JSON: its experts, what its inputs are made from, and what prices are multiplied by."""
    about = router.description
    known = {"experts": about.experts, "shape": about.shape, "seen": asdict(about.seen), "encoder": about.encoder}
    return json.dumps({**known, "price_scale": router.price_scale, "currency": money_of(router)})


def logged_features(answered: AnsweredTogether, place: int) -> bytes:
    found: bytes = answered.inputs[place].flatten().numpy().astype("<f4").tobytes()
    return found


def check_settings(settings: ServeSettings, router: Router) -> None:
    """Refuse what this router cannot do."""
    if settings.shadow is not None and settings.shadow not in router.experts:
        raise ParameterError("shadow", f"no such expert; there are {', '.join(router.experts)}", settings.shadow)
    if settings.shadow is not None and settings.explore:
        raise ParameterError("explore", "one expert answers everything (shadow); give one of the two", settings.explore)
    if settings.keep == "text" and router.kind != "text":
        raise ParameterError("keep", f"this router sees {router.sees}; choose features or none", "text")
    if settings.keep == "features" and is_tokens(example_input(router)):
        raise ParameterError("keep", "this router reads tokens, which are no features; choose text or none", "features")
    if settings.drift_limit is not None and router.training_inputs is None:
        problem = "the run has no summary of its training inputs; train it again, or leave this out"
        raise ParameterError("drift_limit", problem, settings.drift_limit)


def example_query(router: Router) -> Any:
    """A query of the kind that the router sees, to try it with."""
    about = router.description
    if about.kind == "text":
        return ["What is this?"]
    if about.kind == "image" or about.seen.text is None:
        return np.zeros((1, *about.shape), dtype=np.uint8 if about.kind == "image" else np.float32)
    return [{**dict.fromkeys(about.seen.features, 0.0), about.seen.text: "What is this?"}]


def example_input(router: Router) -> torch.Tensor:
    return router.inputs_of(example_query(router))


def warmed_up(router: Router) -> Router:
    """Ask it once: encoders load their weights when they are first used."""
    try:
        router.route(example_query(router))
    except ImportError as error:
        raise L2DError(f"the router's encoder cannot be loaded ({type(error).__name__})") from error
    return router
