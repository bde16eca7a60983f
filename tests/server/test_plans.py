"""Decisions that follow a plan: asked answer by answer, in the gateway, after a restart, and in several processes."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import torch
from starlette.testclient import TestClient
from tests.logs.postgres import postgres
from tests.router.finished import Untrained
from tests.server import helpers
from tests.server.helpers import CHAT, EXPERTS, PROMPTS, FakeUpstream, asking, listening, make_service, message_of

import l2d
from l2d.logs.databases import open_database
from l2d.networks.estimators.planner import planner_of
from l2d.router.router import Router
from l2d.server.served import ServeSettings, check_settings
from l2d.server.service import RouterService
from l2d.utils.errors import ParameterError

PRICES = {"a": 0.01, "b": 0.02, "c": 0.2}
MESSAGES: Any = CHAT["messages"]
rows = helpers.rows
BY_USAGE = 100 * 0.001 + 10 * 0.01
QUERY = {"text": PROMPTS[0]}


@pytest.fixture(scope="module")
def trained() -> Router:
    """Its simple plans ask a and b, and c if these disagree."""
    rng, n = np.random.default_rng(0), 80
    wrong, truth = rng.uniform(size=(n, 3)) < [0.5, 0.4, 0.1], rng.integers(0, 5, n)
    answers = np.where(wrong, 10 + (truth[:, None] + rng.integers(1, 5, (n, 3))) % 5, 10 + truth[:, None])
    texts = [f"how many {'apples' if row % 2 else 'kings'} of {row}" for row in range(n)]
    given: dict[str, Any] = {"experts": EXPERTS, "answers": answers.astype(str).astype(object)}
    options = {"progress": False, "method.seconds": 0.1, "router": "hashed"}
    router = l2d.fit(texts, errors=wrong.astype(float), prices=PRICES, method="plan", options=options, **given)
    planner = planner_of(router.network)
    assert planner is not None
    planner.simple = torch.tensor([[0, 1, -1, 2.0], [0, 1, 2, 0], [2, 1, 0, 0]])
    return router


def following(router: Router, plan: str | None) -> Router:
    return replace(router, description=replace(router.description, plan=plan))


@pytest.fixture(scope="module")
def router(trained: Router) -> Router:
    return following(trained, "two agree")


def begin(client: TestClient, **more: Any) -> tuple[str, str]:
    found = client.post("/v1/route", json={**QUERY, **more}).json()
    assert found["expert"] == found["ask"]
    return found["decision_id"], found["ask"]


def tell(client: Any, id: str, expert: str, answer: Any = None, **more: Any) -> Any:
    return client.post(f"/v1/decisions/{id}/answers", json={"expert": expert, "answer": answer, **more})


# Answer by answer


def test_two_that_agree_are_enough(router: Router, log: Path) -> None:
    with asking(make_service(router, log)) as client:
        id, first = begin(client)
        assert first == "a"
        assert tell(client, id, "a", "4.0").json() == {"ask": "b"}
        found = tell(client, id, "b", 4, confidence=0.5, length=7).json()
        assert (found["accept"], 0.5 < found["chance"] <= 1) == ("a", True)
        shown = client.get("/metrics").text
    assert 'l2d_spend_total{expert="b"} 0.02' in shown
    assert ("l2d_calls_sum 2.0" in shown, "l2d_calls_count 1.0" in shown) == (True, True)
    assert 'endpoint="/v1/decisions/{id}/answers",status="200"' in shown
    [decision] = rows(log)
    assert (decision["decided_by"], decision["propensity"], decision["served"]) == ("plan", None, None)
    assert decision["price"] == pytest.approx(0.03)
    kept = [
        (row["place"], row["expert"], row["propensity"], row["price"], row["same_as"]) for row in rows(log, "calls")
    ]
    assert kept == [(1, "a", 1.0, 0.01, "a"), (2, "b", 1.0, 0.02, "a")]
    assert [(row["confidence"], row["length"]) for row in rows(log, "calls")] == [(None, 3), (0.5, 7)]
    assert rows(log, "steps") == []


def test_a_third_decides_and_the_outcome_is_its(router: Router, log: Path) -> None:
    with asking(make_service(router, log)) as client:
        id, _ = begin(client)
        tell(client, id, "a", "4")
        early = client.post("/v1/outcomes", json={"decision_id": id, "expert": "a", "correct": False})
        assert early.status_code == 409  # whose answer will be given is not known yet
        assert tell(client, id, "b", "5").json() == {"ask": "c"}
        assert tell(client, id, "c", "6").json()["accept"] == "c"
        assert client.post("/v1/outcomes", json={"decision_id": id, "correct": True}).status_code == 200
        hour = client.get("/v1/hour").json()
    [decision] = rows(log)
    assert (decision["expert"], decision["served"], decision["price"]) == ("a", "c", pytest.approx(0.23))
    assert hour["decided_by"] == {"plan": 1}
    assert [sum(one["choices"]) for one in hour["experts"]] == [0, 0, 1]


def test_bad_answers_change_nothing(router: Router, log: Path) -> None:
    with asking(make_service(router, log)) as client:
        id, _ = begin(client)
        assert tell(client, id, "a", "4").status_code == 200
        for name, expert, more, status, said in (
            ("none", "b", {}, 404, "decision_id=none"),
            (id, "a", {"answer": "9"}, 409, "waits for b"),
            (id, "c", {}, 409, "waits for b"),
            (id, "d", {}, 422, "expert=d"),
            (id, "b", {"failed": True, "answer": "4"}, 422, "failed"),
            (id, "b", {"length": -1}, 422, "length"),
            (id, "b", {"answer": [4]}, 422, "answer"),
            (id, "b", {"answers": 4}, 422, "answers"),
        ):
            found = tell(client, name, expert, **more)
            assert (found.status_code, said in message_of(found)) == (status, True), found.text
        assert tell(client, id, "b", "4").json()["accept"] == "a"
        again = tell(client, id, "b", "4")
        assert (again.status_code, "ended with a" in message_of(again)) == (409, True)
        assert 'l2d_spend_total{expert="b"} 0.02' in client.get("/metrics").text
    assert [row["expert"] for row in rows(log, "calls")] == ["a", "b"]


def test_an_expert_that_failed_costs_nothing(router: Router, log: Path) -> None:
    with asking(make_service(router, log)) as client:
        id, _ = begin(client)
        assert tell(client, id, "a", failed=True).json() == {"ask": "b"}
        assert tell(client, id, "b", failed=True).json() == {"ask": "c"}
        assert tell(client, id, "c", failed=True, price=0.05).json() == {"accept": None, "chance": None}
    assert [(row["price"], row["same_as"]) for row in rows(log, "calls")] == [(0.0, None)] * 2 + [(0.05, None)]


def test_an_expert_that_failed_leaves_the_money_for_others(router: Router, log: Path) -> None:
    with asking(make_service(router, log, cap=0.205)) as client:
        id, _ = begin(client)
        tell(client, id, "a", failed=True)
        assert tell(client, id, "b", "4", price=0.001).json() == {"ask": "c"}


@pytest.mark.parametrize("asked", [{}, {"raw": True}, {"prices": {"a": 0.02, "b": 0.01, "c": 0.3}}, {"budget": 0.1}])
def test_a_plan_survives_a_restart_and_two_processes(router: Router, log: Path, asked: dict[str, Any]) -> None:
    """Also at the client's prices."""
    with asking(make_service(router, log)) as one:
        id, first = begin(one, **asked)
    with asking(make_service(router, log)) as two, asking(make_service(router, log)) as three:
        step, servers = {"ask": first}, iter([two, three, two, three])
        while "accept" not in step:
            step = tell(next(servers), id, step["ask"], "4").json()
    assert step["accept"] in EXPERTS
    if "prices" in asked:
        assert {row["expert"]: row["price"] for row in rows(log, "calls")}.items() <= asked["prices"].items()


