"""Answers to clients: numbers that add up and are short, and mistakes with their key."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.router.finished import untrained
from tests.server.helpers import PROMPTS, asking, lively_router, make_service, message_of, text_run

from l2d.router.router import Router
from l2d.utils.text import six_digits

ERROR_PRICE = 0.5  # dollars, so a dollar counts as two errors
PRICES = {"a": 0.3, "b": 0.7, "c": 0.1}  # in errors
BUDGET = 0.12  # dollars; it binds


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_run(tmp_path_factory.mktemp("dollars"), f"cost.error_price={ERROR_PRICE}").path


@pytest.fixture
def client(run: Path, tmp_path: Path) -> Iterator[TestClient]:
    service = make_service(lively_router(run), tmp_path / "log.sqlite", admin_token="admin")
    with asking(service) as found:
        yield found


def numbers_in(found: Any) -> Iterator[tuple[str, float]]:
    """All floats of an answer, with their keys."""
    for key, value in found.items() if isinstance(found, dict) else [("", one) for one in found]:
        if isinstance(value, float):
            yield key, value
        elif isinstance(value, dict | list):
            yield from ((inner or key, number) for inner, number in numbers_in(value))


@pytest.mark.parametrize(
    ("path", "asked"), [("route", {}), ("route", {"prices": PRICES}), ("preview", {}), ("preview", {"prices": PRICES})]
)
def test_costs_add_up(client: TestClient, path: str, asked: dict[str, Any]) -> None:
    """An error costs half a dollar, so prices count twice. Those of a request are in dollars too."""
    for prompt in PROMPTS[:3]:
        found = client.post(f"/v1/{path}", json={"text": prompt, **asked}).json()
        assert found["price_weight"] == 2
        for one in found["ranking"]:
            expected = one["expected_error"] + 2 * one["price"]
            assert one["expected_cost"] == pytest.approx(expected, rel=1e-5)
            if asked:
                assert one["price"] == PRICES[one["expert"]]


def test_a_budget_says_what_it_multiplies_prices_by(client: TestClient, run: Path) -> None:
    point: Any = Router.load(run).at(budget=BUDGET).operating_point
    assert point.factor > 10
    found = client.post("/v1/route", json={"text": PROMPTS[0], "budget": BUDGET}).json()
    assert found["price_weight"] == pytest.approx(2 * point.factor, rel=1e-5)
    prices = {one["expert"]: one["price"] for one in found["ranking"]}
    assert prices == {"a": 0.5, "b": 0.1, "c": 0.3}  # what is paid stays
    for one in found["ranking"]:
        expected = one["expected_error"] + found["price_weight"] * one["price"]
        assert one["expected_cost"] == pytest.approx(expected, rel=1e-5)


def test_numbers_are_short(client: TestClient) -> None:
    """32 bits would show: 0.1 is 0.10000000149011612 there."""
    decision = client.post("/v1/route", json={"text": PROMPTS[0], "prices": PRICES}).json()
    other = client.post("/v1/route", json={"text": PROMPTS[1]}).json()
    for id, correct in ((decision["decision_id"], 1 / 3), (other["decision_id"], 2 / 3)):
        client.post("/v1/outcomes", json={"decision_id": id, "correct": correct})
    answers = (decision, client.post("/v1/preview", json={"text": PROMPTS[0]}).json(), client.get("/v1/hour").json())
    for answer in answers:
        found = [number for key, number in numbers_in(answer) if key != "propensity"]
        assert len(found) > 1
        assert [number for number in found if number != float(f"{number:.6g}")] == []


def test_rounded() -> None:
    assert six_digits(0.36000001430511475) == 0.36
    assert six_digits(-1234567.0) == -1234570.0
    assert six_digits(0.0) == 0.0
    assert six_digits(None) is None


def test_without_prices_nothing_is_weighed(run: Path, tmp_path: Path) -> None:
    router = Router.load(run)
    router = replace(router, config={**router.config, "cost": {**router.config["cost"], "scale": 0.0}})
    router = replace(router, description=replace(router.description, prices=(0.0,) * len(router.experts)))
    with asking(make_service(router, tmp_path / "log.sqlite")) as client:
        found = client.post("/v1/route", json={"text": PROMPTS[0]}).json()
        assert (found["price_weight"], found["ranking"][0]["price"]) == (None, None)


def test_mistakes(client: TestClient) -> None:
    """With the key, and in the client's unit."""
    for path, body, said in (
        ("route", {"text": "a", "budget": -1}, "budget=-1"),
        ("route", {"text": "a", "budget": 0.0003}, r"budget=\$0\.0003: .*\$0\.1"),
        ("preview", {"text": "a", "prices": 3}, "prices: "),
        ("route", {"text": "a", "prices": {"a": "x"}}, r"prices\.a: .*number"),
        ("route", {"features": 3}, "features: "),
        ("route", {"inputs": ["a", "b"]}, r"inputs\.0: .*object"),
        ("outcomes", {"decision_id": "x", "correct": "yes"}, "correct: .*number"),
        ("outcomes", {"decision_id": "x" * 65, "correct": True}, "decision_id: .*64"),
    ):
        found = client.post(f"/v1/{path}", json=body)
        assert (found.status_code, bool(re.match(said, message_of(found)))) == (422, True), found.text


def test_the_body_itself_may_lack_its_header(client: TestClient) -> None:
    found = client.post("/v1/route", content=b'{"text": "a"}', headers={"content-type": "text/plain"})
    assert "application/json" in message_of(found)


@pytest.mark.parametrize(
    ("overrides", "body", "said"),
    [
        ((), {"features": [20, 1]}, r"features: .*3 numbers \(y, flag, x\).* 2"),
        ((), {"features": [20, 1, "x"]}, r"features\.2: .*number"),
        (("dataset.text=prompt", "dataset.features=[x,y]"), {"features": [1, 2], "text": "a"}, "features: .*mapping"),
    ],
)
def test_mistakes_in_rows(tmp_path: Path, overrides: tuple[str, ...], body: dict[str, Any], said: str) -> None:
    with asking(make_service(untrained(tmp_path, *overrides).path, tmp_path / "log.sqlite")) as client:
        found = client.post("/v1/route", json=body)
        assert (found.status_code, bool(re.match(said, message_of(found)))) == (422, True), found.text
