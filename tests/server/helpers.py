"""A small service within the test, and upstream servers that behave as badly as they are told."""

import asyncio
import contextlib
import json
import os
import random
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

pytest.importorskip("uvicorn")

import uvicorn
from starlette.testclient import TestClient
from tests.router.finished import PRICED, Untrained, query_rows, untrained

from l2d.core.guard import Guard
from l2d.logs.decision import Decision
from l2d.logs.outcome_log import OutcomeLog
from l2d.router.router import Router
from l2d.runs.artifact.exported import HELD_OUT
from l2d.server.app import make_app
from l2d.server.calls import Chat, ChatAnswer
from l2d.server.gateway import Exchange, Gateway
from l2d.server.policy import Policy
from l2d.server.protocol import LimitedProtocol
from l2d.server.served import ServedRun, ServeSettings
from l2d.server.service import RouterService
from l2d.server.succession import Succession, Trial
from l2d.server.upstreams import Deployment, Upstream

PROMPTS = [row["prompt"] for row in query_rows("prompt")]
EXPERTS = ("a", "b", "c")
JSON = {"content-type": "application/json"}
CHAT = {"model": "l2d", "messages": [{"role": "user", "content": PROMPTS[0]}]}


def text_run(folder: Path, *overrides: str) -> Untrained:
    """A run of a method that takes other prices, with validation rows on which it knows the errors."""
    errors = torch.eye(3, dtype=torch.float64).repeat(30, 1) * 99
    held_out = {"errors": errors, "expected": errors, "mean_errors": errors.mean(dim=0)}
    kept = {f"{HELD_OUT}.{name}": value for name, value in held_out.items()}
    given = (
        "dataset.text=prompt",
        "dataset.features=[]",
        *PRICED,
        "method=cost_regression",
        "router=hashed",
        *overrides,
    )
    return untrained(folder, *given, kept=kept)


def lively_router(run: Path) -> Router:
    """One that sends the prompts to more than one expert."""
    router = Router.load(run)
    head: Any = router.network.head
    with torch.no_grad():
        head.weight.mul_(200)
    return router


def guarded(router: Router, guard: Guard) -> Router:
    return replace(router, description=replace(router.description, guard=guard))


def make_service(
    run: Path | Router,
    log: Path | str,
    seed: int = 0,
    swaps: int | None = None,
    trial: Callable[[ServeSettings, ServedRun], Trial] | None = None,
    **settings: Any,
) -> RouterService:
    router = Router.load(run) if isinstance(run, Path) else run
    name = str(run) if isinstance(run, Path) else "run"
    upstreams = {name: upstreams_of(one) for name, one in settings.pop("upstreams", {}).items()}
    load = lambda folder: ServedRun(Router.load(folder), str(folder))  # noqa: E731
    known = ServeSettings(upstreams=upstreams, **settings)
    served = ServedRun(router, name)
    beside = None if trial is None else trial(known, served)
    policy = Policy(known, random.Random(seed))
    return RouterService(Succession(served, OutcomeLog(log), policy, load, swaps, beside))


@contextlib.contextmanager
def asking(service: RouterService) -> Iterator[TestClient]:
    """A client of the service, in this process."""
    try:
        with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
            yield client
    finally:
        service.log.close()


@contextlib.contextmanager
def listening(service: RouterService) -> Iterator[str]:
    """The service on a port of its own, for clients that need one."""
    server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="error", lifespan="on", http=LimitedProtocol))
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=server.run, args=([door],))
        thread.start()
        try:
            while not server.started:
                pass
            yield f"http://127.0.0.1:{door.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
            service.log.close()


async def leave(url: str, body: Any, server: "FakeUpstream") -> None:
    """A client of a chat that goes as soon as the server is asked, and long enough for the server's time to end."""
    async with httpx.AsyncClient() as client:
        task = asyncio.create_task(client.post(f"{url}/v1/chat/completions", json=body, timeout=60))
        while not server.seen and not task.done():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(1.5)


def rows(log: Path | str, table: str = "decisions") -> list[dict[str, Any]]:
    """Of the log."""
    with contextlib.closing(sqlite3.connect(log)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f"SELECT * FROM {table}")]


def passed_on(service: RouterService, parts: Sequence[bytes], choices: int = 1, began: float = 0.0) -> list[bytes]:
    """The parts of a stream of expert a, as the gateway passes them on. began: seconds ago."""
    server = Deployment("a.0", Upstream("http://127.0.0.1:1", "m"), service.metrics.resting.labels("a"))
    answer = ChatAnswer(server, 200, "", b"", {}, lambda: None)
    decision = Decision("x", "run", "a", "a", "router", 1.0, prices={"a": None})
    way = Exchange(Gateway(service), decision, Chat({"n": choices}, b"{}"))
    way.expert = "a"
    way.began -= began

    async def stream() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    async def read() -> list[bytes]:
        return [part async for part in way.watched(answer, stream())]

    try:
        return asyncio.run(read())
    finally:
        service.log.close()


def message_of(answer: Any) -> str:
    """The message of an error: one line."""
    said = str(answer.json()["error"]["message"])
    assert "\n" not in said
    assert "Traceback" not in answer.text
    return said


USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
READ = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
EMBEDDED = {"prompt_tokens": 100, "total_tokens": 100}