def test_one_of_two_answers_at_once_wins(router: Router, log: Path) -> None:
    with listening(make_service(router, log)) as url, listening(make_service(router, log)) as other:
        clients = [httpx.Client(base_url=address) for address in (url, other) for _ in range(3)]
        with ThreadPoolExecutor(6) as pool:
            for _ in range(3):
                id = clients[0].post("/v1/route", json=QUERY).json()["decision_id"]
                codes = [found.status_code for found in pool.map(lambda one: tell(one, id, "a", "4"), clients)]  # noqa: B023
                assert sorted(codes) == [200, *[409] * 5]
        for one in clients:
            one.close()
    assert len(rows(log, "calls")) == 3


def test_what_a_waiting_plan_keeps(router: Router, log: Path) -> None:
    """Digests, where answers must be the same; other rules need the answers, until the plan ends."""
    within = replace(router, config={**router.config, "dataset": {**router.config["dataset"], "agree": "within:0.1"}})
    for served, kept in ((router, False), (within, True)):
        with asking(make_service(served, log, keep="none")) as client:
            id, _ = begin(client)
            tell(client, id, "a", "one secret")
            [waiting] = rows(log, "steps")
            assert ("secret" in waiting["state"]) == kept
            tell(client, id, "b", "One  secret.")
            assert rows(log, "steps") == []
    assert "secret" not in str([rows(log, table) for table in ("decisions", "calls")])
    assert [row["same_as"] for row in rows(log, "calls")] == ["a"] * 4


