"""The log in its long form, which training and off-policy estimates take: a row for each decision that has an outcome."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from l2d.utils.errors import L2DError

JOINED = """
SELECT d.id, d.text, d.features, coalesce(d.served, d.expert) AS expert, o.correct, o.loss,
       coalesce(o.price, d.price) AS price, coalesce(o.latency, d.latency) AS latency,
       CASE WHEN d.served IS NULL OR d.served = d.expert THEN d.propensity END AS propensity, d.time, d.run
FROM decisions AS d JOIN outcomes AS o ON o.decision_id = d.id ORDER BY d.number
"""


@dataclass(frozen=True)
class LongForm:
    """columns: id, prompt or f_1…, expert, correct or loss, price, latency, propensity, time; no empty ones. left_out: rows whose
    expert no policy chose: the client named it, the conversation had it, or another one failed."""

    columns: dict[str, Any]
    left_out: int


def read_long_form(file: Path, run: str | None = None, every: bool = False) -> LongForm:
    """run: only the decisions of this run. every: also rows without a propensity."""
    rows = [row for row in read_joined(file) if run is None or row["run"] == run]
    kept = [row for row in rows if every or row["propensity"] is not None]
    if not kept:
        known = "" if run is None else f" of run {run}"
        raise L2DError(f"{file}: no decision{known} with an outcome; POST /v1/outcomes records them")
    return LongForm(
        {
            "id": [row["id"] for row in kept],
            **inputs_of_rows(file, kept),
            "expert": [row["expert"] for row in kept],
            **outcomes_of_rows(kept),
            **known_columns(kept, ("price", "latency", "propensity")),
            "time": [round(row["time"], 3) for row in kept],
        },
        len(rows) - len(kept),
    )


def read_joined(file: Path) -> list[sqlite3.Row]:
    if not file.is_file():
        raise L2DError(f"{file}: no such file; give the log of l2d serve")
    try:
        database = sqlite3.connect(file)
        database.row_factory = sqlite3.Row
        try:
            return database.execute(JOINED).fetchall()
        finally:
            database.close()
    except sqlite3.Error as error:
        raise L2DError(f"{file}: not a log of l2d serve ({error})") from error


def known_columns(rows: Sequence[sqlite3.Row], names: Sequence[str]) -> dict[str, list[float | None]]:
    """Without columns that are empty in all rows."""
    found = {name: [row[name] for row in rows] for name in names}
    return {name: cells for name, cells in found.items() if any(cell is not None for cell in cells)}


def outcomes_of_rows(rows: Sequence[sqlite3.Row]) -> dict[str, list[float]]:
    """correct, if that was reported for all of them; else the loss."""
    if all(row["correct"] is not None for row in rows):
        return {"correct": [row["correct"] for row in rows]}
    return {"loss": [row["loss"] if row["correct"] is None else 1 - row["correct"] for row in rows]}


def inputs_of_rows(file: Path, rows: Sequence[sqlite3.Row]) -> dict[str, Any]:
    """The column prompt, or f_1 … f_F."""
    if all(row["text"] is not None for row in rows):
        return {"prompt": [row["text"] for row in rows]}
    sizes = {None if row["features"] is None else len(row["features"]) for row in rows}
    if sizes == {None}:
        return {}
    if len(sizes) > 1:
        raise L2DError(f"{file}: its rows have different inputs; choose those of one run with --run")
    found = np.frombuffer(b"".join(row["features"] for row in rows), dtype="<f4").reshape(len(rows), -1)
    return {f"f_{place}": column for place, column in enumerate(found.T, start=1)}
