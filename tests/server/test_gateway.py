"""The gateway, with the real `openai` client, in front of servers that are slow, fail, hang, answer garbage or break off."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from starlette.testclient import TestClient
from tests.router.finished import Untrained, untrained
from tests.server import helpers
from tests.server.helpers import CHAT, EXPERTS, JSON, PROMPTS, FakeUpstream, asking, listening, make_service, message_of

from l2d.data.arrays import Seen
from l2d.logs.operations import write_nothing
from l2d.router.trained import inputs_of
from l2d.server import upstreams
from l2d.server.app import read_features
from l2d.server.boundary import described
from l2d.server.calls import read_line
from l2d.server.gateway import AllFailed
from l2d.server.served import ServedRun
from l2d.server.service import RouterService
from l2d.server.upstreams import UpstreamFailed

NESTED = b'{"model": "l2d", "messages": [{"role": "user", "content": "a"}], "x": %s%s}'
MESSAGES: Any = CHAT["messages"]
Servers = dict[str, FakeUpstream]


@pytest.fixture
def service(run: Untrained, servers: dict[str, FakeUpstream], tmp_path: Path) -> RouterService:
    return make_service(run.path, tmp_path / "log.sqlite", upstreams=servers)


@pytest.fixture
def client(service: RouterService) -> Iterator[TestClient]:
    with asking(service) as found:
        yield found


@contextmanager
def talking(service: RouterService) -> Iterator[openai.OpenAI]:
    """The real client, on a real port."""
    with listening(service) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="the client's", max_retries=0) as found:
        yield found


@pytest.fixture
def bot(service: RouterService) -> Iterator[openai.OpenAI]:
    with talking(service) as found:
        yield found


def finished_log(service: RouterService) -> list[dict[str, Any]]:
    """With what the gateway writes after its answers."""
    service.log.do(write_nothing).result()
    return helpers.rows(service.log.name)


def test_plain(
    bot: openai.OpenAI, servers: dict[str, FakeUpstream], ranking: tuple[str, ...], service: RouterService
) -> None:
    raw = bot.chat.completions.with_raw_response.create(model="l2d", messages=MESSAGES, temperature=0.5)
    found = raw.parse()
    first = ranking[0]
    assert found.choices[0].message.content == f"I am {first}"
    assert found.model == f"model-{first}"
    assert found.usage is not None
    assert found.usage.total_tokens == helpers.USAGE["total_tokens"]
    assert found.model_extra == {"own_field": [1, 2]}
    [row] = finished_log(service)
    assert (raw.headers["x-l2d-expert"], raw.headers["x-l2d-decision-id"]) == (first, row["id"])
    assert raw.headers["x-l2d-run"] == row["run"]
    assert float(raw.headers["x-l2d-expected-cost"]) > 0
    assert "x-l2d-fallback" not in raw.headers
    assert row["price"] == pytest.approx(100 * 0.001 + 10 * 0.01)
    assert 0 < row["latency"] < 5
    [(body, head)] = servers[first].seen
    assert body == {"model": f"model-{first}", "messages": MESSAGES, "temperature": 0.5}
    assert f"authorization: bearer key-of-{first}" in head.lower()
    assert "the client's" not in head


def test_streaming(bot: openai.OpenAI, ranking: tuple[str, ...], service: RouterService) -> None:
    chunks = list(bot.chat.completions.create(model="l2d", messages=MESSAGES, stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in chunks if part.choices) == f"I am {ranking[0]}"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 100
    [row] = finished_log(service)
    assert row["price"] == pytest.approx(0.2)


def test_models(bot: openai.OpenAI, servers: dict[str, FakeUpstream]) -> None:
    assert [model.id for model in bot.models.list()] == ["l2d", *EXPERTS]
    assert [bot.models.retrieve(name).id for name in ("l2d", "c")] == ["l2d", "c"]
    with pytest.raises(openai.NotFoundError, match="model=gpt"):
        bot.models.retrieve("gpt")
    found = bot.chat.completions.create(model="c", messages=MESSAGES)
    assert found.choices[0].message.content == "I am c"
    assert [len(servers[name].seen) for name in EXPERTS] == [0, 0, 1]
    with pytest.raises(openai.NotFoundError, match="model=gpt"):
        bot.chat.completions.create(model="gpt", messages=MESSAGES)


@pytest.mark.parametrize(
    ("behaviour", "stream", "why"),
    [
        *(("429", False, "429"), ("500", True, "500"), ("401", False, "401"), ("404", True, "404")),
        *(
            ("302", False, "302"),
            ("hang", False, "timeout"),
            ("hang", True, "timeout"),
            ("closed", False, "connection"),
        ),
        *(("cut", False, "connection"), ("garbage", False, "not JSON"), ("empty", False, "not JSON")),
        *(("garbage", True, "no event stream"), ("empty", True, "empty")),
    ],
)
def test_the_next_of_the_ranking_answers(
    run: Untrained, log: Path, servers: Servers, ranking: Any, behaviour: str, stream: bool, why: str
) -> None:
    """If nothing of the answer was passed on. That is so for a whole answer that is cut, but not for a stream."""
    first, second, third = ranking
    servers[first].behaviour = behaviour
    service = make_service(run.path, log, upstreams=servers)
    with asking(service) as client:
        found = client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
        [row] = finished_log(service)
        assert f'l2d_fallbacks_total{{expert="{first}",reason="{why}"}} 1.0' in client.get("/metrics").text
    assert found.status_code == 200
    assert (second if stream else f"I am {second}") in found.text
    assert (found.headers["x-l2d-expert"], found.headers["x-l2d-fallback"]) == (second, f"{first}={why}")
    assert found.headers["x-l2d-decided-by"] == "fallback"
    assert "key-of" not in found.text
    assert (row["expert"], row["served"]) == (first, second)
    assert servers[third].seen == []


@pytest.mark.parametrize(
    ("why", "status"), [(["timeout", "timeout"], 504), (["timeout", "500"], 502), (["429", "resting"], 503)]
)
def test_a_timeout_is_told_only_if_all_timed_out(why: list[str], status: int) -> None:
    assert described(AllFailed(dict(zip("ab", map(UpstreamFailed, why), strict=True))))[0] == status


@pytest.mark.parametrize(("behaviour", "why", "status"), [("500", "500", 502), ("hang", "timeout", 504)])
def test_nobody_answers(run: Untrained, log: Path, servers: Servers, behaviour: str, why: str, status: int) -> None:
    for server in servers.values():
        server.behaviour = behaviour
    service = make_service(run.path, log, upstreams=servers)
    with asking(service) as client:
        found = client.post("/v1/chat/completions", json=CHAT)
        assert found.status_code == status
        assert all(f"{name} ({why})" in message_of(found) for name in EXPERTS)
        assert [row["price"] for row in finished_log(service)] == [0]
        assert sum(sum(known or 0 for known in one["spend"]) for one in client.get("/v1/hour").json()["experts"]) == 0


@pytest.mark.parametrize("behaviour", ["cut", "stall", "short"])
def test_a_cut_stream_is_an_error_of_the_client(
    run: Untrained, log: Path, servers: Servers, ranking: tuple[str, ...], behaviour: str
) -> None:
    """Else a short answer would pass for a whole one. So is one that stops coming."""
    servers[ranking[0]].behaviour = behaviour
    with talking(make_service(run.path, log, upstreams=servers)) as bot:
        parts = bot.chat.completions.create(model="l2d", messages=MESSAGES, stream=True)
        words = (part.choices[0].delta.content for part in parts)
        assert [next(words), next(words)] == ["I ", "am "]
        with pytest.raises(openai.APIError, match="cut"):
            next(words)
    assert len(servers[ranking[0]].seen) == 1  # nothing is repeated


def test_an_error_that_the_client_made_is_passed_on(
    client: TestClient, servers: dict[str, FakeUpstream], ranking: tuple[str, ...]
) -> None:
    servers[ranking[0]].behaviour = "400"
    found = client.post("/v1/chat/completions", json=CHAT)
    assert (found.status_code, found.headers["x-l2d-expert"]) == (400, ranking[0])


def test_an_expert_that_the_client_named_has_no_substitute(
    run: Untrained, log: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors are passed on, but not those that are about its key."""
    monkeypatch.setattr(upstreams, "FAILURES", 99)
    statuses = {"500": 500, "401": 502, "302": 502, "hang": 504, "closed": 502, "429": 429}
    servers["b"].behaviour = ",".join(statuses)
    service = make_service(run.path, log, upstreams={**servers, "b": servers["b"].upstream(retries=0)})
    with asking(service) as client:
        for behaviour, status in statuses.items():
            found = client.post("/v1/chat/completions", json={**CHAT, "model": "b"})
            assert found.status_code == status
            passed_on = found.headers.get("retry-after"), found.headers.get("x-request-id")
            assert passed_on == (("7", "r1") if behaviour in ("429", "500") else (None, None))
            assert "key-of-b" not in found.text or behaviour in ("429", "500")
        assert not servers["a"].seen
        assert {row["price"] for row in finished_log(service)} == {0}  # nobody is paid for an error
        assert 'l2d_spend_total{expert="b"} 0.0' in client.get("/metrics").text
    assert {(row["decided_by"], row["propensity"], row["router_choice"]) for row in helpers.rows(service.log.name)} == {
        ("client", None, None)
    }