def test_after_a_reload(router: Router, run: Untrained, log: Path) -> None:
    """The run that began a plan ends it, if this process still has it."""
    service = make_service(router, log, admin_token="admin")
    with asking(service) as client:
        first, second = begin(client)[0], begin(client)[0]
        for _ in range(2):
            found = client.post("/admin/reload", json={"run": str(run.path)}, headers={"authorization": "Bearer admin"})
            assert found.status_code == 200
            if service.runs.previous.name == "run":
                assert tell(client, first, "a", "4").json() == {"ask": "b"}
        assert tell(client, second, "a", "4").status_code == 409
        assert "ask" not in client.post("/v1/route", json=QUERY).json()


def test_it_takes_other_prices(router: Router, log: Path) -> None:
    with asking(make_service(router, log)) as client:
        assert client.get("/v1/experts").json()["takes_prices"] is True
        assert client.post("/v1/preview", json={**QUERY, "prices": [0.3, 0.02, 0.2]}).status_code == 200


def test_limits(router: Router, log: Path) -> None:
    for settings, accepted in (({"most_calls": 1}, "a"), ({"cap": 0.015}, "a"), ({"cap": 0.1}, "a")):
        with asking(make_service(router, log, **settings)) as client:
            id, _ = begin(client)
            step = tell(client, id, "a", "4").json()
            if settings == {"cap": 0.1}:  # c is too dear
                assert step == {"ask": "b"}
                step = tell(client, id, "b", "5").json()
            assert step["accept"] in (accepted, "b")
    assert all(row["price"] <= 0.1 for row in rows(log))


@pytest.mark.parametrize("settings", [{"cap": 0.5}, {"most_calls": 2}])
def test_limits_need_a_plan(run: Untrained, router: Router, settings: dict[str, Any]) -> None:
    check_settings(ServeSettings(**settings), router)
    with pytest.raises(ParameterError, match="plan"):
        check_settings(ServeSettings(**settings), Router.load(run.path))
    with pytest.raises(ParameterError, match=r"cheapest.*0\.01"):
        check_settings(ServeSettings(cap=0.001), router)


def test_a_drawn_expert_is_the_first_of_a_plan(router: Router, log: Path) -> None:
    with asking(make_service(router, log, explore=1.0)) as client:
        for _ in range(12):
            id, first = begin(client)
            found = tell(client, id, first, "4").json()
            while "ask" in found:  # the others agree
                found = tell(client, id, found["ask"], "5").json()
        hour = client.get("/v1/hour").json()
    assert any(row["served"] for row in rows(log))
    assert hour["decided_by"] == {"explore": 12}  # nobody failed
    kept = [row for row in rows(log, "calls") if row["place"] == 1]
    assert {row["expert"] for row in kept} == {*EXPERTS}
    assert [row["propensity"] for row in kept] == pytest.approx([1 / 3] * 12)
    assert {(row["decided_by"], row["propensity"]) for row in rows(log)} == {("explore", None)}


@pytest.mark.parametrize(("plan", "settings", "by"), [(None, {}, "router"), ("two agree", {"shadow": "c"}, "shadow")])
def test_one_choice_ends_with_its_answer(trained: Router, log: Path, plan: Any, settings: Any, by: str) -> None:
    with asking(make_service(following(trained, plan), log, **settings)) as client:
        id, first = begin(client)
        assert tell(client, id, first, "4").json()["accept"] == first
    [decision] = rows(log)
    assert (decision["decided_by"], decision["propensity"]) == (by, 1.0)


def test_a_log_of_an_earlier_version_and_postgresql(router: Router, log: Path) -> None:
    database = open_database(log)
    for table in ("calls", "steps", "asks", "trials"):
        database.execute(f"DROP TABLE {table}")
    database.set_version(3)
    database.close()
    with asking(make_service(router, log)) as client:
        assert tell(client, begin(client)[0], "a", "4").json() == {"ask": "b"}
    with postgres() as server, asking(make_service(router, server.url)) as client:
        id, _ = begin(client)
        assert [tell(client, id, name, "4").status_code for name in "aabb"] == [200, 409, 200, 409]


# The gateway