class FakeUpstream:
    """An OpenAI server of raw bytes. behaviour: answer, slow, hang, stall (in the middle of a stream), garbage, cut (in the middle
    of its answer), short (a stream that ends too soon, but properly), closed (before it), empty, context (too long), or a status;
    several, with commas: one after the other; one that hangs must be said before its upstream is made. seen: the bodies and the
    headers of requests."""

    def __init__(self, name: str) -> None:
        self.name, self.behaviour = name, "answer"
        self.seen: list[tuple[dict[str, Any], str]] = []
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.wait()

    def upstream(self, **other: Any) -> Upstream:
        variable = f"KEY_OF_{self.name.upper()}"
        os.environ[variable] = f"key-of-{self.name}"
        waits = {"hang", "stall"} & set(self.behaviour.split(","))  # a busy machine may take long for the others
        seconds = 1.0 if waits else 60.0
        known = {"key_variable": variable, "timeout": seconds, "input_price": 0.001, "output_price": 0.01}
        return Upstream(f"http://127.0.0.1:{self.port}/v1", f"model-{self.name}", **{**known, **other})

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()

    def _run(self, ready: threading.Event) -> None:
        async def serve() -> None:
            self._done = asyncio.Event()
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await self._done.wait()
            server.close()
            answering = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in answering:
                task.cancel()
            await asyncio.gather(*answering, return_exceptions=True)
            await asyncio.sleep(0.01)  # transports close a moment later

        self._loop.run_until_complete(serve())
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                [length] = [int(line.split(":")[1]) for line in head.lower().splitlines() if "content-length" in line]
                body = json.loads(await reader.readexactly(length))
                self.seen.append((body, head))
                if not await self._behave(writer, body, head.split(" ", 2)[1]):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _behave(self, writer: asyncio.StreamWriter, body: dict[str, Any], path: str) -> bool:
        """Return True to keep the connection."""
        kind, _, later = self.behaviour.partition(",")
        self.behaviour = later or kind
        if kind == "hang":
            await asyncio.sleep(60)
        if kind == "slow":
            await asyncio.sleep(0.6)
        if kind == "closed":
            return False
        if kind.isdigit():
            content = json.dumps({"error": {"message": f"no, key-of-{self.name}"}}).encode()
            busy = b"retry-after: 7\r\nx-request-id: r1\r\n"
            head = response_head(f"{kind} No", "application/json", len(content))
            writer.write(head.removesuffix(b"\r\n") + busy + b"\r\n" + content)
        elif kind == "context":
            content = json.dumps({"error": {"message": "too many tokens", "code": "context_length_exceeded"}}).encode()
            writer.write(response_head("400 Bad Request", "application/json", len(content)) + content)
        elif body.get("stream"):
            await self._stream(writer, kind, self.events(body) if path.endswith("responses") else self.chunks(body))
            return False
        else:
            content = b"<html>\x00\xff" if kind == "garbage" else json.dumps(self.whole(body, path)).encode()
            content = b"" if kind == "empty" else content
            sent = content[:20] if kind == "cut" else content
            writer.write(response_head("200 OK", "application/json", len(content)) + sent)
        await writer.drain()
        return kind != "cut"

    async def _stream(self, writer: asyncio.StreamWriter, kind: str, chunks: Sequence[Any]) -> None:
        content_type = "text/html" if kind == "garbage" else "text/event-stream"
        writer.write(response_head("200 OK", content_type, None))
        for place, chunk in enumerate([] if kind == "empty" else chunks):
            data = f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n".encode()
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
            if kind == "cut" and place == 1:
                await asyncio.sleep(0.05)  # else the client may see the end before it has read the rest
                return
            if kind == "short" and place == 1:
                break
            if kind == "stall" and place == 1:
                await asyncio.sleep(60)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def whole(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        if path.endswith("embeddings"):
            vectors = [{"object": "embedding", "index": 0, "embedding": [0.5, -1.0]}]
            return {"object": "list", "model": body["model"], "data": vectors, "usage": EMBEDDED}
        return self.response(body) if path.endswith("responses") else self.completion(body)

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": f"I am {self.name}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        about = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"], "own_field": [1, 2]}
        return {**about, "choices": [choice], "usage": USAGE}

    def response(self, body: dict[str, Any]) -> dict[str, Any]:
        said = {"type": "output_text", "text": f"I am {self.name}", "annotations": []}
        message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [said]}
        about = {"id": "x", "object": "response", "created_at": 1, "model": body["model"], "status": "completed"}
        return {**about, "output": [message], "usage": READ}

    def events(self, body: dict[str, Any]) -> Sequence[Any]:
        """Of a response; the last one has the usage."""
        words = [{"type": "response.output_text.delta", "delta": word} for word in ("I ", "am ", self.name)]
        return [*words, {"type": "response.completed", "response": self.response(body)}]

    def chunks(self, body: dict[str, Any]) -> Sequence[Any]:
        about = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        words = [{"content": word} for word in ("I ", "am ", self.name)]
        parts = [{**about, "choices": [{"index": 0, "delta": word, "finish_reason": None}]} for word in words]
        return [*parts, {**about, "choices": [], "usage": USAGE}, "[DONE]"]


def upstreams_of(given: Any) -> list[Upstream]:
    if isinstance(given, list):
        return given
    return [given.upstream() if isinstance(given, FakeUpstream) else given]


def response_head(status: str, kind: str, length: int | None) -> bytes:
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{size}\r\n\r\n".encode()