def test_a_conversation_stays_with_its_expert(run: Untrained, servers: dict[str, FakeUpstream], tmp_path: Path) -> None:
    """Unless asked otherwise. The log has no name of a conversation."""
    router = helpers.lively_router(run.path)
    service = make_service(router, tmp_path / "log.sqlite", upstreams=servers)
    choices = {choice.expert: prompt for prompt, choice in zip(PROMPTS, router.route(PROMPTS), strict=True)}
    (one, first), (two, second) = list(choices.items())[:2]
    held = {"x-l2d-session": "Anna's talk"}
    with asking(service) as client:

        def ask(prompt: str, **headers: str) -> tuple[str, str]:
            body = {"model": "l2d", "messages": [{"role": "user", "content": prompt}]}
            answer = client.post("/v1/chat/completions", json=body, headers=headers)
            return answer.headers["x-l2d-expert"], answer.headers["x-l2d-decided-by"]

        assert [ask(first, **held), ask(second, **held)] == [(one, "router"), (one, "session")]
        assert [ask(second), ask(second, **{"x-l2d-session": "another"})] == [(two, "router")] * 2
        again = ask(second, **held, **{"x-l2d-reroute": "true"})
        assert [again[0], ask(first, **held)[0]] == [two, two]
        servers[two].behaviour = "500"
        fallback = ask(first, **held)[0]
        servers[two].behaviour = "answer"
        assert fallback != two
        assert ask(second, **held)[0] == fallback  # who answered last
        found = helpers.rows(service.log.name)
    assert [row["propensity"] for row in found[:2]] == [1.0, None]
    assert "Anna" not in str(found)


