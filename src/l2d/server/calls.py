"""Calls of upstreams: an answer that is whole, or the beginning of its stream, which is read as it passes."""

import asyncio
import json
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from l2d.server.upstreams import RESTING, Deployment, UpstreamFailed

CHAT, RESPONSES, EMBEDDINGS = PATHS = "chat/completions", "responses", "embeddings"  # after /v1/
# The client is not to blame, or another server may know better: a busy server, no such model. 401, 403: a wrong key.
PASSED_OVER = (404, 408, 429)
TOO_LONG = "context_length_exceeded"
# As OpenAI, vLLM and llama.cpp say it.
SAYS_TOO_LONG = re.compile(b"context_length_exceeded|maximum context length|exceed_context_size")
FIRST_WAIT = 0.1  # seconds at most before a server is asked again; then twice as long each time
LARGEST_ANSWER = 64_000_000  # bytes, also of a stream
LONGEST_STREAM = 1800.0  # seconds
HEADERS = ("retry-after", "x-request-id")  # of an answer, which are passed on
OK = 200
LONGEST_LINE = 1_000_000  # bytes, to look for the usage and the end
DONE, LINE_END = b"[DONE]", re.compile(rb"[\r\n]+")
LAST = ("response.completed", "response.incomplete", "response.failed", "error")  # events of /v1/responses


class EventStream:
    """The state of a stream that comes in pieces, each of which is looked at once. choices: how many answers were asked for.
    Of a line that is too long only the end is looked at."""

    def __init__(self, choices: int = 1) -> None:
        self.choices, self.size = choices, 0
        self.usage: Mapping[str, Any] | None = None
        self._ended, self._line, self._length = set[Any](), list[bytes](), 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        for place, part in enumerate(LINE_END.split(piece)):
            if place:
                self._end_line()
            if self._length + len(part) > LONGEST_LINE:
                self._line, self._length = [], 0
            self._line.append(part)
            self._length += len(part)

    def _end_line(self) -> None:
        usage, ended = read_line(b"".join(self._line))
        self.usage, self._ended = usage or self.usage, self._ended | ended
        self._line, self._length = [], 0

    def is_whole(self) -> bool:
        """True if all choices have ended, if nothing else comes."""
        self._end_line()
        return DONE in self._ended or len(self._ended) >= self.choices


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
    if line.startswith(b"event:"):  # the last event of a response may be too long to be kept
        return None, {DONE} if line[6:].strip().decode("latin-1") in LAST else set()
    if not line.startswith(b"data:"):
        return None, set()
    if content == DONE:
        return None, {DONE}
    event = json_object(content) or {}
    if event.get("type") in LAST:
        response = event.get("response")
        return usage_in(response if isinstance(response, dict) else {}), {DONE}
    try:
        ended = {choice.get("index", 0) for choice in event["choices"] if choice.get("finish_reason")}
    except (AttributeError, KeyError, TypeError):
        ended = set()
    return usage_in(event), ended


def words_of(content: bytes, stream: bool) -> tuple[str, bool]:
    """The text of a completion or of a stream's chunks, and whether it calls tools."""
    lines = [line.removeprefix(b"data:") for line in LINE_END.split(content)] if stream else [content]
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


def broken_event(problem: str) -> bytes:
    """An event that OpenAI clients raise as an error."""
    error = {"message": problem, "type": "upstream_error", "param": None, "code": None}
    return b"\n\ndata: " + json.dumps({"error": error}).encode() + b"\n\n"


@dataclass(frozen=True)
class Chat:
    """A request of a client. rest: the body without its model, which is passed on as it is."""

    body: Mapping[str, Any]
    rest: bytes
    path: str = CHAT

    def to(self, model: str) -> bytes:
        more = b", " if self.rest != b"{}" else b""
        return b'{"model": ' + json.dumps(model).encode() + more + self.rest[1:]

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

    server: Deployment
    status: int
    content_type: str
    content: bytes | AsyncIterator[bytes]
    headers: Mapping[str, str]
    close: Callable[[], None]
    usage: Mapping[str, Any] | None = None


