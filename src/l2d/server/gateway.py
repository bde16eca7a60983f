"""The gateway: chat completions go to the chosen expert's server and, if that fails before its first byte, to the next."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio
import httpx
from starlette.exceptions import HTTPException

from l2d.logs.decision import Decision
from l2d.server.service import RouterService
from l2d.server.upstreams import Upstream

# The client is not to blame, or another server may know better: a busy server, a wrong key, no such model.
PASSED_OVER = (401, 403, 404, 408, 429)
LARGEST_ANSWER = 64_000_000  # bytes, also of a stream
LONGEST_STREAM = 1800.0  # seconds
LEFT = 499  # as nginx calls it: the client has gone
LONGEST_LINE = 1_000_000  # of an event stream, to look for its usage and its end
HEADERS = ("retry-after", "x-request-id")  # of an answer, which are passed on
NOTHING = 0.0  # the price of an error
DONE, LINE_END = b"[DONE]", re.compile(rb"[\r\n]+")
CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=100)
T = TypeVar("T")


class UpstreamFailed(Exception):
    """Nothing of its answer was passed on. The message is a word or two: timeout, 429. retry_after: as the upstream says."""

    def __init__(self, why: str, retry_after: str | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


@dataclass(frozen=True)
class ChatAnswer:
    """content: whole, or a stream whose first bytes are there. expert: who answered. failed: why those before it did not. seconds:
    until the answer or, of a stream, its first bytes. asked: the prices of the calls, if the router may ask several experts."""

    status: int
    content_type: str
    content: bytes | AsyncIterator[bytes]
    response: httpx.Response
    usage: Mapping[str, Any] | None = None
    expert: str = ""
    failed: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    asked: Mapping[str, float] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        found = {name: self.response.headers.get(name, "") for name in HEADERS}
        return {name: value for name, value in found.items() if value and value.isascii()}


class Gateway:
    """Asks the upstreams, one after the other."""

    def __init__(self, service: RouterService) -> None:
        self.service, self.upstreams = service, service.settings.upstreams
        self.client = httpx.AsyncClient(limits=CONNECTIONS, timeout=None)

    async def answer(self, decision: Decision, body: Mapping[str, Any]) -> ChatAnswer:
        """Ask the chosen expert, then the next in the ranking. Raises AllFailed."""
        failed, waits, alone = dict[str, str](), list[str | None](), decision.decided_by == "client"
        order = dict.fromkeys([decision.expert, *(one["expert"] for one in decision.ranking)])
        began = time.perf_counter()
        for expert in order:
            try:
                found = await open_answer(self.client, self.upstreams[expert], body, alone)
            except UpstreamFailed as failure:
                failed[expert] = str(failure)
                waits.append(failure.retry_after)
                self.service.metrics.fallbacks.labels(expert, str(failure)).inc()
                continue
            if failed:  # before the client hears of it: an outcome belongs to who answered
                try:
                    await self.service.note_substitute(decision, expert)
                except BaseException:
                    await closed(found.response)
                    raise
            content = found.content
            if not isinstance(content, bytes):
                content = self.watched(content, found.response, decision, expert, began, choices_of(body))
            seconds = time.perf_counter() - began
            return replace(found, content=content, expert=expert, failed=failed, seconds=seconds)
        self.service.note_answer(decision, None, NOTHING, None)
        raise AllFailed(failed, soonest(waits))

    async def watched(
        self,
        parts: AsyncIterator[bytes],
        response: httpx.Response,
        decision: Decision,
        expert: str,
        began: float,
        choices: int,
    ) -> AsyncIterator[bytes]:
        """The stream as it comes. If it is cut, an event says so: the client would take a short answer for a whole one.
        choices: how many answers were asked for."""
        usage, lines, size = None, Lines(), 0
        ended: set[Any] = set()
        try:
            async for part in parts:
                for one in lines.added(part):
                    found, ends = read_line(one)
                    usage, ended = found or usage, ended | ends
                size += len(part)
                if size > LARGEST_ANSWER or time.perf_counter() - began > LONGEST_STREAM:
                    raise httpx.DecodingError("too long")
                yield part
            ended |= read_line(lines.rest)[1]
            if DONE not in ended and len(ended) < choices:
                raise httpx.RemoteProtocolError("no end")
        except httpx.HTTPError as error:
            self.service.count_error("cut stream")
            yield broken_event(f"{expert}: the answer was cut ({type(error).__name__})")
        finally:
            await closed(response)  # also if the client has gone
            await self.finish(decision, expert, usage, time.perf_counter() - began)

    async def finish(
        self, decision: Decision, expert: str, usage: Mapping[str, Any] | None, seconds: float, status: int = 200
    ) -> None:
        """Record an answer after it was sent."""
        price = self.upstreams[expert].price_of(usage) if status == 200 else NOTHING
        if decision.course is None:
            self.service.note_answer(decision, expert, price, seconds)
        else:  # the last stream of a plan
            self.service.note_call(decision, decision.course.heard(None, price=price).last_call(seconds))


class Lines:
    """The lines of a stream that comes in pieces, each of which is looked at once. Of a line that is too long only the end is
    left."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def rest(self) -> bytes:
        return b"".join(self._pieces)

    def added(self, piece: bytes) -> list[bytes]:
        """The lines that this piece ends."""
        first, *others = LINE_END.split(piece)
        self._size += len(first)
        if self._size > LONGEST_LINE:
            self._pieces, self._size = [], 0
        self._pieces.append(first)
        if not others:
            return []
        found = [self.rest, *others[:-1]]
        self._pieces, self._size = [others[-1]], len(others[-1])
        return found