def test_bad_requests(client: TestClient, servers: dict[str, FakeUpstream]) -> None:
    for body, status, said in (
        (b"[1]", 400, "object"),
        (b"[" * 100_000, 400, "not JSON"),
        *((NESTED % (b"[" * depth, b"]" * depth), 400, "") for depth in (990, 2_000, 100_000)),
        *((NESTED % (b"", value), 400, "infinity") for value in (b"NaN", b"1e999")),
        ({"messages": MESSAGES}, 422, "model"),
        ({"model": "l2d"}, 422, "messages"),
        ({"model": "l2d", "messages": []}, 422, "messages"),
        ({"model": "l2d", "messages": [3]}, 422, "messages.0"),
        ({"model": "l2d", "messages": MESSAGES * 10_000}, 422, "at most 2000"),
        ({"model": "x" * 5_000_000, "messages": MESSAGES}, 404, "unknown model"),
        (b'{"model": "\\ud800", "messages": [{"role": "user"}]}', 404, "unknown model"),
    ):
        given: Any = {"content" if isinstance(body, bytes) else "json": body}
        found = client.post("/v1/chat/completions", headers=JSON, **given)
        assert (found.status_code, said in message_of(found)) == (status, True), found.text
        assert len(found.text) < 500
    assert not any(server.seen for server in servers.values())


