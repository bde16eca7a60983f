"""Experts that may be asked only so often, and those that a request does not allow."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.router.finished import Untrained
from tests.server.helpers import (
    CHAT,
    EXPERTS,
    PROMPTS,
    FakeUpstream,
    asking,
    lively_router,
    make_service,
    message_of,
)

from l2d.core.assignment import assign
from l2d.logs.operations import Limit
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.server.policy import Scarcity
from l2d.server.served import ServeSettings, check_settings
from l2d.utils.errors import ParameterError

TEXT = {"text": PROMPTS[0]}
UNREAD = {"text": " "}


def test_the_next_best_answers_until_nobody_is_left(run: Untrained, tmp_path: Path) -> None:
    first, second, third = Router.load(run.path).route(PROMPTS[:1])[0].ranking
    limits = {first: Limit(2, "hour"), second: Limit(1, "day"), third: Limit(1, "minute")}
    with asking(make_service(run.path, tmp_path / "log.sqlite", capacity=limits)) as client:
        found = [client.post("/v1/route", json=TEXT) for _ in range(5)]
        assert [one.json().get("expert") for one in found] == [first, first, second, third, None]
        by = [one.json().get("decided_by") for one in found[:4]]
        assert by == ["router", "router", "capacity", "capacity"]
        assert {one.json()["propensity"] for one in found[:4]} == {1.0}
        assert (found[4].status_code, "capacity" in message_of(found[4])) == (429, True)
        assert 50 <= int(found[4].headers["retry-after"]) <= 61
        assert client.post("/v1/route", json={**TEXT, "budget": 0.4}).status_code == 422
        about = client.get("/v1/experts").json()
    assert {one["name"]: (one["capacity"], one["left"]) for one in about["experts"]} == {
        first: ("2/hour", 0),
        second: ("1/day", 0),
        third: ("1/minute", 0),
    }
    assert sum(note.startswith("capacity: ") for note in about["policy"]) == 3
    with asking(make_service(run.path, tmp_path / "log.sqlite", capacity=limits)) as client:  # after a restart
        assert client.post("/v1/route", json=TEXT).status_code == 429


def test_propensities_are_those_of_who_is_free(run: Untrained, tmp_path: Path) -> None:
    """With explore = 0.6, two free experts have 0.3 each, and the preferred one 0.4 more."""
    own = Router.load(run.path).route(PROMPTS[:1])[0].ranking
    limits = {own[2]: Limit(1, "day"), own[0]: Limit(10**6, "minute")}
    service = make_service(run.path, tmp_path / "log.sqlite", explore=0.6, capacity=limits)
    with asking(service) as client:
        assert client.post("/v1/route", json={**TEXT, "available": [own[2]]}).json()["propensity"] == 1.0
        found = client.post("/v1/route", json={"inputs": [TEXT] * 300}).json()["decisions"]
        refused = client.post("/v1/route", json={**TEXT, "available": [own[2]]})
    assert {(one["expert"], round(one["propensity"], 6)) for one in found} == {(own[0], 0.7), (own[1], 0.3)}
    assert (refused.status_code, int(refused.headers["retry-after"]) > 80_000) == (429, True)


def test_available(run: Untrained, tmp_path: Path) -> None:
    first, second, third = Router.load(run.path).route(PROMPTS[:1])[0].ranking
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        found = client.post("/v1/route", json={**TEXT, "available": [third, second]}).json()
        assert (found["expert"], found["decided_by"], found["propensity"]) == (second, "capacity", 1.0)
        assert found["ranking"][0]["expert"] == first
        assert client.post("/v1/route", json={**UNREAD, "available": [third]}).json()["expert"] == third
        for wrong in ([], ["z"], "a", [1]):
            found = client.post("/v1/route", json={**TEXT, "available": wrong})
            assert (found.status_code, "available" in message_of(found)) == (422, True)


def test_the_gateway_keeps_limits_too(
    run: Untrained, log: Path, servers: dict[str, FakeUpstream], ranking: tuple[str, ...]
) -> None:
    """An expert that takes another one's place counts, as does one that the client names."""
    first, second, third = ranking
    servers[first].behaviour = "500"
    with asking(make_service(run.path, log, upstreams=servers, capacity={second: Limit(2, "day")})) as client:

        def ask(model: str) -> Any:
            return client.post("/v1/chat/completions", json={**CHAT, "model": model})

        assert [ask("l2d").headers["x-l2d-expert"], ask(second).headers["x-l2d-expert"]] == [second, second]
        found = ask("l2d")
        assert found.headers["x-l2d-expert"] == third
        assert f"{second}=capacity" in found.headers["x-l2d-fallback"]
        assert ask(second).status_code == 429
    assert len(servers[second].seen) == 2


