"""Requests of the page: previews that leave no trace, and the last hour of the log. The router itself is the reference."""

import asyncio
import base64
import contextlib
import hashlib
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient
from tests.logs.postgres import postgres
from tests.router.finished import Untrained, untrained
from tests.server.helpers import EXPERTS, PROMPTS, asking, lively_router, make_service, message_of, rows

import l2d
from l2d.core.guard import HeldOut
from l2d.logs import readings
from l2d.logs.decision import Decision, ReportedOutcome, id_at, new_decision_id
from l2d.logs.operations import add_answer, add_decisions, add_outcomes
from l2d.logs.outcome_log import OutcomeLog
from l2d.router.router import Router
from l2d.runs.artifact.drift import InputSummary
from l2d.server.served import example_body

NOW = 1_800_000_000 + 120.0  # two minutes into a step: the steps begin at 1,799,996,700
START = 1_799_996_700
PRICES = {"a": 0.0, "b": 0.4, "c": 0.6}


@pytest.fixture
def client(run: Untrained, tmp_path: Path) -> Iterator[TestClient]:
    with asking(make_service(lively_router(run.path), tmp_path / "log.sqlite")) as found:
        yield found


def test_the_page_loads_nothing_from_elsewhere(client: TestClient) -> None:
    """And runs nothing but its own script: the policy names it by its hash."""
    found = client.get("/")
    assert (found.status_code, found.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in found.headers["content-security-policy"].split(";"))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    for tag in ("script", "style"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", found.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[f"{tag}-src"] == f"'sha256-{digest}'"
    assert policy["require-trusted-types-for"] == "'script'"
    addresses = {*re.findall(r"https?://[^'\"\s]+", found.text)}
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\bon\w+=\"|style=\"", found.text)


def test_a_preview_is_what_the_router_says(client: TestClient, run: Untrained) -> None:
    router = lively_router(run.path)
    for prompt in PROMPTS[:4]:
        [choice] = router.route([prompt])
        found = client.post("/v1/preview", json={"text": prompt}).json()
        assert [found[key] for key in ("expert", "guard", "guard_note", "run")] == [choice.expert, None, None, "run"]
        assert [one["expert"] for one in found["ranking"]] == list(choice.ranking)
        for one in found["ranking"]:
            name = one["expert"]
            known = (choice.expected_errors, choice.expected_prices, choice.expected_costs)
            expected = tuple((values or {})[name] for values in known)
            assert (one["expected_error"], one["price"], one["expected_cost"]) == pytest.approx(expected, rel=1e-5)
            assert one["expected_cost"] == pytest.approx(one["expected_error"] + one["price"], abs=1e-5)


def test_a_preview_at_other_prices(client: TestClient, run: Untrained) -> None:
    """By name or in the experts' order."""
    router = lively_router(run.path).at(PRICES)
    chosen = set()
    for prompt in PROMPTS:
        [choice] = router.route([prompt])
        for prices in (PRICES, list(PRICES.values())):
            found = client.post("/v1/preview", json={"text": prompt, "prices": prices}).json()
            assert found["expert"] == choice.expert
            assert {one["expert"]: one["price"] for one in found["ranking"]} == pytest.approx(PRICES)
        chosen |= {choice.expert} - {client.post("/v1/preview", json={"text": prompt}).json()["expert"]}
    assert chosen, "no choice depends on the prices"


def test_the_guard_of_other_prices(run: Untrained, tmp_path: Path) -> None:
    """On the rows that it did not see, this router is always wrong, so at other prices the guard sends everything to b."""
    router = lively_router(run.path)
    errors = torch.eye(3, dtype=torch.float64).repeat(30, 1)
    router = replace(router, held_out=HeldOut(errors, 1 - errors, errors.mean(dim=0)))
    [own] = router.route(PROMPTS[:1])
    assert own.expert == "c"
    with asking(make_service(router, tmp_path / "log.sqlite")) as client:
        found = client.post("/v1/preview", json={"text": PROMPTS[0], "prices": [0.2, 0.0, 0.1]}).json()
        assert (found["expert"], found["guard"].split(":")[0]) == ("b", "fallback")
        assert " b" in found["guard_note"]
        assert client.post("/v1/preview", json={"text": PROMPTS[0]}).json()["expert"] == "c"


