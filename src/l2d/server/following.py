"""The gateway along a plan: it asks one expert after the other, and answers as soon as it is decided whose answer to give."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from l2d.logs.decision import Decision
from l2d.server.course import Course
from l2d.server.gateway import (
    LARGEST_ANSWER,
    LINE_END,
    LONGEST_STREAM,
    AllFailed,
    ChatAnswer,
    Gateway,
    UpstreamFailed,
    choices_of,
    closed,
    json_object,
    open_answer,
    read_line,
    soonest,
)
from l2d.server.service import written
from l2d.utils.errors import L2DError


@dataclass
class Following:
    """One request on its way. held: the answers so far. asked: the prices of the calls."""

    gateway: Gateway
    decision: Decision
    body: Mapping[str, Any]
    course: Course
    held: dict[str, ChatAnswer] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    waits: list[str | None] = field(default_factory=list)

    async def ask(self, expert: str) -> ChatAnswer | None:
        """Return the answer to give, if that is decided: a stream that has begun, a call of tools, the client's own error."""
        course, began, upstream = self.course, time.perf_counter(), self.gateway.upstreams[expert]
        direct = bool(self.body.get("stream")) and course.certain
        try:
            found = await open_answer(self.gateway.client, upstream, self.body, alone=False)
            if direct and not isinstance(found.content, bytes):
                about = (replace(self.decision, course=course), expert, began, choices_of(self.body))
                content = self.gateway.watched(found.content, found.response, *about)
                self.asked[expert], self.held[expert] = course.prices[expert], replace(found, content=content)
                return await self.given(expert)
            found = await collected(found)
            good = found.status == httpx.codes.OK
            if self.held and not good:
                raise UpstreamFailed(str(found.status))
        except UpstreamFailed as failure:
            self.failed[expert] = str(failure)
            self.waits.append(failure.retry_after)
            self.gateway.service.metrics.fallbacks.labels(expert, str(failure)).inc()
            self.hear(expert, None, None, began)
            return None
        text, tools = words_of(found)
        self.hear(expert, text if good else None, upstream.price_of(found.usage), began)
        self.held[expert] = found
        return await self.given(expert) if tools or not good else None

    def hear(self, expert: str, text: str | None, price: float | None, began: float) -> None:
        """text: None if the expert failed. If the user's own rule fails on an answer, it agrees with no other."""
        seconds = time.perf_counter() - began
        try:
            course = self.course.heard(text, failed=text is None, price=price)
            call = course.last_call(seconds)
        except L2DError:
            self.gateway.service.count_error("agree")
            course = self.course.heard(None, length=len(text or ""), price=price)
            call = course.last_call(seconds)
        self.course, self.asked[expert] = course, call.price
        self.gateway.service.note_call(self.decision, call)

    async def given(self, expert: str) -> ChatAnswer:
        """Before the client hears of it, the log knows whose answer it is: an outcome belongs to it."""
        if expert != self.decision.expert:
            await written(self.gateway.service.log.add_answer(self.decision.id, expert, None, None))
        self.gateway.service.metrics.calls.observe(len(self.asked))
        return replace(self.held[expert], expert=expert, failed=self.failed, asked=self.asked)


async def follow_plan(gateway: Gateway, decision: Decision, body: Mapping[str, Any]) -> ChatAnswer:
    """Raises AllFailed."""
    way = Following(gateway, decision, body, decision.course)
    while (expert := way.course.ask) is not None:
        if (found := await way.ask(expert)) is not None:
            return found
    if way.course.accept is None:
        raise AllFailed(way.failed, soonest(way.waits))
    return await way.given(way.course.accept)


async def collected(found: ChatAnswer) -> ChatAnswer:
    """A stream to its end, as bytes. Raises UpstreamFailed."""
    if isinstance(found.content, bytes):
        return found
    whole, end = bytearray(), time.perf_counter() + LONGEST_STREAM
    try:
        async for part in found.content:
            whole += part
            if len(whole) > LARGEST_ANSWER or time.perf_counter() > end:
                raise UpstreamFailed("too long")
    except httpx.TimeoutException as error:
        raise UpstreamFailed("timeout") from error
    except httpx.HTTPError as error:
        raise UpstreamFailed("connection") from error
    finally:
        await closed(found.response)
    read = [read_line(line) for line in LINE_END.split(bytes(whole))]
    if not any(ended for _, ended in read):
        raise UpstreamFailed("cut")
    usage = next((usage for usage, _ in reversed(read) if usage), None)
    return replace(found, content=bytes(whole), usage=usage)


def words_of(answer: ChatAnswer) -> tuple[str, bool]:
    """The text of a completion or of a stream's chunks, and whether it calls tools."""
    assert isinstance(answer.content, bytes)
    lines = [answer.content]
    if answer.content_type.startswith("text/event-stream"):
        lines = [line.removeprefix(b"data:") for line in LINE_END.split(answer.content)]
    said, tools = "", False
    for event in map(json_object, lines):
        try:
            choice = (event or {})["choices"][0]
            message = choice.get("message") or choice["delta"]
            said += message.get("content") or ""
            tools = tools or bool(message.get("tool_calls") or message.get("function_call"))
        except (AttributeError, LookupError, TypeError):
            continue
    return said, tools
