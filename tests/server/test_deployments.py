"""Servers that fail: they rest, are tried again, and others are asked; over real connections."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from prometheus_client import Gauge
from starlette.testclient import TestClient
from tests.router.finished import Untrained
from tests.server.helpers import CHAT, PROMPTS, FakeUpstream, asking, listening, make_service, message_of, rows

from l2d.logs.operations import Limit
from l2d.server import upstreams
from l2d.server.upstreams import FAILURES, Deployment, Upstream, UpstreamFailed

URL, RESPONSES = "/v1/chat/completions", "/v1/responses"
NAMED = {**CHAT, "model": "a"}
PARTS: Any = [{"role": "user", "content": [{"type": "input_text", "text": PROMPTS[0]}]}]
Servers = dict[str, FakeUpstream]


def of_each(servers: Servers, **settings: Any) -> dict[str, Any]:
    return {name: server.upstream(**settings) for name, server in servers.items()}


def serving(run: Untrained, log: Path, servers: Servers, **settings: Any) -> AbstractContextManager[TestClient]:
    return asking(make_service(run.path, log, upstreams=of_each(servers, **settings)))


def asked(servers: Servers) -> list[int]:
    return [len(server.seen) for server in servers.values()]


# One server


FAILED, NOT_ITS_FAULT, BUSY = UpstreamFailed("500"), UpstreamFailed("404", blamed=False), UpstreamFailed("429", 1e6)


@pytest.fixture
def server() -> Deployment:
    return Deployment("a.0", Upstream("http://x", "m", rest=10.0), Gauge("resting", "", registry=None))


def call(server: Deployment, failure: BaseException | None = None) -> tuple[int, float]:
    """Return the seconds to wait after it, and the metric."""
    with suppress(UpstreamFailed, asyncio.CancelledError), server.asked():
        if failure is not None:
            raise failure
    return round(server.wait), server.resting._value.get()


def test_it_rests_after_failures_in_a_row(server: Deployment) -> None:
    few = [FAILED] * (FAILURES - 1)
    assert {call(server, failure) for failure in (*few, None, *few, NOT_ITS_FAULT)} == {(0, 0)}
    assert call(server, FAILED) == (10, 1)
    with pytest.raises(UpstreamFailed, match="resting"), server.asked():
        pass


@pytest.mark.parametrize(("failure", "after"), [(None, (0, 0)), (FAILED, (10, 1)), (asyncio.CancelledError(), (0, 0))])
def test_after_a_rest_one_request_tries_it(server: Deployment, failure: Any, after: Any) -> None:
    """If its client leaves, another one may."""
    assert call(server, BUSY) == (upstreams.LONGEST_REST, 1)
    server.until = 0.0
    with suppress(UpstreamFailed, asyncio.CancelledError), server.asked():
        assert call(server) == (1, 1)
        if failure is not None:
            raise failure
    assert call(server, NOT_ITS_FAULT) == after


def test_requests_that_began_before_a_rest_do_not_end_it(server: Deployment) -> None:
    with server.asked():
        call(server, BUSY)
    assert server.wait > 0


# Asked again


def test_a_failed_call_is_repeated(run: Untrained, log: Path, servers: Servers, ranking: tuple[str, ...]) -> None:
    first = ranking[0]
    for behaviour, stream in (("500,answer", False), ("closed,answer", False), ("garbage,answer", True)):
        servers[first].behaviour = behaviour
        with serving(run, log, servers) as client:
            found = client.post(URL, json={**CHAT, "stream": stream})
            assert f'l2d_retries_total{{expert="{first}"}} 1.0' in client.get("/metrics").text
        assert (found.headers["x-l2d-decided-by"], found.headers["x-l2d-expert"]) == ("router", first)
    assert sum(asked(servers)) == 6


def test_repeats_end_with_the_time_of_the_request(
    run: Untrained, log: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 s: waits of 0.1 and 0.2 s fit; not six, of at least 0.05, 0.1, 0.2, 0.4, 0.8 and 1.6 s."""
    monkeypatch.setattr(upstreams, "FAILURES", 99)
    servers["a"].behaviour = "500"
    with serving(run, log, servers, retries=10, timeout=2) as client:
        found = client.post(URL, json=NAMED)
        assert found.status_code == 500
        assert found.headers["x-request-id"] == "r1"  # its own answer
    assert 2 <= asked(servers)[0] <= 6


