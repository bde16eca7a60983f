"""Around the endpoints: tokens, limits, metrics, and the swap to another run."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.router.finished import CELLS, Untrained, untrained
from tests.server.helpers import EXPERTS, PROMPTS, asking, listening, make_service, message_of, text_run

from l2d.core.guard import Guard
from l2d.logs import databases
from l2d.router.router import Router
from l2d.runs.artifact.exported import FILE, read_weights, write_weights
from l2d.server import app
from l2d.server.bodies import OutcomeBody, ReloadBody, RouteBody
from l2d.server.service import ServedRun, ServeSettings, check_settings, warmed_up
from l2d.utils.errors import L2DError, ParameterError

ADMIN = {"authorization": "Bearer admin"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Untrained:
    return text_run(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_run(tmp_path_factory.mktemp("other"), "seed=1").path


@pytest.fixture
def client(run: Untrained, tmp_path: Path) -> Iterator[TestClient]:
    with asking(make_service(run.path, tmp_path / "log.sqlite", admin_token="admin")) as found:
        yield found


def with_guard(run: Path, folder: Path, guard: Guard) -> Path:
    """A copy of a run with another guard."""
    copied = Path(shutil.copytree(run, folder))
    weights, description = read_weights(copied / FILE)
    write_weights(copied / FILE, weights, replace(description, guard=guard))
    return copied


@pytest.mark.parametrize("header", [None, "Bearer wrong", "admin", "Bearer ", "Bearer admin2", "Bearer \xfc"])
def test_admin_needs_its_token(client: TestClient, header: str | None, other: Path) -> None:
    headers = {} if header is None else {"authorization": header.encode("latin-1")}
    found = client.post("/admin/reload", json={"run": str(other)}, headers=headers)  # type: ignore[arg-type]
    assert (found.status_code, "token" in message_of(found)) == (401, True)
    assert client.get("/ready").json()["run"] != str(other)


def test_without_an_admin_token_nobody_reloads(run: Untrained, tmp_path: Path) -> None:
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        for headers in ({}, {"authorization": "Bearer "}, {"authorization": "Bearer None"}):
            assert client.post("/admin/reload", json={"run": "x"}, headers=headers).status_code == 403


def test_the_api_token(run: Untrained, tmp_path: Path) -> None:
    """Of all that decides, spends or records; not of what a monitor asks. The admin's is another."""
    with asking(make_service(run.path, tmp_path / "log.sqlite", api_token="secret", admin_token="admin")) as client:
        for path in ("/v1/route", "/v1/outcomes", "/v1/chat/completions"):
            for headers in ({}, ADMIN):
                assert client.post(path, json={}, headers=headers).status_code == 401
        assert client.get("/v1/experts").status_code == 401
        for scheme in ("Bearer", "bearer"):  # names of schemes have no case
            headers = {"authorization": f"{scheme} secret"}
            assert client.post("/v1/route", json={"text": "a"}, headers=headers).status_code == 200
        assert client.post("/admin/reload", json={"run": "x"}, headers=headers).status_code == 401
        for path in ("/health", "/ready", "/metrics"):
            assert client.get(path).status_code == 200