async def unless_left(receive: Callable[[], Awaitable[Mapping[str, Any]]], work: Coroutine[Any, Any, T]) -> T:
    """What the work returns. If the client leaves meanwhile, the work is cancelled, and with it what an upstream began."""
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


async def closed(response: httpx.Response) -> None:
    with anyio.CancelScope(shield=True):
        await response.aclose()


def soonest(waits: list[str | None]) -> str | None:
    """The least retry-after, in seconds."""
    return min((one for one in waits if one is not None and re.fullmatch("[0-9]{1,6}", one)), key=int, default=None)


def choices_of(body: Mapping[str, Any]) -> int:
    wanted = body.get("n")
    return wanted if isinstance(wanted, int) else 1


async def open_answer(
    client: httpx.AsyncClient, upstream: Upstream, body: Mapping[str, Any], alone: bool
) -> ChatAnswer:
    """Whole, or the beginning of a stream. alone: there is no other expert to ask, so its errors are passed on, except those about
    its key. Raises UpstreamFailed."""
    content = json.dumps({**body, "model": upstream.model}, allow_nan=False).encode()
    response: httpx.Response | None = None
    try:
        async with asyncio.timeout(upstream.timeout):
            url, limits = f"{upstream.base_url.rstrip('/')}/chat/completions", httpx.Timeout(upstream.timeout).as_dict()
            about: dict[str, Any] = {"headers": upstream.headers, "extensions": {"timeout": limits}}
            request = httpx.Request("POST", url, content=content, **about)
            response = await client.send(request, stream=True)
            return await first_bytes(response, bool(body.get("stream")), alone)
    except BaseException as error:
        if response is not None:
            await closed(response)
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            raise UpstreamFailed("timeout") from error
        if isinstance(error, httpx.HTTPError | httpx.InvalidURL | httpx.StreamError):
            raise UpstreamFailed("connection") from error
        raise


async def first_bytes(response: httpx.Response, stream: bool, alone: bool) -> ChatAnswer:
    status, kind = response.status_code, response.headers.get("content-type", "application/json")
    if status in (401, 403) or 300 <= status < 400 or (not alone and (status in PASSED_OVER or status >= 500)):
        raise UpstreamFailed(str(status), response.headers.get("retry-after") if status in (429, 503) else None)
    parts = response.aiter_raw()
    if stream and status == 200:
        if not kind.startswith("text/event-stream"):
            raise UpstreamFailed("no event stream")
        first = await anext(parts, b"")
        if not first:
            raise UpstreamFailed("empty")
        return ChatAnswer(status, kind, chained(first, parts), response)
    found = bytearray()
    async for part in parts:
        found += part
        if len(found) > LARGEST_ANSWER:
            raise UpstreamFailed("too long")
    await response.aclose()
    whole = json_object(bytes(found))
    if status == 200 and whole is None:
        raise UpstreamFailed("not JSON")
    kind = kind if "json" in kind else "text/plain; charset=utf-8"  # no markup from elsewhere
    return ChatAnswer(status, kind, bytes(found), response, usage_in(whole) if status == 200 and whole else None)


async def chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


def json_object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def usage_in(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) else None


def read_line(line: bytes) -> tuple[Mapping[str, Any] | None, set[Any]]:
    """Return the usage in one line of an event stream, if it has one, and the choices that end in it, with DONE if it is the last
    one: some servers leave that out."""
    content = line.removeprefix(b"data:").strip()
    if not line.startswith(b"data:"):
        return None, set()
    if content == DONE:
        return None, {DONE}
    event = json_object(content) or {}
    try:
        ended = {choice.get("index", 0) for choice in event["choices"] if choice.get("finish_reason")}
    except (AttributeError, KeyError, TypeError):
        ended = set()
    return usage_in(event), ended


def broken_event(problem: str) -> bytes:
    """An event that OpenAI clients raise as an error."""
    error = {"message": problem, "type": "upstream_error", "param": None, "code": None}
    return b"\n\ndata: " + json.dumps({"error": error}).encode() + b"\n\n"


class AllFailed(Exception):
    """No expert answered. failed: why, by expert. retry_after: seconds, if an upstream says so."""

    def __init__(self, failed: Mapping[str, str], retry_after: str | None = None) -> None:
        super().__init__("no expert answered: " + ", ".join(f"{name} ({why})" for name, why in failed.items()))
        self.failed, self.retry_after = failed, retry_after
