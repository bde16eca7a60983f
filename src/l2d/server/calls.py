"""One call of an upstream: a chat completion that is whole, or the beginning of its stream."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from l2d.server.streams import EventStream, json_object, usage_in
from l2d.server.upstreams import Upstream

# The client is not to blame, or another server may know better: a busy server, a wrong key, no such model.
PASSED_OVER = (401, 403, 404, 408, 429)
LARGEST_ANSWER = 64_000_000  # bytes, also of a stream
LONGEST_STREAM = 1800.0  # seconds
HEADERS = ("retry-after", "x-request-id")  # of an answer, which are passed on
OK = 200


class UpstreamFailed(Exception):
    """Nothing of its answer was passed on. The message is a word or two: timeout, 429. retry_after: as the upstream says."""

    def __init__(self, why: str, retry_after: str | None = None) -> None:
        super().__init__(why)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Chat:
    """A chat completion that a client asks for. rest: the body without its model, which is passed on as it is."""

    body: Mapping[str, Any]
    rest: bytes

    def to(self, model: str) -> bytes:
        return (
            b'{"model": ' + json.dumps(model).encode() + (b", " if len(self.rest) > len(b"{}") else b"") + self.rest[1:]
        )

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def choices(self) -> int:
        wanted = self.body.get("n")
        return wanted if isinstance(wanted, int) else 1


@dataclass(frozen=True)
class ChatAnswer:
    """content: whole, or a stream whose first bytes are there."""

    status: int
    content_type: str
    content: bytes | AsyncIterator[bytes]
    headers: Mapping[str, str]
    close: Callable[[], None]
    usage: Mapping[str, Any] | None = None


async def open_answer(client: aiohttp.ClientSession, upstream: Upstream, chat: Chat, alone: bool) -> ChatAnswer:
    """Whole, or the beginning of a stream. alone: there is no other expert to ask, so its errors are passed on, except those about
    its key. Raises UpstreamFailed."""
    response: aiohttp.ClientResponse | None = None
    limit = aiohttp.ClientTimeout(sock_read=upstream.timeout)
    about: dict[str, Any] = {"headers": upstream.headers, "timeout": limit, "allow_redirects": False}
    try:
        async with asyncio.timeout(upstream.timeout):
            response = await client.post(upstream.url, data=chat.to(upstream.model), **about)
            return await first_bytes(response, chat.stream, alone)
    except BaseException as error:
        if response is not None:
            response.close()
        if isinstance(error, TimeoutError):
            raise UpstreamFailed("timeout") from error
        if isinstance(error, aiohttp.ClientError):
            raise UpstreamFailed("connection") from error
        raise


async def first_bytes(response: aiohttp.ClientResponse, stream: bool, alone: bool) -> ChatAnswer:
    status, kind = response.status, response.headers.get("content-type", "application/json")
    if status in (401, 403) or 300 <= status < 400 or (not alone and (status in PASSED_OVER or status >= 500)):
        raise UpstreamFailed(str(status), response.headers.get("retry-after") if status in (429, 503) else None)
    passed_on = {name: response.headers.get(name, "") for name in HEADERS}
    about = ({name: value for name, value in passed_on.items() if value and value.isascii()}, response.close)
    if stream and status == OK:
        if not kind.startswith("text/event-stream"):
            raise UpstreamFailed("no event stream")
        first = await response.content.readany()
        if not first:
            raise UpstreamFailed("empty")
        return ChatAnswer(status, kind, chained(first, response.content.iter_any()), *about)
    found = bytearray()
    async for part in response.content.iter_any():
        found += part
        if len(found) > LARGEST_ANSWER:
            raise UpstreamFailed("too long")
    whole = json_object(bytes(found)) if status == OK else None
    if status == OK and whole is None:
        raise UpstreamFailed("not JSON")
    kind = kind if "json" in kind else "text/plain; charset=utf-8"  # no markup from elsewhere
    return ChatAnswer(status, kind, bytes(found), *about, usage_in(whole or {}))


async def chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


async def checked(content: AsyncIterator[bytes], read: EventStream, began: float) -> AsyncIterator[bytes]:
    """The parts of a stream. Raises UpstreamFailed if it is cut, or longer than the limits."""
    try:
        async for part in content:
            read.add(part)
            if read.size > LARGEST_ANSWER or time.perf_counter() - began > LONGEST_STREAM:
                raise UpstreamFailed("too long")
            yield part
    except TimeoutError as error:
        raise UpstreamFailed("timeout") from error
    except aiohttp.ClientError as error:
        raise UpstreamFailed("connection") from error
    if not read.is_whole():
        raise UpstreamFailed("cut")


async def collected(found: ChatAnswer, choices: int) -> ChatAnswer:
    """A stream to its end, as bytes. Raises UpstreamFailed."""
    if isinstance(found.content, bytes):
        return found
    read = EventStream(choices)
    try:
        parts = [part async for part in checked(found.content, read, time.perf_counter())]
    finally:
        found.close()
    return replace(found, content=b"".join(parts), usage=read.usage)
