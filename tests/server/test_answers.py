"""What clients are told: numbers that add up and are short, units and limits that are documented, and mistakes in plain words."""

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
from l2d.server import bodies
from l2d.server.decisions import MOST_WAITING
from l2d.utils.text import six_digits

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")
ERROR_PRICE = 0.5  # dollars, so a dollar counts as two errors
PRICES = {"a": 0.3, "b": 0.7, "c": 0.1}  # in errors
BUDGET = 0.12  # dollars; it binds
OUTCOME = {"decision_id": "x", "correct": True}


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
    point = Router.load(run).at(budget=BUDGET).operating_point
    assert point is not None
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
    router.config = {**router.config, "cost": {**router.config["cost"], "scale": 0.0}}
    router.description = replace(router.description, prices=(0.0,) * len(router.experts))
    with asking(make_service(router, tmp_path / "log.sqlite")) as client:
        found = client.post("/v1/route", json={"text": PROMPTS[0]}).json()
        assert (found["price_weight"], found["ranking"][0]["price"]) == (None, None)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("route", {"budget": -1}, "budget=-1: must be a finite number, not negative"),
        ("route", {"budget": 0.0003}, "budget=$0.0003: is less than the price of the cheapest expert, b ($0.1)"),
        ("route", {"prices": "x"}, "prices: must be a mapping by expert, or a list in their order"),
        ("preview", {"prices": 3}, "prices: must be a mapping by expert, or a list in their order"),
        ("route", {"prices": {"a": "x"}}, "prices.a: must be a number"),
        ("route", {"features": 3}, "features: must be a mapping by column, or a list in their order"),
        ("route", {"image": 3}, "image: must be a PNG or JPEG in base64, or pixels as nested lists"),
        ("route", {"inputs": [{"text": "a"}] * 1001}, "inputs: must have at most 1000 entries"),
        ("route", {"messages": [{"role": "user"}] * 2001}, "messages: must have at most 2000 entries"),
        ("route", {"inputs": ["a", "b"]}, "inputs.0: must be a JSON object"),
        ("outcomes", {"outcomes": ["a"]}, "outcomes.0: must be a JSON object"),
        ("outcomes", {**OUTCOME, "correct": "yes"}, "correct: must be a number from 0 to 1, true or false"),
        ("outcomes", {**OUTCOME, "correct": [1]}, "correct: must be a number from 0 to 1, true or false"),
        ("outcomes", {**OUTCOME, "decision_id": ""}, "decision_id: must have 1 or more characters"),
        ("outcomes", {**OUTCOME, "decision_id": "x" * 65}, "decision_id: must have at most 64 characters"),
    ],
)
def test_mistakes(client: TestClient, path: str, body: dict[str, Any], said: str) -> None:
    """In our own words, in the client's unit, and with all that is allowed."""
    query = (
        {"text": "a"} if not {"inputs", "messages", "features", "image", "outcomes", "decision_id"} & {*body} else {}
    )
    found = client.post(f"/v1/{path}", json={**query, **body})
    assert (found.status_code, message_of(found)) == (422, said)


def test_the_body_itself_may_lack_its_header(client: TestClient) -> None:
    found = client.post("/v1/route", content=b'{"text": "a"}', headers={"content-type": "text/plain"})
    assert message_of(found) == "the body: must be a JSON object, with the header content-type: application/json"


@pytest.mark.parametrize(
    ("overrides", "body", "said"),
    [
        ((), {"features": [20, 1]}, "features: expected 3 numbers (y, flag, x); got 2"),
        ((), {"features": [20, 1, "x"]}, "features.2: must be a number"),
        (
            ("dataset.text=prompt", "dataset.features=[x,y]"),
            {"features": [1, 2], "text": "a"},
            "features: must be a mapping by column; this router sees the columns x, y and the text prompt",
        ),
    ],
)
def test_mistakes_in_rows(tmp_path: Path, overrides: tuple[str, ...], body: dict[str, Any], said: str) -> None:
    with asking(make_service(untrained(tmp_path, *overrides).path, tmp_path / "log.sqlite")) as client:
        found = client.post("/v1/route", json=body)
        assert (found.status_code, message_of(found)) == (422, said)


def test_units_of_all_numbers_are_documented(client: TestClient) -> None:
    units = PAGE.partition("| number | unit |")[2].partition("\n\n")[0]
    answers = [client.post(f"/v1/{path}", json={"text": "a"}).json() for path in ("route", "preview")]
    keys = {key for one in [*answers, client.get("/v1/hour").json()] for key, _ in numbers_in(one)}
    assert {"expected_cost", "price_weight", "propensity", "spend"} <= keys
    for key in keys | {"prices", "budget", "confidence", "cost", "latency", "mean_error", "posterior"}:
        assert re.search(rf"^\| [^|]*`{key}`", units, re.MULTILINE), key


def test_limits_are_documented() -> None:
    limits = PAGE.partition("| limit | at most |")[2].partition("\n\n")[0]
    many = (bodies.MOST_INPUTS, bodies.MOST_MESSAGES, bodies.MOST_OUTCOMES)
    for most in (*many, bodies.LONGEST_TEXT, bodies.MOST_PIXELS, int(bodies.MOST_NUMBER), MOST_WAITING):
        assert f"{most:,}" in limits, most