def test_repeats_count_against_a_limit(run: Untrained, log: Path, servers: Servers) -> None:
    servers["a"].behaviour = "500"
    limits = {"a": Limit(2, "day")}
    with asking(
        make_service(run.path, log, upstreams=of_each(servers, retries=9, timeout=5), capacity=limits)
    ) as client:
        assert [client.post(URL, json=NAMED).status_code for _ in range(2)] == [500, 429]
    assert asked(servers) == [2, 0, 0]


# Rests


def test_a_busy_server_is_left_in_peace(run: Untrained, log: Path, servers: Servers, ranking: tuple[str, ...]) -> None:
    """As long as its retry-after says. The log has who answered, and that nobody did."""
    first, second, third = ranking
    servers[first].behaviour = "429"
    with serving(run, log, servers) as client:
        found = [client.post(URL, json=CHAT) for _ in range(3)]
        whys = [one.headers["x-l2d-fallback"] for one in found]
        assert whys == [f"{first}=429", f"{first}=resting", f"{first}=resting"]
        assert ({one.headers["x-l2d-expert"] for one in found}, len(servers[first].seen)) == ({second}, 1)
        named = client.post(URL, json={**CHAT, "model": first})
        assert (named.status_code, f"{first} (resting)" in message_of(named)) == (503, True)
        assert 1 <= int(named.headers["retry-after"]) <= 7
        about = client.get("/v1/experts").json()
        assert {one["name"]: one["resting"] for one in about["experts"]} == {first: 1, second: 0, third: 0}
        assert any(first in note and note.startswith("resting") for note in about["policy"])
        assert f'l2d_resting{{expert="{first}"}} 1.0' in client.get("/metrics").text
    *others, last = [(row["expert"], row["served"], row["decided_by"]) for row in rows(log)]
    assert (others, last) == ([(first, second, "router")] * 3, (first, None, "client"))
    assert rows(log)[-1]["price"] == 0


@pytest.mark.parametrize(("behaviour", "statuses", "calls"), [("500", [502, 503], FAILURES), ("429", [429, 503], 1)])
def test_nobody_is_left(run: Untrained, log: Path, servers: Servers, behaviour: str, statuses: Any, calls: int) -> None:
    for server in servers.values():
        server.behaviour = behaviour
    with serving(run, log, servers, retries=2, rest=7, timeout=5) as client:
        found = [client.post(URL, json=CHAT) for _ in range(2)]
    assert [one.status_code for one in found] == statuses
    assert all(1 <= int(one.headers["retry-after"]) <= 7 for one in found)
    assert asked(servers) == [calls] * 3
    assert [(row["served"], row["price"]) for row in rows(log)] == [(None, 0)] * 2


def test_of_many_at_once_one_tries_a_rested_server(
    run: Untrained, log: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstreams, "LONGEST_REST", 0.05)
    servers["a"].behaviour = "429,hang,answer"

    async def all_at_once(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url) as client:
            found = [await client.post(URL, json=NAMED)]
            await asyncio.sleep(0.3)
            found += await asyncio.gather(*(client.post(URL, json=NAMED) for _ in range(8)))
            await asyncio.sleep(0.3)
            found += [await client.post(URL, json=NAMED)]
            return [found[0].status_code, *sorted(one.status_code for one in found[1:-1]), found[-1].status_code]

    with listening(make_service(run.path, log, upstreams=of_each(servers, retries=0, timeout=2, rest=0.05))) as url:
        assert asyncio.run(all_at_once(url)) == [429, *[503] * 7, 504, 200]
    assert asked(servers) == [3, 0, 0]


@pytest.mark.parametrize("behaviour", ["cut", "short"])
def test_a_stream_that_breaks_off_is_a_failure(run: Untrained, log: Path, servers: Servers, behaviour: str) -> None:
    """A whole one between ends the row."""
    servers["a"].behaviour = ",".join([behaviour, "answer", *[behaviour] * FAILURES])
    with serving(run, log, servers) as client:
        found = [client.post(URL, json={**NAMED, "stream": True}).status_code for _ in range(FAILURES + 3)]
    assert found == [200] * (FAILURES + 2) + [503]


# Several servers


