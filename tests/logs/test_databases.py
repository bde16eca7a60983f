"""The log in SQLite and in PostgreSQL: the same behaviour, from several servers at once."""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.logs.postgres import PostgresServer, postgres
from tests.router.finished import PRICED, Untrained, untrained
from tests.server.helpers import PROMPTS, asking, make_service, text_run

from l2d.commands import log as log_command
from l2d.logs import databases
from l2d.logs.databases import connect, is_url, log_address, translated, without_password
from l2d.logs.export import read_long_form
from l2d.logs.outcome_log import LoggedDecision, LogUnavailable, OutcomeLog, OutcomeRefused, ReportedOutcome
from l2d.utils.errors import L2DError


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as found:
        if found is None:
            pytest.skip("PostgreSQL is not installed here")
        yield found


@pytest.fixture
def url(server: PostgresServer) -> Iterator[str]:
    yield server.url
    with contextlib.closing(connect(server.url)) as database:
        for table in ("outcomes", "decisions", "runs", "swaps", "l2d_version"):
            database.execute(f"DROP TABLE IF EXISTS {table}")


@pytest.fixture
def run(tmp_path: Path) -> Untrained:
    return text_run(tmp_path)


@pytest.fixture(params=["file", "url"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    found: Path | str = tmp_path / "log.sqlite" if request.param == "file" else request.getfixturevalue("url")
    return found


def decided(number: int) -> LoggedDecision:
    features = bytes(range(8))
    return LoggedDecision(f"id{number}", "run", "a", "b", "explore", 0.25, 0.5, "session", None, features)


def test_what_is_written_is_read(address: Path | str) -> None:
    log = OutcomeLog(address)
    log.add_run("run", "{}").result()
    log.add_decisions([decided(1), decided(2)]).result()
    assert log.add_outcomes([ReportedOutcome("id1", 1.0, None, 0.75)]).result() == 1
    assert log.add_outcomes([ReportedOutcome("id1", 1.0, None, 0.75)]).result() == 0
    with pytest.raises(OutcomeRefused, match="another outcome"):
        log.add_outcomes([ReportedOutcome("id2", 1.0, None), ReportedOutcome("id1", 0.0, None)]).result()
    with pytest.raises(OutcomeRefused, match="no such decision"):
        log.add_outcomes([ReportedOutcome("id2", 1.0, None), ReportedOutcome("id3", 0.0, None)]).result()
    log.add_answer("id2", "c", None, 1.5).result()
    assert log.expert_of("session").result() == "c"
    assert log.last_swap().result() == (0, None)
    assert [log.add_swap("one").result(), log.add_swap("two").result()] == [1, 2]
    assert log.last_swap().result() == (2, "two")
    log.close()
    log = OutcomeLog(address)  # again: nothing is lost
    log.close()
    with contextlib.closing(connect(address)) as database:
        [row] = database.rows(
            "SELECT d.*, o.correct, o.price AS paid FROM outcomes AS o JOIN decisions AS d ON d.id = o.decision_id"
        )
    assert (row["id"], row["propensity"], row["price"], row["features"]) == ("id1", 0.25, 0.5, bytes(range(8)))
    assert (row["correct"], row["paid"], row["served"]) == (1.0, 0.75, None)


def test_two_servers_share_a_log(address: Path | str) -> None:
    """Of an outcome that both are told, one records it; they never disagree about it."""
    logs = [OutcomeLog(address), OutcomeLog(address)]
    logs[0].add_decisions([decided(number) for number in range(40)]).result()
    told = [[log.add_outcomes([ReportedOutcome(f"id{number}", 1.0, None)]) for number in range(40)] for log in logs]
    assert [one.result() + other.result() for one, other in zip(*told, strict=True)] == [1] * 40
    for log in logs:
        log.close()


def test_a_log_that_another_process_holds(address: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "WAIT", 0.05)
    log = OutcomeLog(address)
    other = connect(address)
    other.begin()
    with pytest.raises(LogUnavailable):
        log.add_decisions([decided(1)]).result()
    other.roll_back()
    log.add_decisions([decided(1)]).result()
    log.close()
    other.close()


def test_a_server_that_stops_and_starts(server: PostgresServer, url: str) -> None:
    log = OutcomeLog(url)
    log.add_decisions([decided(1)]).result()
    server.stop()
    for number in (2, 3):
        with pytest.raises(LogUnavailable):
            log.add_decisions([decided(number)]).result()
    server.start()
    with pytest.raises(LogUnavailable):  # the connection is made again after it
        log.check().result()
    log.add_decisions([decided(2)]).result()
    assert log.add_outcomes([ReportedOutcome("id1", 1.0, None), ReportedOutcome("id2", 1.0, None)]).result() == 2
    log.close()


def test_served_and_exported_from_a_url(
    url: str, run: Untrained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service = make_service(run.path, url, explore=1.0)
    with asking(service) as client:
        for prompt in PROMPTS[:3]:
            found = client.post("/v1/route", json={"text": prompt}).json()
            body = {"decision_id": found["decision_id"], "correct": 1}
            assert client.post("/v1/outcomes", json=body).json() == {"recorded": 1, "known": 0}
        assert client.get("/ready").status_code == 200
    assert read_long_form(url).columns["propensity"] == pytest.approx([1 / 3] * 3)
    log_command.main(["export", url, "--out", str(tmp_path / "log.csv")])
    assert "3 rows" in capsys.readouterr().out


def test_a_reload_is_followed(
    address: Path | str, run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By servers that began before it, and by one that replaces one of them; not by one that begins later."""
    monkeypatch.setattr("l2d.server.service.FOLLOW", 0.02)
    (tmp_path / "other").mkdir()
    other = text_run(tmp_path / "other").path
    told, follows = (make_service(run.path, address, admin_token="secret") for _ in range(2))
    began = follows.swaps
    with asking(told) as first, asking(follows) as second:
        header = {"authorization": "Bearer secret"}
        assert first.post("/admin/reload", json={"run": str(other)}, headers=header).status_code == 200
        deadline = time.monotonic() + 20
        while follows.current.name != str(other) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert second.post("/v1/route", json={"text": PROMPTS[0]}).json()["run"] == str(other)
    replaces, later = make_service(run.path, address, swaps=began), make_service(run.path, address)
    for service, name in ((replaces, other), (later, run.path)):
        asyncio.run(service.follow())
        assert service.current.name == str(name)
        service.log.close()


def test_a_reload_that_cannot_be_followed(
    run: Untrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server goes on with the run that it has, says so, and tries again."""
    monkeypatch.setattr("l2d.server.service.FOLLOW", 0.02)
    service = make_service(run.path, tmp_path / "log.sqlite")
    with asking(service) as client:
        service.log.add_swap(str(tmp_path / "gone")).result()
        deadline = time.monotonic() + 20
        while caplog.text.count("cannot follow a reload") < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "gone: no such folder" in caplog.text
        assert client.post("/v1/route", json={"text": PROMPTS[0]}).json()["run"] == str(run.path)
        assert 'l2d_errors_total{kind="follow"}' in client.get("/metrics").text


def test_addresses() -> None:
    assert log_address("log.sqlite") == Path("log.sqlite")
    assert log_address("postgresql://u@h/d") == "postgresql://u@h/d"
    assert [is_url(one) for one in ("postgres://h/d", "postgresql://h/d", Path("postgresql:"), "x")] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(L2DError, match="mysql://u:…@h/d: give a file, or a URL"):
        log_address("mysql://u:secret@h/d")
    assert without_password("postgresql://u:secret@h/d") == "postgresql://u:…@h/d"
    assert without_password("postgresql://u@h:5432/d?sslmode=require") == "postgresql://u@h:5432/d?sslmode=require"
    assert translated("a REAL, b BLOB WHERE id = ?") == "a DOUBLE PRECISION, b BYTEA WHERE id = %s"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret@127.0.0.1:1/d",
        "postgresql://u:secret#1@127.0.0.1:1/d",
        "postgresql://u:secret?1@127.0.0.1:1/d",
        "postgresql://u:secret%zz@127.0.0.1:1/d",
        "postgresql://u:se[secret@127.0.0.1:1/d",
        "postgresql://u:x@secret@127.0.0.1:1/d",
        "postgresql://127.0.0.1:1/d?user=u&password=secret",
    ],
)
def test_no_message_holds_a_password(url: str) -> None:
    with pytest.raises(L2DError, match=r"cannot be used as a log") as found:
        connect(url)
    assert "secret" not in str(found.value)
    assert "\n" not in str(found.value)


def test_an_operation_with_a_bug_harms_no_later_one(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "log.sqlite")
    with pytest.raises(LogUnavailable):
        log.add_decisions([replace(decided(1), text="\ud800")]).result()
    log.add_decisions([decided(1)]).result()
    log.close()


def test_a_run_that_does_not_fit_is_not_followed(run: Untrained, tmp_path: Path) -> None:
    """It was reloaded by force on a server with other settings."""
    (tmp_path / "other").mkdir()
    rows = untrained(tmp_path / "other", "dataset.features=[x]", *PRICED, "method=cost_regression").path
    service = make_service(run.path, tmp_path / "log.sqlite", keep="text")
    service.log.add_swap(str(rows)).result()
    with pytest.raises(L2DError, match="keep=text: this router sees"):
        asyncio.run(service.follow())
    asyncio.run(service.follow())  # once is enough
    assert service.current.name == str(run.path)
    service.log.close()


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """The file may be somebody else's."""
    sqlite3.connect(file := tmp_path / "other.db").close()
    file.write_bytes(b"")
    with pytest.raises(L2DError, match="not a log of l2d serve"):
        read_long_form(file)
    assert file.read_bytes() == b""
