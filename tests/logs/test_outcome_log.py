"""The log: what is acknowledged is on disk, once; and its long form."""

import asyncio
import csv
import sqlite3
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from l2d.logs.operations import add_answer, add_decisions, add_outcomes, last_swap
from l2d.router.trained import inputs_of

pytest.importorskip("fastapi")

from starlette.testclient import TestClient
from tests.router.finished import Untrained
from tests.server.helpers import PROMPTS, asking, make_service, message_of, rows

from l2d.commands import log as log_command
from l2d.logs import databases
from l2d.logs.databases import open_database
from l2d.logs.decision import Decision, LogUnavailable, Refused, ReportedOutcome, new_decision_id
from l2d.logs.outcome_log import OutcomeLog
from l2d.router.router import Router
from l2d.utils.errors import L2DError


def decided(id: str, expert: str = "a", **other: Any) -> Decision:
    known = {"run": "r", "router_choice": "a", "decided_by": "router", "propensity": 1.0}
    return Decision(id, expert=expert, **{**known, **other})


def route(client: TestClient, **body: Any) -> str:
    return str(client.post("/v1/route", json={"text": PROMPTS[0], **body}).json()["decision_id"])


def test_outcomes_are_recorded_once(run: Untrained, tmp_path: Path) -> None:
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        first, second = route(client), route(client)
        outcome = {"decision_id": first, "correct": True, "price": 0.2, "latency": 1.5}
        assert client.post("/v1/outcomes", json=outcome).json() == {"recorded": 1, "known": 0}
        assert client.post("/v1/outcomes", json=outcome).json() == {"recorded": 0, "known": 1}
        both = {"outcomes": [outcome, {"decision_id": second, "cost": 0.25}, {"decision_id": second, "cost": 0.25}]}
        assert client.post("/v1/outcomes", json=both).json() == {"recorded": 1, "known": 2}
        shown = client.get("/metrics").text  # each once: 0 for the right answer, and 0.25
        assert "l2d_outcomes_total 2.0" in shown
        assert "l2d_outcome_cost_total 0.25" in shown
    found = {row["decision_id"]: row for row in rows(tmp_path / "log.sqlite", "outcomes")}
    assert (found[first]["correct"], found[first]["price"], found[first]["latency"]) == (1.0, 0.2, 1.5)
    assert (found[second]["correct"], found[second]["loss"]) == (None, 0.25)


def test_refused_outcomes_leave_nothing(run: Untrained, tmp_path: Path) -> None:
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        known, new = route(client), route(client)
        client.post("/v1/outcomes", json={"decision_id": known, "correct": True})
        for outcome, status, said in (
            ({"decision_id": "none", "correct": True}, 404, "decision_id=none"),
            ({"correct": False}, 409, "decision_id="),
            ({"correct": True, "cost": 0.5}, 422, "correct, cost"),
            ({}, 422, "correct, cost"),
            ({"correct": 2}, 422, "correct"),
            ({"cost": -1}, 422, "cost"),
            ({"correct": True, "decision_id": "a\0b"}, 422, "decision_id"),
            ({"correct": True, "reward": 3}, 422, "reward"),
        ):
            bad = {"decision_id": known, **outcome}
            both = {"outcomes": [{"decision_id": new, "correct": True}, bad]}
            for body in (both, bad):
                found = client.post("/v1/outcomes", json=body)
                assert (found.status_code, said in message_of(found)) == (status, True), found.text
    assert [row["decision_id"] for row in rows(tmp_path / "log.sqlite", "outcomes")] == [known]


def test_an_answer_comes_after_the_commit(run: Untrained, tmp_path: Path) -> None:
    file = tmp_path / "log.sqlite"
    with asking(make_service(run.path, file)) as client:
        for number in range(1, 4):
            id = route(client)
            assert len(rows(file, "decisions")) == number
            client.post("/v1/outcomes", json={"decision_id": id, "correct": False})
            assert len(rows(file, "outcomes")) == number
    database = open_database(file)
    assert database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert database.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL
    database.close()