async def ask_servers(
    servers: Sequence[Deployment],
    ask: Callable[[Deployment, float], Awaitable[ChatAnswer]],
    may_ask: Callable[[], Awaitable[bool]],
) -> ChatAnswer:
    """The answer of an expert. Its servers are asked in a random order, then again, later and later, each within its time.
    ask: with the seconds that are left. Raises UpstreamFailed; retry_after: until one may be asked, if all rest."""
    left, tries, ends = random.sample(servers, len(servers)), Counter[Deployment](), dict[Deployment, float]()
    failure = UpstreamFailed(RESTING, blamed=False)
    while free := [one for one in left if not one.wait]:
        server = min(free, key=tries.__getitem__)
        pause = random.uniform(0.5, 1) * FIRST_WAIT * 2 ** (tries[server] - 1) if tries[server] else 0.0
        seconds = ends.setdefault(server, time.monotonic() + server.upstream.timeout) - time.monotonic() - pause
        if seconds < pause:  # too late
            left.remove(server)
            continue
        if pause:
            await asyncio.sleep(pause)
            if server.wait:  # another request has put it to rest
                continue
        if not await may_ask():
            failure = failure if tries else UpstreamFailed("capacity", blamed=False)
            break
        tries[server] += 1
        try:
            with server.asked():
                found = await ask(server, seconds)
                failures = server.failures
            if not isinstance(found.content, bytes):
                server.failures = failures  # only a whole stream ends a row of failures
            return found
        except UpstreamFailed as error:
            failure = error
            if not error.blamed or tries[server] > server.upstream.retries:
                left.remove(server)
    failure.retry_after = min(one.wait for one in servers) or None
    raise failure


async def open_answer(client: aiohttp.ClientSession, server: Deployment, chat: Chat, seconds: float) -> ChatAnswer:
    """Whole, or the beginning of a stream, within so many seconds. Raises UpstreamFailed."""
    upstream, limit = server.upstream, aiohttp.ClientTimeout(sock_read=server.upstream.timeout)
    url = f"{upstream.base_url.rstrip('/')}/{chat.path}"
    about: dict[str, Any] = {"headers": upstream.headers, "timeout": limit, "allow_redirects": False}
    with broken_connections():
        async with asyncio.timeout(seconds):
            response = await client.post(url, data=chat.to(upstream.model), **about)
            try:
                return await first_bytes(server, response, chat.stream)
            except BaseException:
                response.close()
                raise


@contextmanager
def broken_connections() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise UpstreamFailed("timeout") from error
    except aiohttp.ClientError as error:
        raise UpstreamFailed("connection") from error


async def first_bytes(server: Deployment, response: aiohttp.ClientResponse, stream: bool) -> ChatAnswer:
    status, kind = response.status, response.headers.get("content-type", "application/json")
    if status in (401, 403) or 300 <= status < 400:  # its answer may hold a part of the key
        raise UpstreamFailed(str(status))
    passed_on = {name: response.headers.get(name, "") for name in HEADERS}
    about = ({name: value for name, value in passed_on.items() if value and value.isascii()}, response.close)
    if stream and status == OK:
        if not kind.startswith("text/event-stream"):
            raise UpstreamFailed("no event stream")
        first = await response.content.readany()
        if not first:
            raise UpstreamFailed("empty")
        return ChatAnswer(server, status, kind, chained(first, response.content.iter_any()), *about)
    found = bytearray()
    async for part in response.content.iter_any():
        found += part
        if len(found) > LARGEST_ANSWER:
            raise UpstreamFailed("too long")
    whole = json_object(bytes(found)) if status == OK else None
    if status == OK and whole is None:
        raise UpstreamFailed("not JSON")
    kind = kind if "json" in kind else "text/plain; charset=utf-8"  # no markup from elsewhere
    answer = ChatAnswer(server, status, kind, bytes(found), *about, usage_in(whole or {}))
    if status in PASSED_OVER or status >= 500:
        said = passed_on["retry-after"]
        wait = float(said) if status in (429, 503) and re.fullmatch("[0-9]{1,6}", said) else None
        raise UpstreamFailed(str(status), wait, status != 404, answer)
    if status == 400 and SAYS_TOO_LONG.search(found):
        raise UpstreamFailed(TOO_LONG, blamed=False, answer=answer)
    return answer


async def chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in rest:
        yield part


async def checked(content: AsyncIterator[bytes], read: EventStream, began: float) -> AsyncIterator[bytes]:
    """The parts of a stream. Raises UpstreamFailed if it is cut, or longer than the limits."""
    with broken_connections():
        async for part in content:
            read.add(part)
            if read.size > LARGEST_ANSWER or time.perf_counter() - began > LONGEST_STREAM:
                raise UpstreamFailed("too long")
            yield part
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
