"""What clients, upstreams, disks and databases do to a server that runs for years."""

import asyncio
import json
import re
import shutil
import socket
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.router.finished import Untrained
from tests.server.helpers import CHAT, JSON, FakeUpstream, asking, leave, listening, make_service, passed_on

from l2d.logs.decision import session_digest
from l2d.server import boundary, calls, protocol
from l2d.server.bodies import OneOrMany, PreviewBody, ReloadBody, RouteBody
from l2d.server.calls import LINE_END, EventStream
from l2d.server.upstreams import Upstream

TEXT = {"text": "a"}


def count_of(client: Any, url: str, metric: str) -> float:
    found = re.search(rf"^{re.escape(metric)} ([0-9.]+)$", client.get(f"{url}/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


# Heads of requests


def sent(url: str, *pieces: bytes, seconds: float = 5.0) -> bytes:
    """The answer to raw bytes; empty if the connection was closed without one."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as client:
        found = b""
        try:
            for piece in pieces:
                client.sendall(piece)
            while part := client.recv(65_536):
                found += part
        except ConnectionError:
            pass
        return found


START = b"GET /health HTTP/1.1\r\nhost: x\r\n"
END = b"connection: close\r\n\r\n"
CHUNKED = (
    b"POST /v1/route HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
)
BODY = b'd\r\n{"text": "a"}\r\n'


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ([START, END], b"200"),
        ([START, b"x-l2d-features: ", b"a" * 65_000, b"\r\n", END], b"200"),
        ([START, b"a: ", *[b"b" * 50_000] * 8], b"400"),  # one header that never ends
        ([START, *[b"a: " + b"b" * 30_000 + b"\r\n"] * 8, END], b"400"),
        ([START, b"a: b\r\n" * 500, END], b"400"),
        ([b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n", END], b"400"),
        ([CHUNKED, b"connection: close\r\n\r\n", BODY, b"0\r\n\r\n"], b"200"),
        ([CHUNKED, b"\r\n", BODY, b"0\r\na: ", *[b"b" * 50_000] * 8], b"400"),  # a trailer
        ([CHUNKED, b"\r\n", b"d;", *[b"b" * 50_000] * 8], b"400"),  # what may stand beside the size of a chunk
    ],
)
def test_heads_have_a_limit(pieces: list[bytes], status: bytes, run: Untrained, log: Path) -> None:
    with listening(make_service(run.path, log)) as url:
        found = sent(url, *pieces)
        assert found == b"" or found.split(b" ", 2)[1] == status
        assert found or status == b"400"  # a reset may overtake the answer
        assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize("begun", [b"", b"\r\n", START, START + END.replace(b"close", b"keep-alive") + START])
def test_heads_that_do_not_come(begun: bytes, run: Untrained, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed, also between two requests."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    with listening(make_service(run.path, log)) as url:
        began = time.monotonic()
        sent(url, begun, seconds=30)
        assert time.monotonic() - began < 10


def test_a_slow_answer_is_no_slow_head(
    run: Untrained, log: Path, servers: dict[str, FakeUpstream], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    for server in servers.values():
        server.behaviour = "slow"
    with listening(make_service(run.path, log, upstreams=servers)) as url, httpx.Client() as client:
        assert [client.post(f"{url}/v1/chat/completions", json=CHAT).status_code for _ in range(2)] == [200, 200]


# Bodies


@pytest.mark.parametrize("kind", [RouteBody, PreviewBody, ReloadBody, OneOrMany])
@pytest.mark.parametrize(
    "body",
    [
        {f"k{place}": 1 for place in range(50_000)},
        {"text": "a", "prices": {f"k{place}": "x" for place in range(50_000)}},
        {"text": "a", "prices": ["x"] * 50_000},
        {"features": ["x"] * 50_000},
        {"messages": ["x"] * 2_000},
        {"inputs": [{"txt": 1}] * 1_000},
        {"outcomes": [{f"k{place}": 1 for place in range(10)}] * 10_000},
    ],
)
def test_a_body_makes_few_mistakes(kind: Any, body: Any) -> None:
    """Each would be an object of its own."""
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(kind).validate_python(body)
    assert caught.value.error_count() <= 1_100


# Streams


@given(st.lists(st.lists(st.sampled_from([b"ab", b"\n", b"\r\n", b"\r", b"c", b""]), max_size=4).map(b"".join)))
def test_lines_against_a_slow_reference(pieces: list[bytes]) -> None:
    lines: list[bytes] = []

    def noted(line: bytes) -> tuple[None, set[str]]:
        lines.append(line)
        return None, set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "read_line", noted)
        stream = EventStream()
        for piece in pieces:
            stream.add(piece)
        stream.is_whole()
    assert [line for line in lines if line] == [line for line in LINE_END.split(b"".join(pieces)) if line]


def test_a_long_event_in_small_pieces(run: Untrained, log: Path) -> None:
    """20,000 pieces of one line: linear takes a tenth of a second, quadratic a minute."""
    began = time.process_time()
    pieces = [b"x" * 45] * 20_000
    parts = [b"data: ", *pieces, b"\n\ndata: [DONE]\n\n"]
    assert passed_on(make_service(run.path, log), parts)[-1].endswith(b"[DONE]\n\n")
    assert time.process_time() - began < 10


def test_streams_have_limits(run: Untrained, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [b"data: a\n", b"data: [DONE]\n"]
    assert passed_on(make_service(run.path, log), whole) == whole
    assert b"cut" in passed_on(make_service(run.path, log), whole, began=1e6)[-1]
    monkeypatch.setattr(calls, "LARGEST_ANSWER", 10)
    assert b"cut" in passed_on(make_service(run.path, log), whole)[-1]


# The log


def routed(client: Any) -> int:
    return int(client.post("/v1/route", json=TEXT).status_code)


@pytest.mark.parametrize("part", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_that_vanished_is_noticed(part: str, replaced: bool, run: Untrained, log: Path, tmp_path: Path) -> None:
    """Nothing is acknowledged until it is back."""
    with asking(make_service(run.path, log)) as client:
        assert (routed(client), client.get("/ready").status_code) == (200, 200)
        file, aside = log.with_name(log.name + part), tmp_path / "aside"
        file.rename(aside)
        if replaced:
            shutil.copy(aside, file)
        assert (routed(client), client.get("/ready").status_code) == (503, 503)
        assert client.post("/v1/outcomes", json={"decision_id": "x", "correct": True}).status_code == 503
        if not part and not replaced:
            assert client.get("/v1/hour").status_code == 503
            assert not log.exists()
        aside.rename(file)
        assert (routed(client), client.get("/ready").status_code) == (200, 200)


def test_a_database_that_hangs(run: Untrained, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered, and what nobody waits for any more is never written."""
    own, over = make_service(run.path, log), threading.Event()
    with asking(own) as client:
        with monkeypatch.context() as quick:
            quick.setattr("l2d.logs.outcome_log.LOG_SECONDS", 0.2)
            own.log.do(lambda _: over.wait(60))
            time.sleep(0.1)  # it has begun
            assert (client.get("/ready").status_code, routed(client)) == (503, 503)
        quick.setattr("l2d.logs.outcome_log.MOST_WAITING", 0)
        assert routed(client) == 503
        quick.undo()
        over.set()
        assert (client.get("/ready").status_code, routed(client)) == (200, 200)
    with sqlite3.connect(log) as read:
        assert read.execute("SELECT count(*) FROM decisions").fetchone() == (1,)
    read.close()


# Clients that leave, and pages from elsewhere


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_left_costs_no_more(
    stream: bool, run: Untrained, log: Path, servers: dict[str, FakeUpstream], ranking: tuple[str, ...]
) -> None:
    """Its call is cancelled, nobody else is asked, and it is counted as 499."""
    servers[ranking[0]].behaviour = "hang"
    with listening(make_service(run.path, log, upstreams=servers)) as url:
        asyncio.run(leave(url, {**CHAT, "stream": stream}, servers[ranking[0]]))
        left, end = 'l2d_requests_total{endpoint="/v1/chat/completions",status="499"}', time.monotonic() + 10
        while not count_of(httpx, url, left) and time.monotonic() < end:  # it is counted when the server notices
            time.sleep(0.05)
        assert count_of(httpx, url, left) == 1
    assert sum(len(server.seen) for server in servers.values()) == 1


def test_half_a_body_is_no_request(run: Untrained, log: Path) -> None:
    with listening(make_service(run.path, log)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as client:
            head = b"POST /v1/route HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
            client.sendall(head + b'{"text": "a"}')
        for _ in range(50):
            if count_of(httpx, url, 'l2d_requests_total{endpoint="/v1/route",status="499"}'):
                break
            time.sleep(0.1)
        else:
            pytest.fail("not counted")


def test_an_offer_of_http_2_is_passed_over(run: Untrained, log: Path) -> None:
    """Java's client makes it with each request; in one segment or two."""
    body = b'{"text": "a"}'
    head = b"POST /v1/route HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: 127.0.0.1\r\nUpgrade: h2c\r\n"
    head += b"HTTP2-Settings: AAEAAEAAAAIAAAAB\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
        body
    )
    with listening(make_service(run.path, log)) as url:
        host, port = url.removeprefix("http://").split(":")
        for segments in ([head + body], [head, body]):
            with socket.create_connection((host, int(port)), timeout=20) as client:
                for segment in segments:
                    client.sendall(segment)
                    time.sleep(0.1)
                assert client.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_nul_disturbs_no_other_request(run: Untrained, log: Path) -> None:
    """PostgreSQL refuses it, and with it all that waits for the same commit."""
    with asking(make_service(run.path, log)) as client:
        assert client.post("/v1/decisions/a%00b/answers", json={"expert": "a", "answer": "x"}).status_code == 422
        outcome = {"decision_id": "a", "expert": "a\u0000b", "correct": True}
        assert client.post("/v1/outcomes", json=outcome).status_code == 422


HERE = "http://127.0.0.1"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": HERE}, 200),
        ({"host": "localhost:8080", "origin": "http://localhost:8080"}, 200),
        ({"host": "[::1]:8080"}, 200),
        ({"host": "router.internal", "origin": "https://router.internal"}, 200),
        ({"origin": "https://router.internal"}, 200),  # a proxy asks in its name
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:3000"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": ""}, 415),
        ({"content-type": "application/json; charset=utf-8"}, 200),
    ],
)
def test_pages_from_elsewhere(headers: dict[str, str], status: int, run: Untrained, log: Path) -> None:
    with asking(make_service(run.path, log, names=frozenset(["router.internal"]))) as client:
        for path, body in (("/v1/route", TEXT), ("/v1/preview", TEXT)):
            found = client.post(path, content=json.dumps(body).encode(), headers={**JSON, **headers})
            assert (found.status_code, found.headers["x-content-type-options"]) == (status, "nosniff")