class Saying(FakeUpstream):
    """An upstream that says what it is told to, or calls a tool."""

    says: str | None = "4"

    @property
    def message(self) -> dict[str, Any]:
        tool = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return {"content": self.says} if self.says is not None else {"content": None, "tool_calls": [tool]}

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        found = super().completion(body)
        found["choices"][0]["message"] = {"role": "assistant", **self.message}
        return found

    def chunks(self, body: dict[str, Any]) -> Sequence[Any]:
        first, *_, usage, end = super().chunks(body)
        parts = [{"content": part} for part in self.says] if self.says is not None else [self.message]
        said = [{**first, "choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
        return [*said, usage, end]


@pytest.fixture(scope="module")
def all_servers() -> Iterator[dict[str, Saying]]:
    found = {name: Saying(name) for name in EXPERTS}
    yield found
    for server in found.values():
        server.close()


@pytest.fixture
def servers(all_servers: dict[str, Saying]) -> dict[str, Saying]:
    for server in all_servers.values():
        server.behaviour, server.says = "answer", f"{server.name}'s answer"
        server.seen.clear()
    return all_servers


@pytest.fixture
def service(router: Router, servers: dict[str, Saying], log: Path) -> RouterService:
    return make_service(router, log, upstreams=servers)


def chat(client: TestClient, **more: Any) -> Any:
    return client.post("/v1/chat/completions", json={**CHAT, **more})


def said_by(answer: Any) -> str:
    """Of a stream, the words of its chunks."""
    if answer.headers["content-type"] == "application/json":
        return str(answer.json()["choices"][0]["message"]["content"])
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return "".join(part["delta"].get("content") or "" for line in lines for part in json.loads(line)["choices"])


@pytest.mark.parametrize("stream", [False, True])
def test_the_gateway_compares_and_escalates(
    service: RouterService, servers: dict[str, Saying], log: Path, stream: bool
) -> None:
    with asking(service) as client:
        found = chat(client, stream=stream)
        assert (found.status_code, said_by(found)) == (200, "c's answer")
        assert found.headers["x-l2d-expert"] == "c"
        asked = dict(part.split("=") for part in found.headers["x-l2d-asked"].split(","))
        last = PRICES["c"] if stream else BY_USAGE  # a stream's usage comes after its headers
        assert {name: float(price) for name, price in asked.items()} == pytest.approx(
            {"a": BY_USAGE, "b": BY_USAGE, "c": last}
        )
        servers["b"].says = "A's answer."
        agreed = chat(client, stream=stream)
        assert (agreed.headers["x-l2d-expert"], said_by(agreed)) == ("a", "a's answer")
        assert agreed.headers["x-l2d-decided-by"] == "plan"
        shown = client.get("/metrics").text
    assert [bool(body.get("stream")) for server in servers.values() for body, _ in server.seen] == [stream] * 5
    assert ("l2d_calls_sum 5.0" in shown, "l2d_calls_count 2.0" in shown) == (True, True)
    one, two = rows(log)
    assert (one["served"], one["price"], two["served"], two["price"]) == (
        *("c", pytest.approx(3 * BY_USAGE)),
        *(None, pytest.approx(2 * BY_USAGE)),
    )
    calls = [row for row in rows(log, "calls") if row["decision_id"] == one["id"]]
    assert sum(row["latency"] for row in calls) == pytest.approx(one["latency"])
    assert [row["propensity"] for row in rows(log, "calls")] == [1.0] * 5
    assert rows(log, "steps") == []


@pytest.mark.parametrize(("settings", "last"), [({}, "c"), ({"most_calls": 1}, "a"), ({"cap": 0.015}, "a")])
def test_a_stream_begins_when_it_is_decided(
    router: Router, servers: dict[str, Saying], log: Path, settings: dict[str, Any], last: str
) -> None:
    """The last one's answer is given whatever it says, so its words come one by one: here the stream stalls."""
    servers[last].behaviour = "stall"
    with (
        listening(make_service(router, log, upstreams=servers, **settings)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as bot,
    ):
        parts = bot.chat.completions.create(model="l2d", messages=MESSAGES, stream=True)
        words = (part.choices[0].delta.content for part in parts)
        assert [next(words), next(words)] == [last, "'"]
        with pytest.raises(openai.APIError, match="cut"):
            next(words)


@pytest.mark.parametrize("behaviour", ["500", "hang", "garbage", "closed", "cut", "empty", "context"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_plan_goes_on_without_an_expert_that_fails(
    router: Router, servers: dict[str, Saying], log: Path, behaviour: str, stream: bool
) -> None:
    servers["a"].behaviour = behaviour
    with asking(make_service(router, log, upstreams=servers)) as client:
        found = chat(client, stream=stream)
        assert found.headers["x-l2d-fallback"].startswith("a=")
        assert found.headers["x-l2d-decided-by"] == "plan"
        assert said_by(found) == "c's answer"
        assert 'l2d_fallbacks_total{expert="a"' in client.get("/metrics").text
    assert [(row["expert"], row["price"] > 0) for row in rows(log, "calls")] == [("a", False), ("b", True), ("c", True)]


def test_all_fail(service: RouterService, servers: dict[str, Saying], log: Path) -> None:
    for server in servers.values():
        server.behaviour = "500"
    with asking(service) as client:
        found = chat(client)
        assert (found.status_code, all(f"{name} (500)" in message_of(found) for name in EXPERTS)) == (502, True)
    assert rows(log)[0]["price"] == 0


def test_the_clients_own_error_comes_back_unless_there_is_an_answer(
    service: RouterService, servers: dict[str, Saying]
) -> None:
    with asking(service) as client:
        servers["a"].behaviour = "400"
        assert (chat(client).status_code, len(servers["b"].seen)) == (400, 0)
        servers["a"].behaviour, servers["b"].behaviour = "answer", "400"
        found = chat(client)
        assert (found.status_code, found.headers["x-l2d-fallback"]) == (200, "b=400")


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"n": 2},
        {"response_format": {"type": "json_object"}},
        {"messages": [*MESSAGES, {"role": "tool", "tool_call_id": "t", "content": "4"}]},
    ],
)
def test_what_cannot_be_compared_goes_to_one_expert(
    service: RouterService, servers: dict[str, Saying], log: Path, more: dict[str, Any]
) -> None:
    with asking(service) as client:
        found = chat(client, **more)
    assert (said_by(found), found.headers["x-l2d-asked"]) == ("a's answer", f"a={BY_USAGE:g}")
    assert [len(servers[name].seen) for name in EXPERTS] == [1, 0, 0]
    assert servers["a"].seen[0][0] == {**CHAT, **more, "model": "model-a"}
    [decision] = rows(log)
    assert (decision["decided_by"], decision["propensity"]) == ("router", 1.0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_from_one_expert(
    service: RouterService, servers: dict[str, Saying], log: Path, stream: bool
) -> None:
    with asking(service) as client:
        found = client.post("/v1/responses", json={"model": "l2d", "input": PROMPTS[0], "stream": stream})
    assert (found.status_code, "I am a" in found.text or stream) == (200, True)
    assert [len(servers[name].seen) for name in EXPERTS] == [1, 0, 0]
    assert [(row["expert"], row["price"]) for row in rows(log, "calls")] == [("a", pytest.approx(BY_USAGE))]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_tools_passes_through(service: RouterService, servers: dict[str, Saying], stream: bool) -> None:
    servers["a"].says = None
    with asking(service) as client:
        found = chat(client, stream=stream)
    assert "tool_calls" in found.text
    assert (found.headers["x-l2d-expert"], len(servers["b"].seen)) == ("a", 0)


def test_for_a_client_that_left_nobody_else_is_asked(router: Router, servers: dict[str, Saying], log: Path) -> None:
    servers["a"].behaviour = "hang"
    with listening(make_service(router, log, upstreams=servers)) as url:
        asyncio.run(helpers.leave(url, CHAT, servers["a"]))
    assert [len(servers[name].seen) for name in EXPERTS] == [1, 0, 0]
    assert not rows(log, "calls")  # it was cancelled, so nobody knows its price


def test_a_rule_that_fails_on_an_answer(router: Router, servers: dict[str, Saying], log: Path) -> None:
    """In the gateway that answer agrees with no other; a posted one is refused and can be sent again."""
    rule = f"{__name__}.fails_on_five"
    strict = replace(router, config={**router.config, "dataset": {**router.config["dataset"], "agree": rule}})
    servers["b"].says = "5"
    with asking(make_service(strict, log, upstreams=servers)) as client:
        assert (said_by(chat(client)), chat(client).status_code) == ("c's answer", 200)
        id, _ = begin(client)
        assert tell(client, id, "a", "4").json() == {"ask": "b"}
        found = tell(client, id, "b", "5")
        assert (found.status_code, "agree" in message_of(found)) == (422, True)
        assert tell(client, id, "b", "4").json()["accept"] == "a"


def fails_on_five(one: str, two: str) -> bool:
    if "5" in (one, two):
        raise ValueError("five")
    return one == two
