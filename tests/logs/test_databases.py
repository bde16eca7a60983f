"""The log in SQLite and in PostgreSQL: the same behaviour, from several servers at once, also if an earlier version wrote it."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.logs.postgres import PostgresServer, postgres

from l2d.logs import databases
from l2d.logs.databases import STEPS, connect, log_address, open_database
from l2d.logs.decision import Decision, LogUnavailable, Refused, ReportedOutcome
from l2d.logs.export import read_joined, read_long_form
from l2d.logs.operations import (
    Limit,
    add_answer,
    add_decisions,
    add_outcomes,
    add_run,
    add_swap,
    ask_within,
    decide_within,
    expert_of,
    last_swap,
    left,
    write_nothing,
)
from l2d.logs.outcome_log import OutcomeLog
from l2d.utils.errors import L2DError

# The tables as versions 1 and 3 of l2d made them. No log of version 2 was ever released.
FIRST = """
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, time REAL NOT NULL, run TEXT NOT NULL, expert TEXT NOT NULL,
    router_choice TEXT, decided_by TEXT NOT NULL, propensity REAL, price REAL, latency REAL, served TEXT, session TEXT,
    text TEXT, features BLOB
);
CREATE INDEX sessions ON decisions (session) WHERE session IS NOT NULL;
CREATE TABLE outcomes (
    decision_id TEXT PRIMARY KEY REFERENCES decisions (id), correct REAL, loss REAL, price REAL, latency REAL, time REAL NOT NULL
) WITHOUT ROWID;
"""
RUNS = "CREATE TABLE runs (name TEXT PRIMARY KEY, about TEXT NOT NULL);\n"
SWAPS = "CREATE TABLE swaps (number INTEGER PRIMARY KEY, run TEXT NOT NULL, time REAL NOT NULL);\n"
SCHEMAS = {1: FIRST, 3: RUNS + SWAPS + FIRST}
KEPT = [
    "INSERT INTO decisions (id, time, run, expert, decided_by, propensity) VALUES ('kept', 1.5, 'r', 'a', 'router', 0.5)",
    "INSERT INTO outcomes VALUES ('kept', 1.0, NULL, 0.25, NULL, 2.5)",
]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres() as found:
        yield found


@pytest.fixture(params=["file", "url"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "log.sqlite" if request.param == "file" else str(request.getfixturevalue("server").url)


def decided(number: int) -> Decision:
    return Decision(f"id{number}", "run", "a", "b", "explore", 0.25, 0.5, "session", None, bytes(range(8)))


def right(*numbers: int) -> list[ReportedOutcome]:
    return [ReportedOutcome(f"id{number}", 1.0, None) for number in numbers]


def write_earlier(address: Path | str, version: int) -> None:
    with contextlib.closing(connect(address)) as database:
        database.begin()
        database.version()
        for statement in [*SCHEMAS[version].strip().removesuffix(";").split(";\n"), *KEPT]:
            database.execute(statement)
        database.set_version(version)
        database.commit()


def test_what_is_written_is_read(address: Path | str) -> None:
    log = OutcomeLog(address)
    log.do(add_run, "run", "{}").result()
    log.do(add_decisions, [decided(1), decided(2), decided(4)]).result()
    outcome = ReportedOutcome("id1", 1.0, None, 0.75)
    assert log.do(add_outcomes, [outcome]).result() == [outcome]
    assert log.do(add_outcomes, [outcome, *right(4, 4)]).result() == right(4)  # which ones were new
    for bad, status in ((ReportedOutcome("id1", 0.0, None), 409), (ReportedOutcome("id3", 0.0, None), 404)):
        with pytest.raises(Refused, match=bad.decision_id) as refused:
            log.do(add_outcomes, [*right(2), bad]).result()
        assert refused.value.status == status
    log.do(add_answer, "id2", "c", None, 1.5).result()
    assert log.do(expert_of, "session").result() == "a"
    log.do(add_answer, "id4", "c", None, 1.5).result()
    assert log.do(expert_of, "session").result() == "c"
    assert log.do(last_swap).result() == (0, None)
    assert [log.do(add_swap, "one").result(), log.do(add_swap, "two").result()] == [1, 2]
    assert log.do(last_swap).result() == (2, "two")
    log.close()
    OutcomeLog(address).close()  # again: nothing is lost
    with contextlib.closing(connect(address)) as database:
        joined = "outcomes AS o JOIN decisions AS d ON d.id = o.decision_id ORDER BY d.number"
        row, _ = database.rows(f"SELECT d.*, o.correct, o.price AS paid FROM {joined}")
    assert (row["id"], row["propensity"], row["price"], row["features"]) == ("id1", 0.25, 0.5, bytes(range(8)))
    assert (row["correct"], row["paid"], row["served"]) == (1.0, 0.75, None)


@pytest.mark.parametrize("version", [1, 3])
def test_a_log_of_an_earlier_version_is_brought_up_to_date(address: Path | str, version: int) -> None:
    """Its rows stay, and the server works with it as with a new one."""
    write_earlier(address, version)
    log = OutcomeLog(address)
    log.do(
        add_run, "run", '{"experts": ["a"], "shape": [2], "seen": {"features": []}, "encoder": null, "price_scale": 1}'
    )
    log.do(add_decisions, [decided(1)]).result()
    assert log.do(add_outcomes, right(1)).result() == right(1)
    assert log.do(add_outcomes, [ReportedOutcome("kept", 1.0, None, 0.25)]).result() == []  # it knows that
    assert log.do(add_swap, "r").result() == 1
    log.close()
    found = read_long_form(address).columns
    assert [found[name] for name in ("id", "propensity", "price")] == [["kept", "id1"], [0.5, 0.25], [0.25, 0.5]]
    new = str(address).replace("log.sqlite", "new.sqlite")
    if isinstance(address, Path):  # the same tables as a new log
        open_database(Path(new)).close()
        tables = [sqlite3.connect(file).execute("SELECT sql FROM sqlite_master").fetchall() for file in (address, new)]
        assert sorted(map(str, tables[0])) == sorted(map(str, tables[1]))


@pytest.mark.parametrize("version", [0, 1])
def test_servers_that_start_at_once(address: Path | str, version: int) -> None:
    """One makes or changes the tables, the others wait; none is refused."""
    if version:
        write_earlier(address, version)
    at_once = threading.Barrier(6)

    def start(number: int) -> None:
        at_once.wait()
        log = OutcomeLog(address)
        log.do(add_decisions, [decided(number)]).result()
        log.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(start, range(6)))
    with contextlib.closing(connect(address)) as database:
        assert database.execute("SELECT count(*) FROM decisions").fetchone()[0] == 6 + version
        assert database.version() == len(STEPS)


def test_a_step_that_fails_changes_nothing(address: Path | str) -> None:
    """Another table has the name of one that the step makes."""
    write_earlier(address, 1)
    with contextlib.closing(connect(address)) as database:
        database.execute("CREATE TABLE swaps (other INTEGER)")
    with pytest.raises(L2DError, match="swaps"):
        OutcomeLog(address)
    with contextlib.closing(connect(address)) as database:
        assert database.version() == 1
        with pytest.raises(database.errors, match="runs"):
            database.execute("SELECT * FROM runs")


def test_a_log_of_a_later_version_is_refused(address: Path | str) -> None:
    write_earlier(address, 3)
    with contextlib.closing(connect(address)) as database:
        database.set_version(len(STEPS) + 1)
    with pytest.raises(L2DError, match="newer"):
        OutcomeLog(address)
    with contextlib.closing(connect(address)) as database:
        assert database.version() == len(STEPS) + 1


def test_two_servers_share_a_log(address: Path | str) -> None:
    """An outcome that both report is recorded by one of them; they never disagree about it."""
    logs = [OutcomeLog(address), OutcomeLog(address)]
    logs[0].do(add_decisions, [decided(number) for number in range(40)]).result()
    reported = [[log.do(add_outcomes, right(number)) for number in range(40)] for log in logs]
    assert [len(one.result()) + len(other.result()) for one, other in zip(*reported, strict=True)] == [1] * 40
    for log in logs:
        log.close()


def test_a_transaction_waits_before_it_reads(address: Path | str) -> None:
    """Two that read a number and write the next one: the second begins after the first has ended, so no step is lost."""
    OutcomeLog(address).close()

    def count(times: int) -> None:
        with contextlib.closing(connect(address)) as database:
            for _ in range(times):
                database.begin()
                [known] = database.execute("SELECT count(*) FROM swaps").fetchone()
                time.sleep(0.002)
                database.execute("INSERT INTO swaps (run, time) VALUES (?, ?)", (f"{known}", 0.0))
                database.commit()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(count, [10, 10]))
    with contextlib.closing(connect(address)) as database:
        found = [row["run"] for row in database.rows("SELECT run FROM swaps ORDER BY number")]
    assert found == [str(number) for number in range(20)]


def test_a_log_that_another_process_holds(address: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "WAIT", 0.05)
    log = OutcomeLog(address)
    other = connect(address)
    other.begin()
    with pytest.raises(LogUnavailable):
        log.do(add_decisions, [decided(1)]).result()
    other.roll_back()
    log.do(add_decisions, [decided(1)]).result()
    log.close()
    other.close()


def test_a_server_that_stops_and_starts(server: PostgresServer) -> None:
    log = OutcomeLog(server.url)
    log.do(add_decisions, [decided(1)]).result()
    server.stop()
    for number in (2, 3):
        with pytest.raises(LogUnavailable):
            log.do(add_decisions, [decided(number)]).result()
    server.start()
    with pytest.raises(LogUnavailable):  # the connection is made again after it
        log.do(write_nothing).result()
    log.do(add_decisions, [decided(2)]).result()
    assert log.do(add_outcomes, right(1, 2)).result() == right(1, 2)
    log.close()


def test_a_reader_that_may_not_write(server: PostgresServer) -> None:
    log = OutcomeLog(server.url)
    log.do(add_decisions, [decided(1)]).result()
    log.do(add_outcomes, right(1)).result()
    with contextlib.closing(connect(server.url)) as database:
        for statement in ("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN"):
            database.execute(statement)
        database.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
        rows, _ = read_joined(server.url.replace("l2d@", "reader@"))
        database.execute("DROP OWNED BY reader")
    log.close()
    assert [row["id"] for row in rows] == ["id1"]


def test_addresses() -> None:
    assert log_address("log.sqlite") == Path("log.sqlite")
    assert log_address("postgresql://u@h/d") == "postgresql://u@h/d"
    address = "postgresql://u@h:5432/d?sslmode=require"
    assert log_address(address) == address
    with pytest.raises(L2DError, match="mysql://u@h/d"):
        log_address("mysql://u@h/d")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:secret@h/d",
        "postgresql://u:secret@127.0.0.1:1/d",
        "postgresql://u:secret#1@127.0.0.1:1/d",
        "postgresql://u:secret?1@127.0.0.1:1/d",
        "postgresql://u:secret%zz@127.0.0.1:1/d",
        "postgresql://u:se/secret@127.0.0.1:1/d",
        "postgresql://u:x@secret@127.0.0.1:1/d",
        "postgresql://127.0.0.1:1/d?user=u&password=secret",
    ],
)
def test_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(L2DError, match="PGPASSWORD") as found:
        log_address(url)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("version", [None, 1, 3])
def test_reading_changes_nothing(tmp_path: Path, version: int | None) -> None:
    """The file may be somebody else's, or of a server of an earlier version, whose rows are read as they are."""
    file = tmp_path / "other.db"
    if version is None:
        file.write_bytes(b"")
        with pytest.raises(L2DError, match=r"other\.db"):
            read_long_form(file)
        assert file.read_bytes() == b""
    else:
        write_earlier(file, version)
        before = file.read_bytes()
        assert read_long_form(file).columns["id"] == ["kept"]
        assert file.read_bytes() == before


def test_limits_in_both(address: Path | str) -> None:
    logs, limits = [OutcomeLog(address), OutcomeLog(address)], {"a": Limit(3, "hour")}
    found = logs[0].do(decide_within, [lambda _: decided(1)], limits).result()
    asked = [log.do(ask_within, "a", limits).result() for log in logs * 2]
    free = [log.do(left, limits).result() for log in logs]
    for log in logs:
        log.close()
    assert ([one.expert for one in found], asked, free) == (["a"], [True, True, False, False], [{"a": 0}] * 2)
