"""The databases of a log, and its tables: an SQLite file, or PostgreSQL by its URL, which servers on several machines can share."""

import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from l2d.logs.decision import LogUnavailable
from l2d.utils.errors import L2DError, from_extra

URL = ("postgresql://", "postgres://")
WAIT = 2.0  # seconds for another process that writes; then the request is refused
PARTS = ("", "-wal", "-shm")  # of an SQLite log
PASSWORD = re.compile("://.*:.*@|password=", re.DOTALL)
LOCK = 7_210_021  # PostgreSQL's writers take turns by this number, as SQLite's do by themselves
# PostgreSQL's names of SQLite's types.
DIALECT = {
    "INTEGER PRIMARY KEY": "BIGSERIAL PRIMARY KEY",
    "REAL": "DOUBLE PRECISION",
    "BLOB": "BYTEA",
    " WITHOUT ROWID": "",
    "?": "%s",
}
# Step n brings the tables from version n to version n + 1. A released step never changes; append a new one.
STEPS = (
    """
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, time REAL NOT NULL, run TEXT NOT NULL, expert TEXT NOT NULL,
    router_choice TEXT, decided_by TEXT NOT NULL, propensity REAL, price REAL, latency REAL, served TEXT, session TEXT,
    text TEXT, features BLOB
);
CREATE INDEX sessions ON decisions (session) WHERE session IS NOT NULL;
CREATE TABLE outcomes (
    decision_id TEXT PRIMARY KEY REFERENCES decisions (id), correct REAL, loss REAL, price REAL, latency REAL, time REAL NOT NULL
) WITHOUT ROWID""",
    "CREATE TABLE runs (name TEXT PRIMARY KEY, about TEXT NOT NULL)",
    "CREATE TABLE swaps (number INTEGER PRIMARY KEY, run TEXT NOT NULL, time REAL NOT NULL)",
    """
CREATE TABLE steps (decision_id TEXT PRIMARY KEY REFERENCES decisions (id), state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE calls (
    decision_id TEXT NOT NULL REFERENCES decisions (id), place INTEGER NOT NULL, expert TEXT NOT NULL, propensity REAL, price REAL,
    latency REAL, same_as TEXT, confidence REAL, length INTEGER, PRIMARY KEY (decision_id, place)
) WITHOUT ROWID""",
    "ALTER TABLE calls ADD COLUMN correct REAL;\nALTER TABLE calls ADD COLUMN loss REAL",
    """
CREATE TABLE asks (expert TEXT NOT NULL, place INTEGER NOT NULL, time REAL NOT NULL, PRIMARY KEY (expert, place)) WITHOUT ROWID""",
    """
CREATE TABLE trials (
    decision_id TEXT PRIMARY KEY REFERENCES decisions (id), candidate TEXT NOT NULL, choice TEXT NOT NULL, bound REAL NOT NULL,
    base REAL NOT NULL, weight REAL NOT NULL
) WITHOUT ROWID""",
)
Values = Sequence[Any]


class Connection:
    """For one thread at a time; one process at a time can be in a transaction. Statements: in SQLite's words, with ? for values.
    errors: the base of its exceptions, which also tell that another process did not end its transaction within WAIT seconds."""

    connection: Any

    def in_words(self, statement: str) -> str:
        return statement

    def execute(self, statement: str, values: Values = ()) -> Any:
        return self.connection.execute(self.in_words(statement), values)

    def execute_many(self, statement: str, rows: Iterable[Values]) -> None:
        with closing(self.connection.cursor()) as cursor:
            cursor.executemany(self.in_words(statement), rows)

    def rows(self, query: str) -> list[dict[str, Any]]:
        cursor = self.execute(query)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def commit(self) -> None:
        self.execute("COMMIT")

    def close(self) -> None:
        self.connection.close()