@pytest.mark.parametrize("kind", [sqlite3.OperationalError, RuntimeError])
def test_nobody_is_told_of_success_if_the_commit_fails(
    kind: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = OutcomeLog(tmp_path / "log.sqlite")

    def full() -> None:
        raise kind("database or disk is full")

    with monkeypatch.context() as failing:
        failing.setattr(log._database, "commit", full)
        with pytest.raises(LogUnavailable, match="full"):
            log.do(add_decisions, [decided("lost")]).result(2)
    log.do(add_decisions, [decided("kept")]).result(2)
    log.close()
    assert [row["id"] for row in rows(tmp_path / "log.sqlite", "decisions")] == ["kept"]


def test_an_answer_changes_only_what_is_known_of_it(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "log.sqlite")
    log.do(add_decisions, [decided("0", price=0.5)]).result(2)
    found = []
    for answer in (("b", 0.25, None), (None, None, 2.0), (None, 0.125, None)):
        log.do(add_answer, "0", *answer).result(2)
        [row] = rows(tmp_path / "log.sqlite", "decisions")
        found.append((row["served"], row["price"], row["latency"]))
    assert found == [("b", 0.25, None), ("b", 0.25, 2.0), ("b", 0.125, 2.0)]
    log.close()


def test_operations_that_wait_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = OutcomeLog(tmp_path / "log.sqlite")
    commits: list[int] = []
    commit = log._commit

    def counted(batch: Any) -> None:
        commits.append(len(batch))
        commit(batch)

    monkeypatch.setattr(log, "_commit", counted)
    blocking = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
    blocking.execute("BEGIN IMMEDIATE")
    first = log.do(add_decisions, [decided("0")])
    time.sleep(0.05)  # the thread waits for the lock
    others = [log.do(add_decisions, [decided(str(number))]) for number in range(1, 6)]
    known, unknown = (log.do(add_outcomes, [ReportedOutcome(id, 1.0, None)]) for id in ("3", "none"))
    assert not any(one.done() for one in (first, *others))
    blocking.execute("COMMIT")
    blocking.close()
    for one in (first, *others):
        one.result(2)
    assert known.result(2) == [ReportedOutcome("3", 1.0, None)]
    with pytest.raises(Refused, match="none"):
        unknown.result(2)
    log.close()
    assert commits == [1, 7]
    assert [row["id"] for row in rows(tmp_path / "log.sqlite", "decisions")] == [str(number) for number in range(6)]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Our own messages to the operator; other libraries may log too."""
    return [record.getMessage() for record in caplog.records if record.name == "l2d.serve"]


def test_a_locked_database_is_answered_with_503(
    run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is recorded; when it is free again, all goes on. The operator hears of both, once."""
    monkeypatch.setattr(databases, "WAIT", 0.05)
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        id = route(client)
        assert client.get("/ready").status_code == 200
        blocking = sqlite3.connect(tmp_path / "log.sqlite", isolation_level=None)
        blocking.execute("BEGIN IMMEDIATE")
        for method, path, body in (
            ("POST", "/v1/route", {"text": "a"}),
            ("POST", "/v1/outcomes", {"decision_id": id, "correct": True}),
            ("GET", "/ready", None),
        ):
            found = client.request(method, path, json=body)
            assert (found.status_code, found.headers["retry-after"]) == (503, "1")
            assert "log" in message_of(found)
        assert client.get("/health").status_code == 200
        blocking.execute("COMMIT")
        blocking.close()
        assert client.post("/v1/outcomes", json={"decision_id": id, "correct": True}).json()["recorded"] == 1
        route(client)
        assert 'l2d_errors_total{kind="log"} 3.0' in client.get("/metrics").text
    assert len(rows(tmp_path / "log.sqlite", "decisions")) == 2
    locked, free = told(caplog)
    assert "locked" in locked
    assert "again" in free
    assert (tmp_path / "log.sqlite").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_answered_with_503(run: Untrained, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The operator hears of it once. SQLite says the same when its own limit of pages is reached. What was acknowledged before stays."""
    service = make_service(run.path, tmp_path / "log.sqlite")
    database = service.log._database
    with asking(service) as client:
        acknowledged = [route(client)]
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages + 4}")
        while (found := client.post("/v1/route", json={"text": PROMPTS[0]})).status_code == 200:
            acknowledged.append(found.json()["decision_id"])
        assert found.status_code == 503
        service.log.do(last_swap).result()  # it can be read
        assert client.post("/v1/route", json={"text": PROMPTS[0]}).status_code == 503
        assert len(told(caplog)) == 1
        assert [row["id"] for row in rows(tmp_path / "log.sqlite", "decisions")] == acknowledged
        database.execute("PRAGMA max_page_count = 1000000")
        acknowledged.append(route(client))
    assert [row["id"] for row in rows(tmp_path / "log.sqlite", "decisions")] == acknowledged


def test_a_clock_that_jumps(run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back by a day: ids stay different, and the log keeps the order of arrival."""
    clock = iter([2e9, 2e9 - 86400, 2e9 - 86400] * 9)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    with asking(make_service(run.path, tmp_path / "log.sqlite")) as client:
        ids = [route(client) for _ in range(6)]
    assert len({*ids}) == 6
    assert [row["id"] for row in rows(tmp_path / "log.sqlite", "decisions")] == ids
    monkeypatch.undo()  # nor can they be guessed
    ids = [new_decision_id() for _ in range(1000)]
    assert ({len(id) for id in ids}, len({id[12:] for id in ids})) == ({32}, 1000)


@pytest.mark.parametrize(("keep", "columns"), [("text", ("text",)), ("features", ("features",)), ("none", ())])
def test_what_is_kept(run: Untrained, tmp_path: Path, keep: str, columns: tuple[str, ...]) -> None:
    with asking(make_service(run.path, tmp_path / "log.sqlite", keep=keep)) as client:
        route(client)
    [row] = rows(tmp_path / "log.sqlite", "decisions")
    assert {name for name in ("text", "features") if row[name] is not None} == {*columns}
    if keep == "text":
        assert row["text"] == PROMPTS[0]
        with asking(make_service(run.path, tmp_path / "log.sqlite", keep=keep)) as client:
            assert client.post("/v1/route", json={"features": {"prompt": PROMPTS[1]}}).status_code == 200
            assert client.post("/v1/route", json={"text": "a\0b"}).status_code == 200
        texts = [row["text"] for row in rows(tmp_path / "log.sqlite", "decisions")]
        assert texts[1:] == [PROMPTS[1], "a\N{REPLACEMENT CHARACTER}b"]  # no database refuses that
    if keep == "features":
        expected = inputs_of(Router.load(run.path), PROMPTS[:1])[0].numpy()
        assert (np.frombuffer(row["features"], "<f4") == expected).all()
    content = b"".join(file.read_bytes() for file in tmp_path.glob("log.sqlite*"))
    assert (PROMPTS[0].encode() in content) == (keep == "text")


def export(*arguments: object) -> None:
    log_command.main(["export", *map(str, arguments)])


def test_the_long_form(run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each decision with an outcome. What the outcome says of price and latency counts more than what the log knew."""
    log, out = tmp_path / "log.sqlite", tmp_path / "log.csv"
    with asking(make_service(run.path, log, explore=0.5, keep="text")) as client:
        answers = [client.post("/v1/route", json={"text": prompt}).json() for prompt in PROMPTS[:3]]
        ids = [answer["decision_id"] for answer in answers]
        client.post("/v1/outcomes", json={"decision_id": ids[0], "correct": True})
        client.post("/v1/outcomes", json={"decision_id": ids[2], "correct": 0.5, "price": 0.7, "latency": 2.0})
    export(log, "--out", out)
    with out.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    columns = ["id", "prompt", "expert", "router_choice", "correct", "price", "latency", "propensity", "time"]
    assert list(found[0]) == columns
    prices = dict(zip("abc", (0.5, 0.1, 0.3), strict=True))
    for row, place in zip(found, (0, 2), strict=True):
        answer = answers[place]
        assert (row["id"], row["prompt"], row["expert"]) == (ids[place], PROMPTS[place], answer["expert"])
        assert float(row["propensity"]) == pytest.approx(answer["propensity"])
        assert abs(float(row["time"]) - time.time()) < 60
    assert float(found[0]["price"]) == pytest.approx(prices[found[0]["expert"]])
    assert [found[0]["correct"], found[0]["latency"]] == ["1", ""]
    assert [float(found[1][name]) for name in ("correct", "price", "latency")] == [0.5, 0.7, 2.0]
    assert "2 rows" in capsys.readouterr().out


def test_the_long_form_with_features_and_losses(run: Untrained, tmp_path: Path) -> None:
    log, out = tmp_path / "log.sqlite", tmp_path / "log.parquet"
    with asking(make_service(run.path, log)) as client:
        ids = [client.post("/v1/route", json={"text": prompt}).json()["decision_id"] for prompt in PROMPTS[:2]]
        client.post("/v1/outcomes", json={"decision_id": ids[0], "correct": 1})
        client.post("/v1/outcomes", json={"decision_id": ids[1], "cost": 0.25})
    export(log, "--out", out)
    table = pq.read_table(out).to_pydict()
    expected = inputs_of(Router.load(run.path), PROMPTS[:2]).numpy()
    width = expected.shape[1]
    assert list(table)[1 : width + 1] == [f"prompt_{place}" for place in range(1, width + 1)]
    assert (expected == np.array([table[f"prompt_{place}"] for place in range(1, width + 1)], dtype=np.float32).T).all()
    assert table["loss"] == [0.0, 0.25]
    assert "correct" not in table


def test_rows_that_no_policy_chose_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A client's own choice, a conversation's later turn, and an expert in place of one that failed."""
    file, out = tmp_path / "log.sqlite", tmp_path / "log.csv"
    log = OutcomeLog(file)
    asked = decided("2", router_choice=None, decided_by="client", propensity=None)
    log.do(add_decisions, [decided("1"), asked, decided("3", decided_by="session", propensity=None), decided("4")])
    log.do(add_answer, "4", "b", 0.3, 1.0)
    log.do(add_outcomes, [ReportedOutcome(id, 1.0, None) for id in "1234"]).result()
    log.close()
    export(file, "--out", out)
    assert [line.split(",")[0].strip('"') for line in out.read_text().splitlines()[1:]] == ["1"]
    said = capsys.readouterr().err
    assert "3 rows" in said
    assert "--keep none" in said
    export(file, "--out", out, "--all")
    with out.open(newline="") as lines:
        found = list(csv.DictReader(lines))
    assert [(row["expert"], row["propensity"]) for row in found] == [("a", "1"), ("a", ""), ("a", ""), ("b", "")]
    assert (found[3]["price"], found[3]["latency"]) == ("0.3", "1")


def test_an_export_that_is_refused(tmp_path: Path) -> None:
    file, text = tmp_path / "log.sqlite", tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be looked at" * 9)
    log = OutcomeLog(file)
    features = [np.zeros(size, "<f4").tobytes() for size in (2, 3)]
    log.do(
        add_decisions, [decided("1", features=features[0]), decided("2", run="other", features=features[1])]
    ).result()
    for arguments, said in (
        ([tmp_path / "none.sqlite", "--out", "a.csv"], "none.sqlite"),
        ([text, "--out", "a.csv"], "text.sqlite"),
        ([file, "--out", "a.csv"], "outcome"),
        ([file], "--out"),
    ):
        with pytest.raises(SystemExit, match=said):
            export(*arguments)
    log.do(add_outcomes, [ReportedOutcome(id, 1.0, None) for id in "12"]).result()
    log.close()
    with pytest.raises(SystemExit, match="--run"):
        export(file, "--out", tmp_path / "a.csv")
    export(file, "--out", tmp_path / "a.csv", "--run", "other")
    assert len((tmp_path / "a.csv").read_text().splitlines()) == 2


def test_files_that_are_no_log(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to be looked at" * 9)
    for name in ("text.sqlite", "no/log.sqlite"):
        with pytest.raises(L2DError, match=f"{name}: "):
            OutcomeLog(tmp_path / name)


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "log.sqlite")
    waiting: list[Future[None]] = [log.do(add_decisions, [decided(str(number))]) for number in range(2000)]
    log.close()
    assert all(one.done() for one in waiting)
    assert len(rows(tmp_path / "log.sqlite", "decisions")) == 2000


def test_an_answer_that_nobody_waits_for_harms_nothing(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "log.sqlite")

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(log.do(add_decisions, [decided("1")])), 0)
        await asyncio.wrap_future(log.do(add_decisions, [decided("2")]))

    asyncio.run(leave())
    log.close()
    assert {row["id"] for row in rows(tmp_path / "log.sqlite", "decisions")} >= {"2"}