def choice(costs: np.ndarray) -> Choice:
    ranking = tuple(EXPERTS[k] for k in costs.argsort(kind="stable"))
    return Choice(ranking[0], None, dict(zip(EXPERTS, costs.tolist(), strict=True)), ranking=ranking)


def test_a_scarce_expert_is_kept_for_those_who_need_it(run: Untrained) -> None:
    """2,000 queries of which 300 may go to the best expert, 10 of 40 in a row: asked while it is free it saves less than half of
    what the best assignment saves; with prices nearly all."""
    router, rng = lively_router(run.path), np.random.default_rng(0)
    costs = np.sort(rng.random((2000, 3)), axis=1)
    limits, alone = {"a": Limit(300, "day")}, costs[:, 1].sum()
    best = costs[np.arange(2000), assign(costs, np.array([300, 2000, 2000]))[0]].sum()
    spent = Counter[str]()
    for name in ("greedy", "priced"):
        scarcity, asked = Scarcity(limits), 0
        for place, row in enumerate(costs):
            if name == "priced" and place % 50 == 0:
                scarcity.learn(EXPERTS, {"a": 2000})
            free = [one for one in EXPERTS if one != "a" or asked < 300]
            expert = scarcity.preferred(router, choice(row), free)
            asked += expert == "a"
            spent[name] += row[EXPERTS.index(expert)]
    assert alone - spent["greedy"] < 0.5 * (alone - best)
    assert alone - spent["priced"] > 0.8 * (alone - best)


def test_a_guard_that_sends_all_to_one_expert_holds(run: Untrained) -> None:
    router, scarcity = Router.load(run.path), Scarcity({"a": Limit(1, "day")})
    guard = replace(router.description.guard, constant=2, offsets=None)
    router = replace(router, description=replace(router.description, guard=guard))
    scarcity.prices = {"a": 1.0}
    one = replace(choice(np.array([0.1, 0.2, 0.3])), ranking=("c", "a", "b"))
    assert scarcity.preferred(router, one, EXPERTS) == "c"
    assert scarcity.preferred(router.at(raw=True), one, EXPERTS) == "b"


def test_prices_wait_for_enough_decisions(run: Untrained) -> None:
    router: Any = lively_router(run.path)
    scarcity = Scarcity({"a": Limit(1, "day")})
    rows = np.sort(np.random.default_rng(0).random((60, 3)), axis=1)
    for row in rows[:40]:
        assert scarcity.preferred(router, choice(row), EXPERTS) == "a"
    scarcity.learn(EXPERTS, {"a": 100})
    assert not scarcity.prices
    for row in rows:
        scarcity.preferred(router, choice(row), EXPERTS)
    scarcity.learn(EXPERTS, {"a": 100})
    assert scarcity.prices["a"] > 0 == scarcity.prices["b"]
    scarcity.learn(EXPERTS, {"a": 1})  # no longer scarce
    assert not any(scarcity.prices.values())


def test_settings_that_do_not_fit(run: Untrained) -> None:
    router = Router.load(run.path)
    with pytest.raises(ParameterError, match=r"^capacity=z"):
        check_settings(ServeSettings(capacity={"z": Limit(1, "day")}), router)
    check_settings(ServeSettings(capacity={"a": Limit(1, "day")}), router)
    with pytest.raises(ParameterError, match=r"^capacity: .*budget"):
        check_settings(ServeSettings(capacity={"a": Limit(1, "day")}), router.within(0.4))
