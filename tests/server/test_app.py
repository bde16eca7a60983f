"""Around the endpoints: tokens, limits, metrics, settings."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.router.finished import Untrained, untrained
from tests.server.helpers import EXPERTS, JSON, PROMPTS, asking, listening, make_service, message_of

from l2d.logs.decision import Decision
from l2d.router.router import Router
from l2d.server import boundary
from l2d.server.app import decision_headers
from l2d.server.bodies import OutcomeBody, ReloadBody, RouteBody
from l2d.server.served import ServedRun, ServeSettings, check_settings, example_query
from l2d.utils.errors import ParameterError

ADMIN, URL = {"authorization": "Bearer admin"}, "/v1/chat/completions"


@pytest.fixture
def client(run: Untrained, tmp_path: Path) -> Iterator[TestClient]:
    with asking(make_service(run.path, tmp_path / "log.sqlite", admin_token="admin")) as found:
        yield found


def test_admin_needs_its_token(client: TestClient) -> None:
    for header in (None, "Bearer wrong", "admin", "Bearer ", "Bearer admin2", "Bearer \xfc"):
        headers: Any = {} if header is None else {"authorization": header.encode("latin-1")}
        found = client.post("/admin/reload", json={"run": "x"}, headers=headers)
        assert (found.status_code, "token" in message_of(found)) == (401, True)


def test_without_an_admin_token_nobody_reloads(run: Untrained, tmp_path: Path) -> None:
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer None"}):
            assert client.post("/admin/reload", json={"run": "x"}, headers=headers).status_code == 403


def test_the_api_token(run: Untrained, tmp_path: Path) -> None:
    """All that decides, spends or records needs it; what a monitor asks does not. The admin's is another."""
    with asking(make_service(run.path, tmp_path / "log.sqlite", api_token="sesame", admin_token="admin")) as client:
        for path in ("/v1/route", "/v1/outcomes", URL):
            for headers in ({}, ADMIN):
                assert client.post(path, json={}, headers=headers).status_code == 401
        for path in ("/v1/experts", "/v1/hour"):
            assert client.get(path).status_code == 401
        for scheme in ("Bearer", "bearer"):  # names of schemes have no case
            headers = {"authorization": f"{scheme} sesame"}
            assert client.post("/v1/route", json={"text": "a"}, headers=headers).status_code == 200
        assert client.post("/admin/reload", json={"run": "x"}, headers=headers).status_code == 401
        for path in ("/", "/health", "/ready", "/metrics"):
            found = client.get(path)
            assert (found.status_code, "sesame" in found.text) == (200, False)


def test_bodies_that_are_too_large(run: Untrained, tmp_path: Path) -> None:
    """Also without a content-length. Nothing is kept of them."""
    service = make_service(run.path, tmp_path / "log.sqlite", largest_body=1000)
    with asking(service) as client:
        parts = (b"x" * 100 for _ in range(11))
        for content in (b"x" * 1001, parts):
            found = client.post("/v1/route", content=content, headers=JSON)
            assert (found.status_code, "1,000" in message_of(found)) == (413, True)
        assert client.post("/v1/route", json={"text": "a" * 900}).status_code == 200


def test_a_limit_above_what_is_read_of_a_body_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "DRAINED", 500)
    parts = [b"a" * 100] * 9

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": parts.pop(), "more_body": bool(parts)}

    assert len(asyncio.run(boundary.read_body(receive, 1000))) == 900


def test_a_large_body_on_a_port(run: Untrained, tmp_path: Path) -> None:
    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        found = httpx.post(f"{url}/v1/route", content=b"x" * 20_000_000, headers=JSON, timeout=60)
        assert (found.status_code, "8,000,000" in message_of(found)) == (413, True)
        assert httpx.post(f"{url}/v1/route", json={"text": "a"}).status_code == 200


def test_a_body_that_does_not_come(run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "BODY_SECONDS", 0.05)

    def trickling() -> Iterator[bytes]:
        yield b"{"
        time.sleep(0.3)
        yield b"}"

    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        assert httpx.post(f"{url}/v1/route", content=trickling(), headers=JSON).status_code == 408


KEYS = st.sampled_from(
    [*RouteBody.model_fields, *OutcomeBody.model_fields, *ReloadBody.model_fields, "outcomes", "model", "role"]
)
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
LEAVES = NUMBERS | st.text(max_size=9) | st.sampled_from(["l2d", "user"])
ANY_JSON = st.recursive(
    LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=4), max_leaves=9
)


@given(path=st.sampled_from(["/v1/route", "/v1/outcomes", URL, "/v1/responses", "/admin/reload"]), body=ANY_JSON)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_no_json_makes_it_fail(client: TestClient, path: str, body: Any) -> None:
    found = client.post(path, json=body, headers=ADMIN)
    assert found.status_code < 500
    if found.status_code != 200:
        message_of(found)


