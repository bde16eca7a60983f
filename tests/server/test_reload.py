"""The swap to another run: who may ask for it, what is refused, who follows, and what requests that have begun are priced by."""

import asyncio
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from tests.logs.postgres import postgres
from tests.router.finished import CELLS, PRICED, Untrained, query_rows, untrained
from tests.server import helpers
from tests.server.helpers import CHAT, EXPERTS, PROMPTS, asking, listening, make_service, message_of

from l2d.core.guard import Guard
from l2d.logs import databases
from l2d.logs.operations import add_swap
from l2d.router.router import Router
from l2d.runs.artifact.drift import InputSummary
from l2d.runs.artifact.exported import FILE, read_weights, write_weights
from l2d.server.served import ServedRun
from l2d.server.upstreams import Upstream
from l2d.utils.errors import L2DError

ADMIN = {"authorization": "Bearer admin"}
TEXT = ("dataset.text=prompt", "dataset.features=[]")
OTHER_EXPERTS = {name.replace("correct_c", "correct_d"): column for name, column in CELLS.items()}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return helpers.text_run(tmp_path_factory.mktemp("other"), "seed=1").path


@pytest.fixture
def client(run: Untrained, tmp_path: Path) -> Iterator[TestClient]:
    with asking(make_service(run.path, tmp_path / "log.sqlite", admin_token="admin")) as found:
        yield found


@pytest.fixture(params=["file", "url"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    if request.param == "file":
        yield tmp_path / "log.sqlite"
        return
    with postgres() as server:
        yield server.url


def reload(client: TestClient, run: object, **body: Any) -> httpx.Response:
    return client.post("/admin/reload", json={"run": str(run), **body}, headers=ADMIN)  # type: ignore[return-value]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_the_new_run_decides(client: TestClient, run: Untrained, other: Path) -> None:
    assert reload(client, other).json() == {"run": str(other)}
    found = client.post("/v1/route", json={"text": PROMPTS[0]}).json()
    assert found["run"] == str(other)
    [choice], [before] = (Router.load(folder).route(PROMPTS[:1]) for folder in (other, run.path))
    costs = {one["expert"]: one["expected_cost"] for one in found["ranking"]}
    assert costs == pytest.approx(choice.expected_costs, rel=1e-5)
    assert costs != pytest.approx(before.expected_costs, rel=1e-5)
    shown = client.get("/metrics").text
    assert f'l2d_run{{run="{other}"}} 1.0' in shown
    assert f'l2d_run{{run="{run.path}"}} 0.0' in shown


def test_runs_that_do_not_fit(client: TestClient, run: Untrained, other: Path, tmp_path: Path) -> None:
    """The old run goes on. Force swaps to those that can be served."""
    for name in ("d", "rows", "empty", "dollars"):
        (tmp_path / name).mkdir()
    guard = Path(shutil.copytree(other, tmp_path / "guard"))
    weights, description = read_weights(guard / FILE)
    write_weights(guard / FILE, weights, replace(description, guard=Guard(None, 2, 2, 0.0, None)))
    turned = Path(shutil.copytree(other, tmp_path / "turned"))
    write_weights(turned / FILE, weights, replace(description, experts=description.experts[::-1]))
    dollars = helpers.text_run(tmp_path / "dollars", "cost.error_price=0.5").path
    for folder, status, said in (
        (untrained(tmp_path / "d", *TEXT, cells=OTHER_EXPERTS).path, 409, "a, b, d"),
        (untrained(tmp_path / "rows").path, 409, "columns"),
        (guard, 409, "guard"),
        (turned, 409, "c, b, a"),
        (dollars, 409, "dollars"),
        (tmp_path / "none", 422, "none"),
        (tmp_path / "empty", 422, "empty"),
    ):
        found = reload(client, folder)
        assert (found.status_code, said in message_of(found)) == (status, True), found.text
    for body in ({"run": 3}, {}, {"run": "x", "force": "yes"}):
        assert client.post("/admin/reload", json=body, headers=ADMIN).status_code == 422
    assert reload(client, dollars, force=True).status_code == 409  # the log would add dollars and units of one error
    assert client.get("/ready").json()["run"] == str(run.path)
    assert reload(client, guard, force=True).status_code == 200
    assert client.post("/v1/route", json={"text": PROMPTS[0]}).json()["expert"] == "c"


@pytest.mark.parametrize(("upstreams", "status"), [({"a": []}, 409), ({}, 200)])
def test_upstreams_fit_no_other_experts_even_by_force(
    run: Untrained, tmp_path: Path, upstreams: Any, status: int
) -> None:
    folder = untrained(tmp_path, *TEXT, cells=OTHER_EXPERTS).path
    service = make_service(run.path, tmp_path / "log.sqlite", admin_token="admin", upstreams=upstreams)
    with asking(service) as client:
        assert reload(client, folder, force=True).status_code == status


@pytest.mark.slow
def test_no_request_is_dropped(run: Untrained, other: Path, tmp_path: Path) -> None:
    """Three clients ask while the run is swapped four times: all are answered, by one of the two runs."""
    with listening(make_service(run.path, tmp_path / "log.sqlite", admin_token="admin")) as url:

        def ask(number: int) -> set[str]:
            with httpx.Client(base_url=url) as client:
                return {client.post("/v1/route", json={"text": PROMPTS[number]}).json()["run"] for _ in range(12)}

        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask, number) for number in range(3)]
            for folder in (other, run.path, other, run.path):
                found = httpx.post(f"{url}/admin/reload", json={"run": str(folder)}, headers=ADMIN)
                assert found.status_code == 200
            assert set[str]().union(*(one.result() for one in asked)) <= {str(run.path), str(other)}