@pytest.mark.parametrize("fails", [True, False])
def test_several_servers(run: Untrained, log: Path, servers: Servers, fails: bool) -> None:
    """They share the work; one that fails is asked until it rests. The price is that of the server that answered."""
    servers["a"].behaviour = "500" if fails else "answer"
    with closing(FakeUpstream("a2")) as second:
        both = [servers["a"].upstream(), second.upstream(output_price=1.0)]
        with asking(make_service(run.path, log, upstreams={**of_each(servers), "a": both})) as client:
            found = [client.post(URL, json=NAMED) for _ in range(30)]
            about = client.get("/v1/experts").json()["experts"][0]
    assert {(one.status_code, "x-l2d-fallback" in one.headers) for one in found} == {(200, False)}
    one, two = len(servers["a"].seen), len(second.seen)
    assert (one, two) == (FAILURES, 30) if fails else min(one, two) > 3  # by chance fewer: 1 in 100,000
    assert (about["servers"], about["resting"]) == (2, int(fails))
    assert sum(row["price"] for row in rows(log)) == pytest.approx(two * 10.1 + (0 if fails else one * 0.2))


# Too long


def test_a_longer_context_is_asked(run: Untrained, log: Path, servers: Servers, ranking: tuple[str, ...]) -> None:
    """Nobody rests for it. If a request is too long for all, or for who was named, the client hears that."""
    first, second, _ = ranking
    servers[first].behaviour = "context"
    with serving(run, log, servers) as client:
        for _ in range(2 * FAILURES):
            found = client.post(URL, json=CHAT)
            assert (found.status_code, found.headers["x-l2d-expert"]) == (200, second)
            assert found.headers["x-l2d-fallback"] == f"{first}=context_length_exceeded"
        assert len(servers[first].seen) == 2 * FAILURES
        for server in servers.values():
            server.behaviour = "context"
        for body in (CHAT, {**CHAT, "model": first}):
            found = client.post(URL, json=body)
            assert (found.status_code, found.json()["error"]["code"]) == (400, "context_length_exceeded")
            assert found.headers["x-l2d-expert"] == first
        servers[second].behaviour = "500"
        assert client.post(URL, json=CHAT).status_code == 502
    assert [row["price"] for row in rows(log)[-3:]] == [0, 0, 0]


# Responses and embeddings


@contextmanager
def talking(run: Untrained, log: Path, servers: Servers) -> Iterator[openai.OpenAI]:
    service = make_service(run.path, log, upstreams=servers)
    with listening(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as bot:
        yield bot


@pytest.mark.parametrize("given", [PROMPTS[0], PARTS])
def test_responses(run: Untrained, log: Path, servers: Servers, ranking: tuple[str, ...], given: Any) -> None:
    servers["b"].behaviour = "stall"
    with talking(run, log, servers) as bot:
        servers["b"].behaviour = "answer"
        assert bot.responses.create(model="l2d", input=given).output_text == f"I am {ranking[0]}"
        assert bot.responses.create(model="c", input=given).output_text == "I am c"
        parts = list(bot.responses.create(model="l2d", input=given, stream=True))
        said = "".join(part.delta for part in parts if part.type == "response.output_text.delta")
        assert said == f"I am {ranking[0]}"
        servers["b"].behaviour = "cut,short,stall"
        for _ in range(3):
            with pytest.raises(openai.APIError, match="cut"):
                list(bot.responses.create(model="b", input=given, stream=True))
    assert [row["price"] for row in rows(log)[:3]] == [pytest.approx(0.2)] * 3


def test_embeddings_are_those_of_the_named_expert(run: Untrained, log: Path, servers: Servers) -> None:
    with talking(run, log, servers) as bot:
        assert bot.embeddings.create(model="b", input=["x", "y"]).data[0].embedding == [0.5, -1.0]
        with pytest.raises(openai.UnprocessableEntityError, match="l2d"):
            bot.embeddings.create(model="l2d", input="x")
    [row] = rows(log)
    assert (row["expert"], row["decided_by"], row["price"]) == ("b", "client", pytest.approx(0.1))


def test_responses_that_cannot_be_read(run: Untrained, log: Path, servers: Servers) -> None:
    """A named expert gets them as they are."""
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
    with serving(run, log, servers) as client:
        for given in (None, 3, [3], []):
            found = client.post(RESPONSES, json={"model": "l2d", "input": given})
            assert (found.status_code, "input" in message_of(found)) == (422, True)
            assert client.post(RESPONSES, json={"model": "a", "input": given}).status_code == 200
        found = client.post(RESPONSES, json={"model": "l2d", "input": image})
        assert found.headers["x-l2d-decided-by"] == "unreadable"
