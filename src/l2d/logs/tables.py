"""The tables of a log, which are brought up to date when a server opens it."""

from pathlib import Path

from l2d.logs.databases import Database, connect
from l2d.utils.errors import L2DError

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