def test_unknown_paths_and_methods(client: TestClient) -> None:
    """They share one label: nobody can fill the metrics with names."""
    for number in range(3):
        assert client.get(f"/nowhere/{number}").status_code == 404
    assert client.get("/v1/route").status_code == 405
    shown = client.get("/metrics").text
    assert 'l2d_requests_total{endpoint="other",status="404"} 3.0' in shown
    assert "nowhere" not in shown


def test_metrics(client: TestClient) -> None:
    """Counts, choices and spend; neither prompts nor ids."""
    found = client.post("/v1/route", json={"inputs": [{"text": prompt} for prompt in PROMPTS[:4]]}).json()["decisions"]
    client.post("/v1/outcomes", json={"decision_id": found[0]["decision_id"], "correct": 0.25})
    client.post("/v1/route", json={"text": 3})
    shown = client.get("/metrics").text
    first = found[0]["expert"]
    number = sum(one["expert"] == first for one in found)
    price = dict(zip(EXPERTS, (0.5, 0.1, 0.3), strict=True))[first]
    lines = dict(line.rsplit(" ", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert lines['l2d_requests_total{endpoint="/v1/route",status="200"}'] == "1.0"
    assert lines['l2d_requests_total{endpoint="/v1/route",status="422"}'] == "1.0"
    assert float(lines[f'l2d_choices_total{{by="router",expert="{first}"}}']) == number
    assert float(lines[f'l2d_spend_total{{expert="{first}"}}']) == pytest.approx(number * price)
    assert (lines["l2d_outcomes_total"], lines["l2d_outcome_cost_total"]) == ("1.0", "0.75")
    assert lines["l2d_batch_queries_sum"] == "4.0"
    assert lines["l2d_far_share"] == "NaN"  # this run says nothing of its training inputs
    assert not any(secret in shown for secret in (PROMPTS[0], found[0]["decision_id"]))


def test_headers_are_ascii() -> None:
    """An expert may have any name."""
    found = decision_headers(Decision("1", "runs/a=1", "", None, "router", None), "modèle (grand)\n", {}, {})
    assert found["x-l2d-expert"] == "mod%C3%A8le (grand)%0A"
    assert found["x-l2d-run"] == "runs/a=1"


def test_the_served_description_names_the_endpoints(client: TestClient) -> None:
    """With the keys of their bodies."""
    found = client.get("/openapi.json").json()
    answers = {"/v1/route", "/v1/outcomes", "/v1/experts", "/v1/models", "/v1/models/{name}", "/v1/chat/completions"}
    answers |= {"/v1/decisions/{id}/answers", "/v1/responses", "/v1/embeddings"}
    assert {*found["paths"]} == {*answers, "/v1/preview", "/v1/hour", "/health", "/ready", "/metrics", "/admin/reload"}
    bodies = found["components"]["schemas"]
    assert {"text", "messages", "features", "image", "inputs", "prices"} < {*bodies["RouteBody"]["properties"]}
    assert {*bodies["OutcomeBody"]["properties"]} == {"decision_id", "expert", "correct", "cost", "price", "latency"}


def test_settings_that_do_not_fit(run: Untrained, tmp_path: Path) -> None:
    router = Router.load(run.path)
    rows = Router.load(untrained(tmp_path).path)
    for settings, asked, key in (
        (ServeSettings(shadow="z"), router, "shadow=z"),
        (ServeSettings(shadow="a", explore=0.1), router, "explore=0.1"),
        (ServeSettings(keep="text"), rows, "keep=text"),
        (ServeSettings(drift_limit=0.5), router, "drift_limit=0.5"),
    ):
        with pytest.raises(ParameterError, match=f"^{key}: "):
            check_settings(settings, asked)
    check_settings(ServeSettings(keep="text"), router)
    for one in (router, rows):
        assert one.route(example_query(one))[0].expert in EXPERTS


def test_variants_are_kept_but_not_for_ever(run: Untrained) -> None:
    served = ServedRun(Router.load(run.path), "run")
    first = served.variant({"a": 0.0, "b": 1.0, "c": 1.0}, None, None, False)
    assert served.variant({"c": 1.0, "b": 1.0, "a": 0.0}, None, None, False) is first
    assert served.variant(None, None, None, True).raw
    assert not served.router.raw
    with pytest.raises(ParameterError, match="raw=True"):
        served.variant(None, 0.4, None, True)
    inside = ServedRun(served.router.within(0.4), "run")
    point: Any = inside.variant([0.3, 0.1, 0.5], None, None, False).operating_point
    assert point == served.variant([0.3, 0.1, 0.5], 0.4, None, False).operating_point
    assert point.budget == 0.4
    with pytest.raises(ParameterError, match="raw=True"):
        inside.variant([0.3, 0.1, 0.5], None, None, True)
    for number in range(70):
        served.variant([0.0, 0.0, number / 100], None, None, False)
    assert served.variant({"a": 0.0, "b": 1.0, "c": 1.0}, None, None, False) is not first
