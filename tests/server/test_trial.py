"""Two routers side by side: who decides, by which propensities, what the test says, and who takes over."""

import shutil
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.logs.postgres import postgres
from tests.router.finished import CELLS, Untrained, untrained
from tests.server.helpers import PROMPTS, asking, guarded, lively_router, make_service, rows

from l2d.core.guard import Guard
from l2d.core.off_policy import Logged, doubly_robust, weights_of
from l2d.logs.operations import Limit
from l2d.router.router import Router
from l2d.server.served import ServedRun
from l2d.server.service import RouterService
from l2d.server.succession import make_trial
from l2d.utils.errors import ParameterError

QUERIES = {"inputs": [{"text": text} for text in PROMPTS]}
ALL_TO_C = Guard(None, 2, 2, 0.0, None)


def on_trial(run: Path, log: Path | str, share: float = 0.3, promotes: bool = False, **settings: Any) -> RouterService:
    """A lively router, and a candidate that sends everything to c."""
    candidate = ServedRun(guarded(Router.load(run), ALL_TO_C), str(run))
    return make_service(
        lively_router(run),
        log,
        trial=lambda known, served: make_trial(known, served, candidate, share, promotes),
        **settings,
    )


def ask(client: Any, times: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [one for _ in range(times) for one in client.post("/v1/route", json={**QUERIES, **more}).json()["decisions"]]


def grade(client: Any, decisions: list[dict[str, Any]], costs: dict[str, float]) -> None:
    told = [{"decision_id": one["decision_id"], "cost": costs[one["expert"]], "price": 0.0} for one in decisions]
    assert not told or client.post("/v1/outcomes", json={"outcomes": told}).status_code == 200


def look(client: Any, service: RouterService) -> dict[str, Any]:
    """What the server says when it has read the log again."""
    assert service.runs.trial is not None
    service.runs.trial.sums._until = 0.0
    client.portal.call(service.runs.judge)
    found: dict[str, Any] = client.get("/v1/experts").json()
    return found


def test_propensities_are_those_of_both(run: Untrained, tmp_path: Path) -> None:
    """share = 0.3, explore = 0.3 of three experts: 0.1 for each, 0.7·0.7 more for the run's choice, 0.3·0.7 for c."""
    with asking(on_trial(run.path, tmp_path / "log.sqlite", explore=0.3)) as client:
        found = ask(client, 20)
        alone = ask(client, prices={"a": 0.1, "b": 0.1, "c": 0.1})
    for one in found:
        own = one["ranking"][0]["expert"]
        assert one["propensity"] == pytest.approx(0.1 + 0.49 * (one["expert"] == own) + 0.21 * (one["expert"] == "c"))
    by = Counter(one["decided_by"] for one in found)
    assert by["candidate"] / by.total() == pytest.approx(0.21, abs=0.05)
    assert by["explore"] / by.total() == pytest.approx(0.3, abs=0.05)
    assert "candidate" not in {one["decided_by"] for one in alone}  # prices of a client's own
    with sqlite3.connect(tmp_path / "log.sqlite") as log:
        assert log.execute("SELECT count(*), max(choice) FROM trials").fetchone() == (len(found), "c")
    log.close()


def test_the_estimate_is_the_doubly_robust_one(run: Untrained, tmp_path: Path) -> None:
    """By core/off_policy.py, on the same decisions, with what both routers expect."""
    service = on_trial(run.path, tmp_path / "log.sqlite", 0.5)
    trial, costs = service.runs.trial, {"a": 0.2, "b": 0.9, "c": 0.5}
    assert trial is not None
    with asking(service) as client:
        found = ask(client, 5)
        grade(client, found, costs)
        said = look(client, service)["candidate"]
    names = list(costs)
    own, other = (router.route(PROMPTS) * 5 for router in (service.runs.current.router, trial.candidate.router))
    pairs = zip(own, other, strict=True)
    expected = torch.tensor([[trial.expected(pair, name) for name in names] for pair in pairs]).double()
    known, chances = torch.full_like(expected, torch.nan), torch.ones_like(expected)
    for row, one in enumerate(found):
        place = names.index(one["expert"])
        known[row, place], chances[row, place] = costs[one["expert"]], one["propensity"]
    robust = doubly_robust(known, Logged(expected, weights_of(~known.isnan(), chances)))
    first, second = (torch.tensor([names.index(one.expert) for one in choices]) for choices in (own, other))
    gain = robust.gather(1, second[:, None]) - robust.gather(1, first[:, None])
    assert said["mean"] == pytest.approx(float(gain.mean()), rel=1e-4)
    assert said["outcomes"] == len(found)
    assert said["low"] < said["mean"] < said["high"]
    assert float(gain.abs().max()) <= trial.bound


@pytest.mark.parametrize(("better", "other"), [("candidate", 1.0), ("current", 0.0)])
def test_it_says_who_is_better(
    run: Untrained, tmp_path: Path, better: str, other: float, capsys: pytest.CaptureFixture[str]
) -> None:
    service = on_trial(run.path, tmp_path / "log.sqlite", 0.5)
    with asking(service) as client:
        assert look(client, service)["candidate"]["better"] is None
        grade(client, ask(client, 30), {"a": other, "b": other, "c": 1 - other})
        said = look(client, service)
        look(client, service)
        shown = client.get("/metrics").text
        by = {one["decided_by"] for one in ask(client, 3)}
    assert said["candidate"]["better"] == better
    assert any(note.startswith("candidate: ") and "better" in note for note in said["policy"])
    assert (
        f'l2d_candidate_difference{{part="mean"}} {2 * other - 1:.1f}' not in shown
    )  # over all queries, not those that differ
    assert 'l2d_candidate_difference{part="high"}' in shown
    assert capsys.readouterr().err.count("candidate: ") == 1  # one line, once
    assert "candidate" in by  # nobody asked for a promotion


def test_promotion_and_restart(run: Untrained, tmp_path: Path) -> None:
    """The candidate serves alone, and the log remembers that."""
    log = tmp_path / "log.sqlite"
    service = on_trial(run.path, log, 0.5, promotes=True)
    with asking(service) as client:
        grade(client, ask(client, 30), {"a": 1.0, "b": 1.0, "c": 0.0})
        said = look(client, service)
        assert (said["run"], "candidate" in said) == (str(run.path), False)
        assert {(one["expert"], one["propensity"]) for one in ask(client)} == {("c", 1.0)}
    again = on_trial(run.path, log, 0.5, promotes=True)
    with asking(again) as client:
        assert client.get("/ready").json()["run"] == str(run.path)
    another = on_trial(run.path, log, 0.4, promotes=True)  # another share is another test
    with asking(another) as client:
        assert client.get("/ready").json()["run"] == "run"


def test_a_reload_after_a_promotion_holds_after_a_restart(run: Untrained, tmp_path: Path) -> None:
    """A server that starts with the old command serves what the others serve, and promotes nothing again."""
    log, later = tmp_path / "log.sqlite", shutil.copytree(run.path, tmp_path / "later")
    service = on_trial(run.path, log, 0.5, promotes=True, admin_token="admin")
    with asking(service) as client:
        grade(client, ask(client, 30), {"a": 1.0, "b": 1.0, "c": 0.0})
        look(client, service)
        headers = {"authorization": "Bearer admin"}
        assert client.post("/admin/reload", json={"run": str(later)}, headers=headers).status_code == 200
    for gone in (False, True):
        if gone:  # it cannot be followed, but the trial is over
            shutil.rmtree(later)
        with asking(on_trial(run.path, log, 0.5, promotes=True)) as client:
            assert client.get("/ready").json()["run"] == ("run" if gone else str(later))
        assert [one["run"] for one in rows(log, "swaps")] == [str(run.path), str(later)]


@pytest.mark.parametrize("again", [False, True])
def test_rolled_back(run: Untrained, again: bool) -> None:
    """In PostgreSQL; also after a restart."""
    with postgres() as server:
        for first in (True, False)[: 1 + again]:
            service = on_trial(run.path, server.url, 0.5, promotes=True)
            with asking(service) as client:
                if first:
                    grade(client, ask(client, 30), {"a": 0.0, "b": 0.0, "c": 1.0})
                    look(client, service)
                said = client.get("/v1/experts").json()
                by = {one["decided_by"] for one in ask(client, 3)}
        assert (said["run"], "candidate" in said) == ("run", False)
        assert "candidate" not in by


def test_a_reload_ends_it(run: Untrained, tmp_path: Path) -> None:
    service = on_trial(run.path, tmp_path / "log.sqlite", admin_token="admin")
    with asking(service) as client:
        headers = {"authorization": "Bearer admin"}
        assert client.post("/admin/reload", json={"run": str(run.path)}, headers=headers).status_code == 200
        assert "candidate" not in client.get("/v1/experts").json()


def test_a_candidate_that_fails_harms_nobody(run: Untrained, tmp_path: Path) -> None:
    service = on_trial(run.path, tmp_path / "log.sqlite", 0.5)
    assert service.runs.trial is not None
    service.runs.trial.candidate.router = replace(service.runs.trial.candidate.router, encoder=None)
    with asking(service) as client:
        assert {(one["decided_by"], one["propensity"]) for one in ask(client)} == {("router", 1.0)}
        assert 'l2d_errors_total{kind="candidate"} 1.0' in client.get("/metrics").text


def test_candidates_that_do_not_fit(run: Untrained, tmp_path: Path) -> None:
    for name in ("d", "rows"):
        (tmp_path / name).mkdir()
    turned = {name.replace("correct_c", "correct_d"): column for name, column in CELLS.items()}
    text = ("dataset.text=prompt", "dataset.features=[]")
    others = untrained(tmp_path / "d", *text, cells=turned).path
    log = tmp_path / "log.sqlite"
    for candidate, share, settings, key in (
        (run.path, 0.0, {}, "share=0.0"),
        (run.path, 1.0, {}, "share=1.0"),
        (others, 0.1, {}, "a, b, d"),
        (untrained(tmp_path / "rows").path, 0.1, {}, "columns"),
        (run.path, 0.1, {"shadow": "a"}, "shadow"),
        (run.path, 0.1, {"capacity": {"a": Limit(1, "day")}}, "capacity"),
    ):
        service = make_service(Router.load(run.path), log, **settings)
        service.log.close()
        with pytest.raises(ParameterError, match=key):
            make_trial(service.settings, service.runs.current, ServedRun(Router.load(candidate), "other"), share)
