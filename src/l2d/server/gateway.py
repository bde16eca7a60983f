"""The gateway: chat completions go to the chosen expert's server and, if that fails before its first byte, to the next."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import httpx

from l2d.logs.decision import Decision
from l2d.server.service import RouterService
from l2d.server.upstreams import Upstream

# The client is not to blame, or another server may know better: a busy server, a wrong key, no such model.
PASSED_OVER = (401, 403, 404, 408, 429)
LARGEST_ANSWER = 64_000_000
LONGEST_LINE = 1_000_000  # of an event stream, to look for its usage and its end
HEADERS = ("retry-after", "x-request-id")  # of an answer, which are passed on
NOTHING = 0.0  # the price of an error
DONE, LINE_END = b"[DONE]", re.compile(rb"[\r\n]+")
CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=100)


class UpstreamFailed(Exception):
    """Nothing of its answer was passed on. The message is a word or two: timeout, 429."""


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
        failed, alone = dict[str, str](), decision.decided_by == "client"
        order = dict.fromkeys([decision.expert, *(one["expert"] for one in decision.ranking)])
        began = time.perf_counter()
        for expert in order:
            try:
                found = await open_answer(self.client, self.upstreams[expert], body, alone)
            except UpstreamFailed as failure:
                failed[expert] = str(failure)
                self.service.metrics.fallbacks.labels(expert, str(failure)).inc()
                continue
            if failed:  # before the client hears of it: an outcome belongs to who answered
                await self.service.note_substitute(decision, expert)
            content = found.content
            if not isinstance(content, bytes):
                content = self.watched(content, found.response, decision, expert, began, choices_of(body))
            seconds = time.perf_counter() - began
            return replace(found, content=content, expert=expert, failed=failed, seconds=seconds)
        self.service.note_answer(decision, None, NOTHING, None)
        raise AllFailed(failed)

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
        usage, line = None, b""
        ended: set[Any] = set()
        try:
            async for part in parts:
                *lines, line = LINE_END.split(line + part)
                for one in lines:
                    found, ends = read_line(one)
                    usage, ended = found or usage, ended | ends
                line = line if len(line) < LONGEST_LINE else b""
                yield part
            ended |= read_line(line)[1]
            if DONE not in ended and len(ended) < choices:
                raise httpx.RemoteProtocolError("no end")
        except httpx.HTTPError as error:
            self.service.count_error("cut stream")
            yield broken_event(f"{expert}: the answer was cut ({type(error).__name__})")
        finally:
            with anyio.CancelScope(shield=True):  # also if the client has gone
                await response.aclose()
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


def choices_of(body: Mapping[str, Any]) -> int:
    wanted = body.get("n")
    return wanted if isinstance(wanted, int) else 1


async def open_answer(
    client: httpx.AsyncClient, upstream: Upstream, body: Mapping[str, Any], alone: bool
) -> ChatAnswer:
    """Whole, or the beginning of a stream. alone: there is no other expert to ask, so its errors are passed on, except those about
    its key. Raises UpstreamFailed."""
    content = json.dumps({**body, "model": upstream.model}).encode()
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
            with anyio.CancelScope(shield=True):
                await response.aclose()
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            raise UpstreamFailed("timeout") from error
        if isinstance(error, httpx.HTTPError | httpx.InvalidURL | httpx.StreamError):
            raise UpstreamFailed("connection") from error
        raise


async def first_bytes(response: httpx.Response, stream: bool, alone: bool) -> ChatAnswer:
    status, kind = response.status_code, response.headers.get("content-type", "application/json")
    if status in (401, 403) or (not alone and (status in PASSED_OVER or status >= 500)):
        raise UpstreamFailed(str(status))
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
    """No expert answered. failed: why, by expert."""

    def __init__(self, failed: Mapping[str, str]) -> None:
        super().__init__("no expert answered: " + ", ".join(f"{name} ({why})" for name, why in failed.items()))
        self.failed = failed