def test_reload(client: TestClient, run: Untrained, other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From then on the new run decides, and says so."""
    assert client.post("/admin/reload", json={"run": str(other)}, headers=ADMIN).json() == {"run": str(other)}
    assert f"l2d serves {other} now" in capsys.readouterr().err
    found = client.post("/v1/route", json={"text": PROMPTS[0]}).json()
    assert found["run"] == str(other)
    [choice] = Router.load(other).route(PROMPTS[:1])
    [before] = Router.load(run.path).route(PROMPTS[:1])
    costs = {one["expert"]: one["expected_cost"] for one in found["ranking"]}
    assert costs == pytest.approx(choice.expected_costs, rel=1e-5)
    assert costs != pytest.approx(before.expected_costs, rel=1e-5)
    shown = client.get("/metrics").text
    assert f'l2d_run{{run="{other}"}} 1.0' in shown
    assert f'l2d_run{{run="{run.path}"}} 0.0' in shown


def test_a_reload_that_is_refused(client: TestClient, run: Untrained, other: Path, tmp_path: Path) -> None:
    """The old run goes on."""
    for name in ("d", "rows", "empty"):
        (tmp_path / name).mkdir()
    cells = {name.replace("correct_c", "correct_d"): column for name, column in CELLS.items()}
    cases = {
        "experts are a, b, d": untrained(
            tmp_path / "d", "dataset.text=prompt", "dataset.features=[]", cells=cells
        ).path,
        "it sees the columns": untrained(tmp_path / "rows").path,
        "every query goes to c": with_guard(other, tmp_path / "guard", Guard(None, 2, 2, 0.0, None)),
    }
    for said, folder in cases.items():
        found = client.post("/admin/reload", json={"run": str(folder)}, headers=ADMIN)
        assert (found.status_code, said in message_of(found)) == (409, True), found.text
    for body, said in (
        ({"run": str(tmp_path / "none")}, "no such folder"),
        ({"run": str(tmp_path / "empty")}, "not a run's folder"),
        ({"run": 3}, "run: must be a string"),
        ({}, "run: is missing"),
        ({"run": "x", "force": "yes"}, "force"),
    ):
        found = client.post("/admin/reload", json=body, headers=ADMIN)
        assert (found.status_code, said in message_of(found)) == (422, True), found.text
    assert client.get("/ready").json()["run"] == str(run.path)
    forced = client.post(
        "/admin/reload", json={"run": str(cases["every query goes to c"]), "force": True}, headers=ADMIN
    )
    assert forced.status_code == 200
    assert client.post("/v1/route", json={"text": PROMPTS[0]}).json()["expert"] == "c"


def test_a_reload_to_other_money_is_refused(run: Untrained, tmp_path: Path) -> None:
    """Else the log would add dollars and units of one error."""
    (tmp_path / "dollars").mkdir()
    dollars = text_run(tmp_path / "dollars", "cost.error_price=0.5").path
    with asking(make_service(run.path, tmp_path / "log.sqlite", admin_token="admin")) as client:
        for force in (False, True):
            found = client.post("/admin/reload", json={"run": str(dollars), "force": force}, headers=ADMIN)
            assert (found.status_code, "its prices are in dollars" in message_of(found)) == (409, True), found.text


def test_a_run_without_prices_fits_any_money(tmp_path: Path) -> None:
    for name in ("errors", "dollars"):
        (tmp_path / name).mkdir()
    errors = untrained(tmp_path / "errors", "dataset.text=prompt", "dataset.features=[]", "cost=error").path
    dollars = text_run(tmp_path / "dollars", "cost.error_price=0.5").path
    with asking(make_service(errors, tmp_path / "log.sqlite", admin_token="admin")) as client:
        found = client.post("/admin/reload", json={"run": str(dollars), "force": True}, headers=ADMIN)
        assert found.status_code == 200, found.text


def test_other_experts_are_refused_even_by_force_if_there_are_upstreams(run: Untrained, tmp_path: Path) -> None:
    cells = {name.replace("correct_c", "correct_d"): column for name, column in CELLS.items()}
    folder = untrained(tmp_path, "dataset.text=prompt", "dataset.features=[]", cells=cells).path
    for upstreams, status in (({"a": None}, 409), ({}, 200)):
        service = make_service(run.path, tmp_path / "log.sqlite", admin_token="admin", upstreams=upstreams)
        with asking(service) as client:
            body = {"run": str(folder), "force": True}
            assert client.post("/admin/reload", json=body, headers=ADMIN).status_code == status


@pytest.mark.slow
def test_a_reload_drops_no_request(run: Untrained, other: Path, tmp_path: Path) -> None:
    """Three clients ask while the run is swapped four times: all are answered, by one of the two runs."""
    with listening(make_service(run.path, tmp_path / "log.sqlite", admin_token="admin")) as url:

        def ask(number: int) -> str:
            with httpx.Client(base_url=url) as client:
                names = {client.post("/v1/route", json={"text": PROMPTS[number]}).json()["run"] for _ in range(12)}
            return " ".join(sorted(names))

        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask, number) for number in range(3)]
            for number in range(4):
                body = {"run": str((other, run.path)[number % 2])}
                assert httpx.post(f"{url}/admin/reload", json=body, headers=ADMIN).status_code == 200
            found = " ".join(one.result() for one in asked)
    assert {*found.split()} <= {str(run.path), str(other)}


def test_bodies_that_are_too_large(run: Untrained, tmp_path: Path) -> None:
    """Also without a content-length. Nothing is kept of them."""
    service = make_service(run.path, tmp_path / "log.sqlite", largest_body=1000)
    with asking(service) as client:
        parts = (b"x" * 100 for _ in range(11))
        for content in (b"x" * 1001, parts):
            found = client.post("/v1/route", content=content)
            assert (found.status_code, "1,000 bytes" in message_of(found)) == (413, True)
        assert client.post("/v1/route", json={"text": "a" * 900}).status_code == 200


@pytest.mark.slow
def test_a_body_of_100_mb(run: Untrained, tmp_path: Path) -> None:
    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        found = httpx.post(f"{url}/v1/route", content=b"x" * 100_000_000, timeout=60)
        assert (found.status_code, message_of(found)) == (413, "the body has more than 8,000,000 bytes")
        assert httpx.post(f"{url}/v1/route", json={"text": "a"}).status_code == 200


def test_a_body_that_does_not_come(run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS", 0.05)

    def trickling() -> Iterator[bytes]:
        yield b"{"
        time.sleep(0.3)
        yield b"}"

    with listening(make_service(run.path, tmp_path / "log.sqlite")) as url:
        assert httpx.post(f"{url}/v1/route", content=trickling()).status_code == 408


KEYS = st.sampled_from(
    [*RouteBody.model_fields, *OutcomeBody.model_fields, *ReloadBody.model_fields, "outcomes", "model", "role"]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
    | st.sampled_from(["l2d", "user"])
)
ANY_JSON = st.recursive(
    LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=4), max_leaves=9
)


@given(path=st.sampled_from(["/v1/route", "/v1/outcomes", "/v1/chat/completions", "/admin/reload"]), body=ANY_JSON)
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
def test_no_json_makes_it_fail(client: TestClient, path: str, body: Any) -> None:
    found = client.post(path, json=body, headers=ADMIN)
    assert found.status_code < 500
    if found.status_code != 200:
        message_of(found)


def test_a_log_that_cannot_be_written_keeps_the_old_run(
    run: Untrained, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload is recorded before it is done, since training must know what the new run saw. And no server starts then."""
    monkeypatch.setattr(databases, "WAIT", 0.05)
    log = tmp_path / "log.sqlite"
    with asking(make_service(run.path, log, admin_token="admin")) as client:
        blocking = sqlite3.connect(log, isolation_level=None)
        blocking.execute("BEGIN IMMEDIATE")
        found = client.post("/admin/reload", json={"run": str(other)}, headers=ADMIN)
        assert (found.status_code, "log" in message_of(found)) == (503, True)
        with pytest.raises(L2DError, match=r"log.sqlite: cannot be used as a log \(database is locked\)"):
            make_service(run.path, log)
        blocking.execute("COMMIT")
        assert client.get("/ready").json()["run"] == str(run.path)
        assert client.post("/admin/reload", json={"run": str(other)}, headers=ADMIN).status_code == 200
        assert client.get("/ready").json()["run"] == str(other)
        runs = dict(blocking.execute("SELECT name, about FROM runs").fetchall())
        blocking.close()
    assert {*runs} == {str(run.path), str(other)}
    assert json.loads(runs[str(other)])["seen"]["text"] == "prompt"


def test_unknown_paths_and_methods(client: TestClient) -> None:
    """They share one label: nobody can fill the metrics with names."""
    for number in range(3):
        assert client.get(f"/nowhere/{number}").status_code == 404
    assert client.get("/v1/route").status_code == 405
    shown = client.get("/metrics").text
    assert 'l2d_requests_total{endpoint="other",status="404"} 3.0' in shown
    assert "nowhere" not in shown


def test_experts(client: TestClient, run: Untrained) -> None:
    found = client.get("/v1/experts").json()
    assert [one["name"] for one in found["experts"]] == list(EXPERTS)
    assert [one["price"] for one in found["experts"]] == pytest.approx([0.5, 0.1, 0.3])
    assert (found["run"], found["sees"], found["guard"]) == (str(run.path), "the text prompt", None)


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
    choice: Any = type("Choice", (), {"expected_costs": None})
    drawn: Any = type("Drawn", (), {"by": "router"})
    decision: Any = type("Decision", (), {"id": "1", "choice": choice, "run": "runs/a=1", "drawn": drawn})
    found = app.decision_headers(decision, "modèle (grand)\n", {})
    assert found["x-l2d-expert"] == "mod%C3%A8le (grand)%0A"
    assert found["x-l2d-run"] == "runs/a=1"


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
        assert warmed_up(one) is one


def test_variants_are_kept_but_not_for_ever(run: Untrained) -> None:
    served = ServedRun(Router.load(run.path), "run")
    first = served.variant({"a": 0.0, "b": 1.0, "c": 1.0}, None, None, False)
    assert served.variant({"c": 1.0, "b": 1.0, "a": 0.0}, None, None, False) is first
    assert served.variant(None, None, None, True).raw
    assert not served.router.raw
    with pytest.raises(ParameterError, match=r"^raw=True: a budget needs the guard"):
        served.variant(None, 0.4, None, True)
    inside = ServedRun(served.router.within(0.4), "run")
    point = inside.variant([0.3, 0.1, 0.5], None, None, False).operating_point
    assert point == served.variant([0.3, 0.1, 0.5], 0.4, None, False).operating_point
    assert point is not None
    with pytest.raises(ParameterError, match=r"^raw=True: a budget needs the guard"):
        inside.variant([0.3, 0.1, 0.5], None, None, True)
    for number in range(70):
        served.variant([0.0, 0.0, number / 100], None, None, False)
    assert served.variant({"a": 0.0, "b": 1.0, "c": 1.0}, None, None, False) is not first