@pytest.mark.parametrize("settings", [{"explore": 1.0}, {"shadow": "b"}], ids=str)
def test_a_preview_leaves_no_trace(run: Untrained, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Neither in the log nor in the counts of choices, spend and far inputs; and nobody but the router decides."""
    router = lively_router(run.path)
    router = replace(router, training_inputs=InputSummary.of(run.splits.train.inputs))
    service = make_service(router, tmp_path / "log.sqlite", **settings)
    with asking(service) as client:
        for _ in range(5):
            for body in ({}, {"prices": [0.5, 0.1, 0.4]}):
                assert client.post("/v1/preview", json={"text": PROMPTS[0], **body}).json()["expert"] == "c"
        shown = client.get("/metrics").text
        assert 'l2d_requests_total{endpoint="/v1/preview",status="200"} 10.0' in shown
        assert not re.search(r"^l2d_(choices|spend|guard)_total\{", shown, re.MULTILINE)
        assert (len(rows(tmp_path / "log.sqlite")), len(service.policy.drift._far)) == (0, 0)
        client.post("/v1/route", json={"text": PROMPTS[0]})
        assert (len(rows(tmp_path / "log.sqlite")), len(service.policy.drift._far)) == (1, 1)


def test_previews_that_are_refused(client: TestClient) -> None:
    for body, said in (
        ({"text": "a", "prices": {"a": 1}}, "b, c"),
        ({"text": "a", "prices": [1, 2, -3]}, "prices.2"),
        ({"inputs": [{"text": "a"}]}, "inputs"),
        ({"text": "a", "budget": 1.0}, "budget"),
    ):
        found = client.post("/v1/preview", json=body)
        assert (found.status_code, said in message_of(found)) == (422, True), found.text


def decided(seconds: float, expert: str, price: float | None, by: str = "router") -> Decision:
    """At this time."""
    return Decision(f"{id_at(seconds)}{new_decision_id()[12:]}", "run", expert, expert, by, None, price)


def write_hour(log: OutcomeLog) -> None:
    """Six decisions in the hour, and one before it.

    a: three choices in step 0, of which one was answered by b; outcomes: correct, and a cost of 0.5. So a has 2 choices with the
    prices 0.25 and 0.75 (reported), mean error (0 + 0.5)/2. b: the one of a, price 2, and one of its own in the last step, without
    a price; right by a quarter. gone: an expert of another run, in step 6.
    """
    first = [decided(START, "a", 0.25), decided(START + 1, "a", 0.5, "explore"), decided(START + 299.9, "a", 1.0)]
    others = [decided(NOW, "b", None), decided(START + 6 * 300, "gone", 8.0), decided(START - 1, "a", 100.0)]
    log.do(add_decisions, [*first, *others]).result()
    log.do(add_answer, first[2].id, "b", 2.0, None).result()
    outcomes: Any = [
        (first[0], 1.0, None),
        (first[1], None, 0.5, 0.75),
        (others[0], 0.25, None),
        (others[2], 0.0, None),
    ]
    log.do(add_outcomes, [ReportedOutcome(decision.id, *given) for decision, *given in outcomes]).result()
    log.close()


def check_hour(address: Path | str) -> None:
    write_hour(OutcomeLog(address))
    found = readings.read_last_hour(address, NOW, ["c", "a"])
    assert (found["start"], found["seconds"]) == (START, 300)
    assert found["decided_by"] == {"router": 3, "explore": 1, "fallback": 1}
    zeros, nothing = [0] * 11, [None] * 11
    assert [one["name"] for one in found["experts"]] == ["c", "a", "b", "gone"]
    by_name = {one.pop("name"): one for one in found["experts"]}
    assert by_name["c"] == {
        "choices": [0, *zeros],
        "spend": [None, *nothing],
        "priced": 0,
        "outcomes": 0,
        "mean_error": None,
    }
    assert by_name["a"] == {
        "choices": [2, *zeros],
        "spend": [1.0, *nothing],
        "priced": 2,
        "outcomes": 2,
        "mean_error": 0.25,
    }
    b = {"choices": [1, *zeros[1:], 1], "spend": [2.0, *nothing], "priced": 1, "outcomes": 1, "mean_error": 0.75}
    assert by_name["b"] == b
    assert (by_name["gone"]["choices"][6], by_name["gone"]["spend"][6]) == (1, 8.0)


def test_the_last_hour(tmp_path: Path) -> None:
    check_hour(tmp_path / "log.sqlite")


@pytest.mark.slow
def test_the_last_hour_in_postgresql() -> None:
    with postgres() as server:
        check_hour(server.url)


def test_the_last_hour_of_a_server(run: Untrained, tmp_path: Path) -> None:
    """Decisions of this moment are in the last step. No text, no features, no ids."""
    with asking(make_service(lively_router(run.path), tmp_path / "log.sqlite", keep="text")) as client:
        decisions = [client.post("/v1/route", json={"text": prompt}).json() for prompt in PROMPTS[:3]]
        client.post("/v1/outcomes", json={"decision_id": decisions[0]["decision_id"], "correct": True})
        answer = client.get("/v1/hour")
        found = answer.json()
        assert [one["name"] for one in found["experts"]] == list(EXPERTS)
        assert sum(one["choices"][-1] + one["choices"][-2] for one in found["experts"]) == 3  # the clock may step on
        assert sum(one["outcomes"] for one in found["experts"]) == 1
        for secret in (PROMPTS[0], decisions[0]["decision_id"]):
            assert secret not in answer.text


def test_the_hour_is_read_while_another_writes(client: TestClient, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begun = time.perf_counter()
        assert client.get("/v1/hour").status_code == 200
        assert time.perf_counter() - begun < 1
        other.execute("ROLLBACK")


def test_many_pages_cost_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept for 5 seconds, or 20 times as long as it took."""
    clock, read = [100.0], []
    monkeypatch.setattr(readings, "monotonic", lambda: clock[0])

    def count(what: str) -> str:
        read.append(clock[0])
        clock[0] += 1.0 if len(read) == 2 else 0.0
        return f"{what} {len(read)}"

    kept = readings.KeptReading(count, 5.0)
    for moment, number in ((100.0, 1), (104.9, 1), (105.0, 2), (125.9, 2), (126.0, 3)):
        clock[0] = moment
        assert asyncio.run(kept.look("reading")) == f"reading {number}"
    assert read == [100.0, 105.0, 126.0]


def test_a_log_that_cannot_be_read(client: TestClient, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "log.sqlite")) as other:
        other.execute("DROP TABLE outcomes")
    found = client.get("/v1/hour")
    assert (found.status_code, "log" in message_of(found)) == (503, True)