class SqliteDatabase(Connection):
    errors: type[Exception] = sqlite3.Error

    def __init__(self, file: Path, writes: bool) -> None:
        self.name = str(file)
        self._parts: list[int | None] | None = None
        if writes and not file.exists():
            with suppress(OSError):  # sqlite3 says it better
                file.touch(mode=0o600)  # it may hold prompts
        options: dict[str, Any] = {"timeout": WAIT, "isolation_level": None, "check_same_thread": False, "uri": True}
        self.connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", **options)
        if writes:
            self._set_durable()

    def _set_durable(self) -> None:
        """Let what is committed survive a crash."""
        end = time.monotonic() + WAIT
        while True:
            try:
                self.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:  # if several servers make the file, SQLite does not wait here
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)
        self.execute("PRAGMA synchronous = FULL")

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Raises an error if the files are not those that were opened: nobody would find there what was written."""
        super().commit()
        found = [inode(f"{self.name}{part}") for part in PARTS]
        self._parts = self._parts or found
        if found != self._parts:
            raise sqlite3.OperationalError("the log was deleted, moved or replaced; put it back, or start again")

    def roll_back(self) -> None:
        """End a transaction after an error, if there is one."""
        if self.connection.in_transaction:
            self.execute("ROLLBACK")

    def version(self) -> int:
        """The version of the tables; 0 if there are none."""
        return int(self.execute("PRAGMA user_version").fetchone()[0])

    def set_version(self, version: int) -> None:
        self.execute(f"PRAGMA user_version = {version}")


def inode(file: str) -> int | None:
    try:
        return os.stat(file).st_ino  # noqa: PTH116 (with every commit: Path would cost more than the call)
    except OSError:
        return None


class PostgresDatabase(Connection):
    def __init__(self, url: str) -> None:
        with from_extra("cluster", "a log in PostgreSQL"):
            import psycopg
        self.psycopg, self.name = psycopg, url
        self.errors: type[Exception] = psycopg.Error
        self.connection = self._connect()

    def _connect(self) -> Any:
        found = self.psycopg.connect(self.name, autocommit=True, connect_timeout=5, tcp_user_timeout=5000)
        found.execute(f"SET lock_timeout = {int(1000 * WAIT)}")
        return found

    def in_words(self, statement: str) -> str:
        for ours, theirs in DIALECT.items():
            statement = statement.replace(ours, theirs)
        return statement

    def begin(self) -> None:
        self.execute("BEGIN")
        self.execute("SELECT pg_advisory_xact_lock(?)", (LOCK,))

    def roll_back(self) -> None:
        """A connection that broke is made again."""
        try:
            self.execute("ROLLBACK")
        except self.errors:
            self.connection.close()
            with suppress(self.errors):  # it stays closed then, and the next transaction fails too
                self.connection = self._connect()

    def version(self) -> int:
        if self.execute("SELECT to_regclass('l2d_version')").fetchone()[0] is None:
            return 0  # a reader may have no right to make the table
        found = self.execute("SELECT version FROM l2d_version").fetchone()
        return 0 if found is None else int(found[0])

    def set_version(self, version: int) -> None:
        self.execute("CREATE TABLE IF NOT EXISTS l2d_version (version INTEGER NOT NULL)")
        self.execute("DELETE FROM l2d_version")
        self.execute("INSERT INTO l2d_version VALUES (?)", (version,))


Database = SqliteDatabase | PostgresDatabase


def log_address(given: str) -> Path | str:
    """Return a path, or a URL as it is: a path would lose a slash. A URL becomes part of messages and of runs' configs."""
    if "://" not in given:
        return Path(given).expanduser()
    if PASSWORD.search(given):
        raise L2DError("the URL of the log has a password, which others could read; use PGPASSWORD or ~/.pgpass")
    if not given.startswith(URL):
        raise L2DError(f"{given}: give a file, or a URL that begins with postgresql://")
    return given


def connect(address: Path | str, writes: bool = True) -> Database:
    """writes: make a file that is not there. Raises LogUnavailable, or L2DError without the extra `cluster`."""
    try:
        return PostgresDatabase(str(address)) if str(address).startswith(URL) else SqliteDatabase(Path(address), writes)
    except L2DError:
        raise
    except Exception as error:  # of a driver that may not be installed
        raise LogUnavailable(f"{address}: cannot be used as a log ({' '.join(str(error).split())})") from None


def open_database(address: Path | str) -> Database:
    """Connect for one thread at a time; a new log gets its tables, an older one is brought up to date. Raises L2DError."""
    database = connect(address)
    try:
        database.begin()
        found = database.version()
        if found < len(STEPS):
            for statement in ";\n".join(STEPS[found:]).split(";\n"):
                database.execute(statement)
            database.set_version(len(STEPS))
        database.commit()
    except database.errors as error:
        database.close()
        raise L2DError(f"{database.name}: cannot be used as a log ({error})") from error
    if found > len(STEPS):
        database.close()
        problem = f"a newer version of l2d wrote this log (tables {found}; this version knows {len(STEPS)})"
        raise L2DError(f"{database.name}: {problem}; update l2d, or choose another log")
    return database


@contextmanager
def reading(address: Path | str) -> Iterator[Database]:
    """A transaction of a connection of its own, so that others go on writing. Raises LogUnavailable."""
    with closing(connect(address, writes=False)) as database:
        try:
            database.execute("BEGIN")
            yield database
        except database.errors as error:
            raise LogUnavailable(f"{address}: not a log of l2d serve that can be read ({error})") from error