def test_with_a_token_any_name_will_do(run: Untrained, log: Path) -> None:
    with asking(make_service(run.path, log, api_token="secret")) as client:
        elsewhere = {"host": "any.example", "origin": "http://evil.example"}
        assert client.post("/v1/route", json=TEXT, headers=elsewhere).status_code == 401
        allowed = {**elsewhere, "authorization": "Bearer secret"}
        assert client.post("/v1/route", json=TEXT, headers=allowed).status_code == 200


# Upstreams


@pytest.mark.parametrize("tokens", [10**400, 10**17, -1, True, "5", 1.5])
def test_numbers_of_tokens_that_nobody_believes(tokens: Any) -> None:
    upstream = Upstream("http://127.0.0.1", "m", input_price=0.001, output_price=0.01)
    expected = 0.011 if tokens is True else None  # True is 1
    assert upstream.price_of({"prompt_tokens": tokens, "completion_tokens": 1}) == (
        expected and pytest.approx(expected)
    )


def test_a_conversation_without_a_name_is_none() -> None:
    assert session_digest("") is session_digest(None) is None
    assert session_digest("a") != session_digest("b")


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_request_that_never_ends(cancelled: bool, run: Untrained, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads nothing is cut off in the end, and a server that stops cancels it. What escapes would be printed with a
    traceback."""
    monkeypatch.setattr(boundary, "LONGEST", 60 if cancelled else 0.05)
    own = make_service(run.path, log)

    async def endless(*_: Any) -> None:
        await asyncio.sleep(60)

    async def stop() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "path": "/health", "method": "GET", "headers": []}
        task = asyncio.create_task(boundary.Boundary(endless, own, set())(scope, receive, endless))
        await asyncio.wait([task], timeout=0.1 if cancelled else 10)
        assert task.done() != cancelled
        task.cancel()
        await task

    asyncio.run(stop())
    own.log.close()