@pytest.mark.parametrize("content", [[{"type": "image_url", "image_url": {"url": "data:,"}}], None, " "])
def test_a_message_without_a_text_goes_to_the_guards_expert(
    client: TestClient, service: RouterService, servers: dict[str, FakeUpstream], content: Any
) -> None:
    body = {"model": "l2d", "messages": [{"role": "user", "content": content}]}
    found = client.post("/v1/chat/completions", json=body)
    best = service.runs.current.router.experts[service.runs.current.router.description.guard.best]
    assert (found.status_code, found.headers["x-l2d-expert"]) == (200, best)
    assert found.headers["x-l2d-decided-by"] == "unreadable"
    [row] = helpers.rows(service.log.name)
    assert (row["expert"], row["decided_by"], row["propensity"], row["features"]) == (best, "unreadable", 1.0, None)
    assert servers[best].seen[0][0]["messages"] == body["messages"]


def test_a_header_of_features_is_utf_8() -> None:
    """HTTP's headers are bytes, which arrive as if they were Latin-1."""
    assert read_features({"a": 1}, '{"Größe": "ü"}'.encode().decode("latin-1")) == {"a": 1, "Größe": "ü"}


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [("dataset.text=prompt", "dataset.features=[x,y]"), ("dataset.features=[x,y]",)])
def test_features_come_from_metadata_or_a_header(
    tmp_path: Path, overrides: tuple[str, ...], servers: dict[str, FakeUpstream]
) -> None:
    """As numbers or, as OpenAI's metadata are, as texts; the header counts more. Unread features are passed over."""
    run, header = untrained(tmp_path, *overrides), {"x-l2d-features": '{"x": 2.5}'}
    service = make_service(run.path, tmp_path / "log.sqlite", upstreams=servers)
    metadata = {"x": "9", "y": "-1.5", "user": "Anna"}
    row = {"x": 2.5, "y": -1.5, "prompt": MESSAGES[-1]["content"]}
    with asking(service) as client:
        assert "l2d" in [model["id"] for model in client.get("/v1/models").json()["data"]]
        post = partial(client.post, "/v1/chat/completions")
        assert post(json={**CHAT, "metadata": metadata}, headers=header).status_code == 200
        assert post(json={**CHAT, "metadata": {**metadata, "x": 2.5}}).status_code == 200
        whole = {"x-l2d-features": '{"x": 2.5, "y": -1.5}'}
        assert post(json=CHAT, headers=whole).status_code == 200
        for wrong, headers, said in (
            ({}, {}, "no x, y"),
            ({"y": 1}, {}, "no x;"),
            ({"x": "much", "y": 1}, {}, "column x"),
            (metadata, {"x-l2d-features": "[1]"}, "x-l2d-features"),
        ):
            found = post(json={**CHAT, "metadata": wrong}, headers=headers)
            assert (found.status_code, said in message_of(found)) == (422, True), found.text
        logged = helpers.rows(service.log.name)
    expected = inputs_of(service.runs.current.router, [row])[0].numpy().tobytes()
    assert [one["features"] for one in logged] == [expected] * 3
    seen = [body for server in servers.values() for body, _ in server.seen]
    assert {json.dumps(body.get("metadata")) for body in seen} >= {json.dumps(metadata), "null"}