def test_a_log_that_cannot_be_written_keeps_the_old_run(
    run: Untrained, other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload is recorded before it is done, since training must know the new run's inputs. And no server starts then."""
    monkeypatch.setattr(databases, "WAIT", 0.05)
    log = tmp_path / "log.sqlite"
    with asking(make_service(run.path, log, admin_token="admin")) as client:
        blocking = sqlite3.connect(log, isolation_level=None)
        blocking.execute("BEGIN IMMEDIATE")
        assert reload(client, other).status_code == 503
        with pytest.raises(L2DError, match=r"log\.sqlite"):
            make_service(run.path, log)
        blocking.execute("COMMIT")
        assert client.get("/ready").json()["run"] == str(run.path)
        assert reload(client, other).status_code == 200
        assert client.get("/ready").json()["run"] == str(other)
        runs = dict(blocking.execute("SELECT name, about FROM runs").fetchall())
        blocking.close()
    assert {*runs} == {str(run.path), str(other)}
    assert json.loads(runs[str(other)])["seen"]["text"] == "prompt"


def test_other_servers_follow(
    address: Path | str, run: Untrained, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that began before it, and one that replaces one of them; not one that begins later."""
    monkeypatch.setattr("l2d.server.service.FOLLOW", 0.02)
    reloads, follows = (make_service(run.path, address, admin_token="admin") for _ in range(2))
    began = follows.runs.swaps
    with asking(reloads) as first, asking(follows) as second:
        assert reload(first, other).status_code == 200
        wait_for(lambda: follows.runs.current.name == str(other))
        assert second.post("/v1/route", json={"text": PROMPTS[0]}).json()["run"] == str(other)
    replaces, later = make_service(run.path, address, swaps=began), make_service(run.path, address)
    for service, name in ((replaces, other), (later, run.path)):
        asyncio.run(service.runs.follow())
        assert service.runs.current.name == str(name)
        service.log.close()


def test_a_reload_that_cannot_be_followed(
    run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes on with the run that it has, logs that, and tries again."""
    monkeypatch.setattr("l2d.server.service.FOLLOW", 0.02)
    service = make_service(run.path, tmp_path / "log.sqlite")
    with asking(service) as client:
        service.log.do(add_swap, str(tmp_path / "gone")).result()
        wait_for(lambda: caplog.text.count(str(tmp_path / "gone")) >= 2)
        assert client.post("/v1/route", json={"text": PROMPTS[0]}).json()["run"] == str(run.path)
        assert 'l2d_errors_total{kind="follow"}' in client.get("/metrics").text


def test_a_run_that_does_not_fit_is_not_followed(run: Untrained, tmp_path: Path) -> None:
    """It was reloaded by force on a server with other settings."""
    rows = untrained(tmp_path, "dataset.features=[x]", *PRICED, "method=cost_regression").path
    service = make_service(run.path, tmp_path / "log.sqlite", keep="text")
    service.log.do(add_swap, str(rows)).result()
    with pytest.raises(L2DError, match="keep=text"):
        asyncio.run(service.runs.follow())
    asyncio.run(service.runs.follow())  # once is enough
    assert service.runs.current.name == str(run.path)
    service.log.close()


def test_drift_is_forgotten(tmp_path: Path) -> None:
    """By hand: 200 far inputs are beyond the limit, so b answers. The new run knows none of them, and the router decides again."""
    found = untrained(tmp_path)
    router = Router.load(found.path)
    router = helpers.guarded(router, replace(router.description.guard, best=1))
    router = replace(router, training_inputs=InputSummary.of(found.splits.train.inputs))
    service = make_service(router, tmp_path / "log.sqlite", drift_limit=0.5, admin_token="admin")
    service.runs.load = lambda _: ServedRun(router, "new")
    far = {"inputs": [{"features": {"x": 1e4, "y": 0, "flag": 0}}] * 200}
    near = {"features": query_rows("x", "y", "flag")[0]}
    with asking(service) as client:
        assert {one["decided_by"] for one in client.post("/v1/route", json=far).json()["decisions"]} == {"drift"}
        assert client.post("/v1/route", json=near).json()["decided_by"] == "drift"
        assert reload(client, "new").status_code == 200
        after = client.post("/v1/route", json=near).json()
        assert (after["decided_by"], after["run"]) == ("router", "new")
        assert client.get("/v1/experts").json()["policy"] == []


@pytest.mark.parametrize(("fails", "stream"), [(False, True), (True, False)])
def test_an_answer_has_the_price_of_the_run_that_decided(
    run: Untrained, tmp_path: Path, servers: Any, monkeypatch: pytest.MonkeyPatch, fails: bool, stream: bool
) -> None:
    """The run is swapped for one with ten times its prices, after the decision and before the answer. Its usage has no price, so
    the run's counts: that of the chosen expert or, if it fails, of the next one."""
    router = Router.load(run.path)
    prices = dict(zip(EXPERTS, (0.5, 0.1, 0.3), strict=True))
    dear = router.at({name: 10 * price for name, price in prices.items()})
    chosen, second, _ = router.route(PROMPTS[:1])[0].ranking
    answers = second if fails else chosen
    servers[chosen].behaviour = "500" if fails else "answer"
    monkeypatch.setattr(Upstream, "price_of", lambda *_: None)
    service = make_service(router, tmp_path / "log.sqlite", upstreams=servers)
    decide = service.decide_chat

    async def swapped(*arguments: Any) -> Any:
        decision = await decide(*arguments)
        service.runs.swap_to(ServedRun(dear, "dear"))
        return decision

    monkeypatch.setattr(service, "decide_chat", swapped)
    with asking(service) as client:
        found = client.post("/v1/chat/completions", json={**CHAT, "stream": stream})
        assert (found.headers["x-l2d-run"], found.headers["x-l2d-expert"]) == ("run", answers)
        assert f'l2d_spend_total{{expert="{answers}"}} {prices[answers]}' in client.get("/metrics").text
    [row] = helpers.rows(tmp_path / "log.sqlite")
    assert (row["price"], row["run"]) == (pytest.approx(prices[answers]), "run")
