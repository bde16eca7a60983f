"""The gateway: a chat goes to the chosen expert's server; to others if it fails before a byte, or as the plan says."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.request import getproxies

import aiohttp
from starlette.exceptions import HTTPException

from l2d.logs.decision import Decision, Refused
from l2d.logs.operations import add_answer
from l2d.server import calls
from l2d.server.calls import OK, Chat, ChatAnswer
from l2d.server.course import Course
from l2d.server.service import RouterService
from l2d.server.upstreams import RESTING, Deployment, UpstreamFailed
from l2d.utils.errors import L2DError

LEFT = 499  # as nginx calls it: the client has gone
NOTHING = 0.0  # the price of an error
KEPT_OPEN = 4.0  # seconds that an idle connection stays; many servers close theirs after five
T = TypeVar("T")


class AllFailed(Refused):
    """No expert answered. failed: why, by expert."""

    def __init__(self, failed: Mapping[str, UpstreamFailed]) -> None:
        said = "no expert answered: " + ", ".join(f"{name} ({why})" for name, why in failed.items())
        whys, waits = {*map(str, failed.values())}, [one.retry_after for one in failed.values()]
        status = 503 if RESTING in whys else 429 if whys == {"429"} else 504 if whys == {"timeout"} else 502
        known = [math.ceil(wait) for wait in waits if wait is not None]
        super().__init__(status, said, "upstreams", min(known) if known and len(known) == len(waits) else None)


class Gateway:
    client: aiohttp.ClientSession

    def __init__(self, service: RouterService) -> None:
        self.service, resting = service, service.metrics.resting
        self.servers = {
            name: [Deployment(f"{name}.{place}", one, resting.labels(name)) for place, one in enumerate(several)]
            for name, several in service.settings.upstreams.items()
        }

    def resting(self) -> dict[str, int]:
        """The number of resting servers of each expert."""
        return {name: sum(one.until is not None for one in servers) for name, servers in self.servers.items()}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        connections = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_OPEN)
        about: dict[str, Any] = {"auto_decompress": False, "cookie_jar": aiohttp.DummyCookieJar()}
        async with aiohttp.ClientSession(connector=connections, trust_env=bool(getproxies()), **about) as self.client:
            yield


class Exchange:
    """A request on its way to an answer. expert, model: who gives it. failed: why others did not. calls: how often servers of an
    expert were asked. held: the answers so far; asked: the prices of the calls, both if the router may ask several experts.
    ended: is told the usage of a stream at its end, and why it was cut."""

    def __init__(self, gateway: Gateway, decision: Decision, chat: Chat) -> None:
        self.gateway, self.service, self.decision, self.chat = gateway, gateway.service, decision, chat
        self.expert, self.model, self.began = "", "", time.perf_counter()
        self.failed, self.calls = dict[str, UpstreamFailed](), Counter[str]()
        self.held, self.asked = dict[str, ChatAnswer](), dict[str, float]()
        self.course: Course | None = decision.course
        self.ended: Callable[[Mapping[str, Any] | None, str | None], object] = lambda *_: None

    @property
    def next(self) -> str | None:
        """The expert to ask now."""
        if self.course is not None:
            return self.course.ask
        order = [self.decision.expert, *(one["expert"] for one in self.decision.ranking)]
        return next((expert for expert in order if expert not in self.failed), None)

    async def answer(self) -> ChatAnswer:
        """Ask one expert after the other. Raises AllFailed."""
        while (expert := self.next) is not None:
            if (found := await self.ask(expert)) is not None:
                return found
        if self.course is not None and self.course.accept is not None:
            return await self.give(self.course.accept, self.held[self.course.accept])
        if {*map(str, self.failed.values())} == {calls.TOO_LONG}:
            expert, failure = next(iter(self.failed.items()))
            return await self.give(expert, failure.answer)
        if self.course is None:
            self.service.note_answer(self.decision, None, NOTHING, None)
        raise AllFailed(self.failed)

    async def may_ask(self, expert: str) -> bool:
        """Count a call against the expert's limit. The decision counted one to the expert that it chose."""
        self.calls[expert] += 1
        if self.calls[expert] > 1:
            self.service.metrics.retries.labels(expert).inc()
        elif expert == self.decision.expert:
            return True
        return await self.service.may_ask(expert)

    async def ask(self, expert: str) -> ChatAnswer | None:
        """Return the answer to give, if that is decided: of a plan a stream that has begun, a call of tools, a client's error."""
        course, alone = self.course, self.decision.decided_by == "client"
        if course is not None:  # the log has the seconds of each call
            self.began = time.perf_counter()
        at_once = course is None or (self.chat.stream and course.certain)

        async def call(server: Deployment, seconds: float) -> ChatAnswer:
            found = await calls.open_answer(self.gateway.client, server, self.chat, seconds)
            return found if at_once else await calls.collected(found, self.chat.choices)

        try:
            found = await calls.ask_servers(self.gateway.servers[expert], call, partial(self.may_ask, expert))
            if self.held and found.status != OK:
                raise UpstreamFailed(str(found.status))
        except UpstreamFailed as failure:
            if alone and failure.answer is not None:
                return await self.give(expert, failure.answer)
            self.failed[expert] = failure
            self.service.metrics.fallbacks.labels(expert, str(failure)).inc()
            self.hear(expert, None, None)
            return None
        if course is None or not isinstance(found.content, bytes):
            return await self.give(expert, found)
        text, tools = calls.words_of(found.content, found.content_type.startswith("text/event-stream"))
        good = found.status == OK
        self.hear(expert, text if good else None, found.server.upstream.price_of(found.usage))
        self.held[expert] = found
        return await self.give(expert, found) if tools or not good else None

    def hear(self, expert: str, text: str | None, price: float | None) -> None:
        """Go on along the plan. text: None if the expert failed. If the user's own rule fails, it agrees with none."""
        if self.course is None:
            return
        seconds = time.perf_counter() - self.began
        try:
            course = self.course.heard(text, failed=text is None, price=price)
            call = course.last_call(seconds)
        except L2DError:
            self.service.metrics.count_error("agree")
            course = self.course.heard(None, length=len(text or ""), price=price)
            call = course.last_call(seconds)
        self.course, self.asked[expert] = course, call.price
        self.service.note_call(self.decision, call)

    async def give(self, expert: str, found: ChatAnswer) -> ChatAnswer:
        """Before the client hears of it, the log knows whose answer it is: an outcome belongs to it."""
        self.expert, self.model, course = expert, found.server.upstream.model, self.course
        try:
            if expert != self.decision.expert:
                price = None if course is not None else self.decision.prices[expert]
                await self.service.log.done(add_answer, self.decision.id, expert, price, None)
        except BaseException:
            found.close()
            raise
        if course is not None:
            self.asked.setdefault(expert, course.prices[expert])
            self.service.metrics.calls.observe(len(self.asked))
        if not isinstance(found.content, bytes):
            return replace(found, content=self.watched(found, found.content))
        if course is None:
            self.finish(found, found.usage)
        return found

    async def watched(self, found: ChatAnswer, content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The stream as it comes. If it is cut, an event says so: the client would take a short answer for a whole one."""
        read, cut = calls.EventStream(self.chat.choices), None
        try:
            async for part in calls.checked(content, read, self.began):
                yield part
            found.server.failures = 0
        except UpstreamFailed as failure:
            found.server.fail(failure)
            cut = str(failure)
            self.service.metrics.count_error("cut stream")
            yield calls.broken_event(f"{self.expert}: the answer was cut ({failure})")
        finally:
            found.close()  # also if the client has gone
            self.finish(found, read.usage)
            self.ended(read.usage, cut)

    def finish(self, found: ChatAnswer, usage: Mapping[str, Any] | None) -> None:
        """Record an answer; of a plan, the stream that was its last call."""
        price = found.server.upstream.price_of(usage) if found.status == OK else NOTHING
        seconds = time.perf_counter() - self.began
        if self.course is None:
            self.service.note_answer(self.decision, self.expert, price, seconds)
        else:
            self.service.note_call(self.decision, self.course.heard(None, price=price).last_call(seconds))


async def unless_left(receive: Callable[[], Awaitable[Mapping[str, Any]]], work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. If the client leaves meanwhile, the work is cancelled, and with it what an upstream began."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise HTTPException(LEFT, "the client left")
    finally:
        for one in (doing, leaving):
            one.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)