def test_experts_say_how_to_ask(client: TestClient, tmp_path: Path) -> None:
    """The example of each kind of router is a query that it takes."""
    found = client.get("/v1/experts").json()
    assert [(one["name"], one["price"]) for one in found["experts"]] == [("a", 0.5), ("b", 0.1), ("c", 0.3)]
    assert (found["run"], found["sees"], found["guard"]) == ("run", "the text prompt", None)
    assert (found["kind"], found["takes_prices"], found["price_weight"], found["currency"]) == ("text", True, 1.0, "")
    assert (found["example"], found["policy"]) == ({"text": "What is this?"}, [])
    both = ("dataset.text=prompt", "dataset.features=[x,y]")
    expected = {"x": 0.0, "y": 0.0, "flag": 0.0}, {"x": 0.0, "y": 0.0, "prompt": "What is this?"}
    for name, overrides, features in zip(("rows", "both"), ((), both), expected, strict=True):
        (tmp_path / name).mkdir()
        with asking(
            make_service(untrained(tmp_path / name, *overrides, "method=mild").path, tmp_path / f"{name}.sqlite")
        ) as other:
            found = other.get("/v1/experts").json()
            assert (found["kind"], found["example"]["features"], found["takes_prices"]) == ("row", features, False)
            assert other.post("/v1/preview", json=found["example"]).json()["ranking"][0]["posterior"] > 0
            refused = other.post("/v1/preview", json={**found["example"], "prices": [1, 1, 1]})
            assert (refused.status_code, "prices" in message_of(refused)) == (422, True)


def test_example_of_rows_without_names(run: Untrained) -> None:
    router = Router.load(run.path)
    seen = replace(router.description.seen, text=None)
    for shape, example in (((2,), {"features": [0.0, 0.0]}), ((8, 8, 1), None)):
        description = replace(router.description, seen=seen, shape=shape)
        assert example_body(replace(router, description=description)) == example


def test_prices_count_as_in_training_and_by_the_budget(run: Untrained, tmp_path: Path) -> None:
    """The weight of a price, and the budget's part of it."""
    router = Router.load(run.path)
    config = {**router.config, "cost": {**router.config["cost"], "scale": 0.5, "error_price": 2.0}}
    router = replace(router, config=config, description=replace(router.description, factor=3.0))
    with asking(make_service(router, tmp_path / "log.sqlite")) as client:
        found = client.get("/v1/experts").json()
        assert (found["price_weight"], found["price_factor"], found["currency"]) == (1.5, 3.0, "$")
        assert found["experts"][0]["price"] == 1.0  # 0.5 errors


def test_prices_are_taken_where_the_router_takes_them(tmp_path: Path) -> None:
    """Also by a run with cost.scale=0, and not by one that knows whole costs alone."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    errors = (X > 0).astype(float)
    free = l2d.fit(X, errors=errors, prices=[0.1, 0.2], method="linear", options={"progress": False, "cost.scale": 0})
    whole = l2d.fit(X, errors, method="linear", options={"progress": False})
    for name, router, taken in (("free", free, True), ("whole", whole, False)):
        with asking(make_service(router, tmp_path / f"{name}.sqlite")) as client:
            assert client.get("/v1/experts").json()["takes_prices"] is taken
            answer = client.post("/v1/preview", json={"features": [0.0, 0.0], "prices": [0.1, 0.2]})
            assert answer.status_code == (200 if taken else 422)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"shadow": "b"}, "shadow: b "), ({"explore": 0.025}, "explore: 2.5 %"), ({"drift_limit": 0.5}, "drift: .* a ")],
    ids=str,
)
def test_policy_notes(run: Untrained, tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    router = replace(Router.load(run.path), training_inputs=InputSummary.of(run.splits.train.inputs))
    asked = make_service(router, tmp_path / "log.sqlite", **settings)
    asked.policy.drift.add([True] * 300)
    with asking(asked) as client:
        [note] = client.get("/v1/experts").json()["policy"]
    assert re.match(said, note)