def test_a_router_of_unnamed_numbers_cannot_route_chats(servers: dict[str, FakeUpstream], tmp_path: Path) -> None:
    """But it can pass them on."""
    run = untrained(tmp_path)
    service = make_service(run.path, tmp_path / "log.sqlite", upstreams=servers)
    router = service.runs.current.router
    unnamed = replace(router, description=replace(router.description, seen=Seen()))
    service.runs.current = ServedRun(unnamed, service.runs.current.name)
    with asking(service) as client:
        assert "messages" in message_of(client.post("/v1/chat/completions", json=CHAT))
        assert client.post("/v1/chat/completions", json={**CHAT, "model": "a"}).status_code == 200
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [*EXPERTS]


def test_without_upstreams(run: Untrained, tmp_path: Path) -> None:
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        found = client.post("/v1/chat/completions", json=CHAT)
        assert (found.status_code, "--upstreams" in message_of(found)) == (404, True)
        assert [model["id"] for model in client.get("/v1/models").json()["data"]] == []


def test_a_server_without_a_key_gets_none(run: Untrained, servers: dict[str, FakeUpstream], tmp_path: Path) -> None:
    keyless = {**servers, "a": servers["a"].upstream(key_variable=None)}
    with asking(make_service(run.path, tmp_path / "log.sqlite", upstreams=keyless)) as client:
        client.post("/v1/chat/completions", json={**CHAT, "model": "a"}, headers={"authorization": "Bearer mine"})
    [(_, head)] = servers["a"].seen
    assert "authorization" not in head.lower()


def test_the_end_of_an_answer() -> None:
    def chunk(*reasons: str | None) -> bytes:
        choices = [{"index": place, "finish_reason": reason} for place, reason in enumerate(reasons)]
        return b"data: " + json.dumps({"choices": choices}).encode()

    for line in (b"data: [DONE]", b"data:[DONE]\r"):
        assert read_line(line) == (None, {b"[DONE]"})
    assert [read_line(chunk(*reasons))[1] for reasons in (("stop",), (None,), (None, "length"))] == [{0}, set(), {1}]
    assert read_line(b'data: {"choices": [], "usage": {"prompt_tokens": 3}}') == ({"prompt_tokens": 3}, set())
    for line in (
        b'data: {"finish_reason": "stop"}',
        b'data: {"finish_reason"',
        b'data: ["finish_reason"]',
        b"",
        b": [DONE]",
    ):
        assert read_line(line) == (None, set())


@pytest.mark.parametrize(
    ("content", "wanted", "whole"),
    [
        ([b'data: {"choices": [{"index": 0, "finish_reason": "stop"}]}\n\n'], 1, True),
        ([b'data: {"choices": [{"index": 0, "finish_reason": "stop"}]}\n\n'], 2, False),
        ([b"data: [DO", b"NE]"], 2, True),
        ([b'data: {"choices": []}\r\rdata: [DONE]\r\r'], 1, True),
    ],
)
def test_which_streams_are_whole(service: RouterService, content: list[bytes], wanted: int, whole: bool) -> None:
    """Also with other ends of lines, several choices, and parts that are cut anywhere."""
    found = helpers.passed_on(service, content, wanted)
    assert (found == content) == whole
    assert whole or b"cut" in found[-1]


def test_a_client_that_leaves_frees_the_upstream(
    service: RouterService, servers: dict[str, FakeUpstream], ranking: tuple[str, ...]
) -> None:
    """And the log has the time until then."""
    servers[ranking[0]].behaviour = "slow"

    async def leave(url: str) -> None:
        async with (
            httpx.AsyncClient() as client,
            client.stream("POST", f"{url}/v1/chat/completions", json={**CHAT, "stream": True}) as answer,
        ):
            await anext(answer.aiter_raw())

    with listening(service) as url:
        asyncio.run(leave(url))
        assert any(finished_log(service)[0]["latency"] is not None for _ in range(100)), "the stream was not closed"
        assert httpx.post(f"{url}/v1/chat/completions", json=CHAT).status_code == 200
