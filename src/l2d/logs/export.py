"""The log in its long form, which training and off-policy estimates take: a row for each decision that has an outcome."""

import base64
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from l2d.core.prices import PriceUnit
from l2d.data.arrays import Seen
from l2d.logs.databases import reading
from l2d.utils.errors import L2DError
from l2d.utils.plain import from_plain

JOINED = """
SELECT d.id, d.text, d.features, coalesce(d.served, d.expert) AS expert, d.router_choice, o.correct, o.loss,
       coalesce(o.price, d.price) AS price, coalesce(o.latency, d.latency) AS latency,
       CASE WHEN d.served IS NULL OR d.served = d.expert THEN d.propensity END AS propensity, d.time, d.run
FROM decisions AS d JOIN outcomes AS o ON o.decision_id = d.id ORDER BY d.number
"""
CALLS = "SELECT * FROM calls ORDER BY decision_id, place"
WITH_RUNS, WITH_CALLS = 2, 5  # the versions of the tables that have them, with outcomes of calls
TEXT, NUMBER = "prompt", "f_"  # the column of a text; the columns of numbers that the router saw begin so
SCALE = "price_scale"  # the column of the factor on prices in the run that decided, if it had one
ONE_RUN = "choose those of one run with --run (l2d train: dataset.run)"
EMBEDDED = f"{TEXT}_"  # the columns of an encoder's numbers of the text begin so


@dataclass(frozen=True)
class RunInputs:
    """The log's entry for the run that decided. shape: of one input. encoder: its config. reading: what it has learned, packed."""

    experts: tuple[str, ...]
    shape: tuple[int, ...]
    seen: Seen
    encoder: dict[str, Any] | None
    unit: PriceUnit
    reading: str = ""

    def __repr__(self) -> str:
        """Part of fingerprints, so it stays as it was before there was a currency or a reading."""
        inputs = f"experts={self.experts}, shape={self.shape}, seen={self.seen}, encoder={self.encoder}"
        inputs += f", reading={self.reading}" if self.reading else ""
        return f"RunInputs({inputs}, price_scale={self.unit.scale})"

    @classmethod
    def read(cls, about: str) -> "RunInputs":
        found = json.loads(about)
        seen, experts, shape = from_plain(Seen, found["seen"]), tuple(found["experts"]), tuple(found["shape"])
        return cls(experts, shape, seen, found["encoder"], PriceUnit.from_log(found), found.get("reading", ""))

    @property
    def learned(self) -> dict[str, np.ndarray]:
        return safetensors.numpy.load(base64.b64decode(self.reading)) if self.reading else {}

    def column_names(self, width: int) -> list[str]:
        """Names of the numbers that the router saw: its columns, then its encoder's numbers of the text."""
        named = [f"{NUMBER}{name}" for name in self.seen.columns]
        rest = EMBEDDED if self.seen.text is not None else NUMBER
        return [*named, *(f"{rest}{place}" for place in range(1, width - len(named) + 1))]


@dataclass(frozen=True)
class LongForm:
    """columns: as in the result of `read_long_form`, without empty ones. left_out: rows whose expert no policy chose: the client
    named it, the conversation had it, or another one failed. about: of the last run that decided. calls: of each row, in their
    order, with `right` of each answer; a plan's row is about the first one."""

    columns: dict[str, Any]
    left_out: int
    about: RunInputs | None
    calls: list[list[dict[str, Any]]]


def read_long_form(address: Path | str, run: str | None = None, every: bool = False) -> LongForm:
    """run: only the decisions of this run. every: also rows without a propensity."""
    file = str(address)
    joined, about = read_joined(address)
    rows = [row for row in joined if run is None or row["run"] == run]
    kept = [row for row in rows if every or row["propensity"] is not None]
    if not kept:
        known = "" if run is None else f" of run {run}"
        raise L2DError(f"{file}: no decision{known} with an outcome; POST /v1/outcomes records them")
    deciding = dict.fromkeys(row["run"] for row in kept)
    runs = {name: RunInputs.read(about[name]) for name in deciding if name in about}
    check_units(file, kept, runs)
    columns = {name: [row[name] for row in kept] for name in ("expert", "router_choice")}
    if all(row["correct"] is not None for row in kept):
        columns["correct"] = [row["correct"] for row in kept]
    else:
        columns["loss"] = [row["loss"] if row["correct"] is None else 1 - row["correct"] for row in kept]
    columns |= {name: [row[name] for row in kept] for name in ("price", "latency", "propensity")}
    columns["time"] = [round(row["time"], 3) for row in kept]
    if any(one.unit.error_price is not None for one in runs.values()):  # runs may differ in what a wrong answer costs
        columns[SCALE] = [runs[row["run"]].unit.scale if row["run"] in runs else None for row in kept]
    filled = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    filled = {"id": [row["id"] for row in kept], **inputs_of_rows(file, kept, runs), **filled}
    calls = [row.get("calls", []) for row in kept]
    return LongForm(filled, len(rows) - len(kept), runs.get(kept[-1]["run"]), calls)


def read_joined(address: Path | str) -> tuple[list[Any], dict[str, str]]:
    """The decisions with an outcome, and what the log says about each run."""
    if isinstance(address, Path) and not address.is_file():
        raise L2DError(f"{address}: no such file; give the log of l2d serve")
    with reading(address) as database:  # decisions and calls of one moment
        # Earlier versions had fewer tables. A reader must not migrate: it may have no right to write.
        version = database.version()
        runs = database.rows("SELECT name, about FROM runs") if version >= WITH_RUNS else []
        calls = defaultdict(list)
        for call in database.rows(CALLS) if version >= WITH_CALLS else []:
            calls[call["decision_id"]].append(call)
        rows = [with_calls(row, calls[row["id"]]) for row in database.rows(JOINED)]
        return rows, {row["name"]: row["about"] for row in runs}


def with_calls(row: dict[str, Any], calls: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of a decision, about its first answer; without a propensity if one of several failed or has no outcome."""
    wrong: dict[str | None, Any] = {one["same_as"]: error_of(one) for one in calls if error_of(one) is not None}
    if given := [one["same_as"] for one in calls if one["expert"] == row["expert"]]:
        wrong[given[0]] = error_of(row)
    told = [one | {"right": 1 - wrong[one["same_as"]]} for one in calls if one["same_as"] and one["same_as"] in wrong]
    if len(told) < len(calls):
        return row | ({"propensity": None} if len(calls) > 1 else {})
    if len(calls) < 2:
        return row | ({"calls": told, "propensity": told[0]["propensity"]} if told else {})
    first = {name: told[0][name] for name in ("expert", "propensity", "price", "latency")}
    outcome = {"correct": told[0]["right"], "loss": None} if row["loss"] is None else {"loss": 1 - told[0]["right"]}
    return row | first | outcome | {"calls": told}


def error_of(found: Mapping[str, Any]) -> float | None:
    if found["loss"] is not None:
        return float(found["loss"])
    return None if found["correct"] is None else 1 - float(found["correct"])


def check_units(file: str, rows: Sequence[Any], runs: Mapping[str, RunInputs]) -> None:
    priced = {row["run"] for row in rows if row["price"] is not None}
    for one, other in combinations([name for name in runs if name in priced], 2):
        if not runs[one].unit.fits(runs[other].unit):
            problem = f"the runs {one} and {other} count prices in different units (cost.error_price)"
            raise L2DError(f"{file}: {problem}; {ONE_RUN}")


def inputs_of_rows(file: str, rows: Sequence[Any], runs: Mapping[str, RunInputs]) -> dict[str, Any]:
    """The column prompt, or the numbers that the router saw; empty in rows of which nothing was kept. runs: by the log, if any."""
    texts, about = [row["text"] for row in rows], [*runs.values()]
    seen = [row["features"] for row in rows if row["features"] is not None]
    from_text = any(text is not None for text in texts)
    if not seen:
        return {TEXT: texts} if from_text else {}
    unknown = runs and any(row["run"] not in runs for row in rows if row["features"] is not None)
    alike = [(one.shape, one.seen.columns, one.encoder, one.reading) for one in about]
    unlike = len({len(one) for one in seen}) > 1 or any(one != alike[0] for one in alike)
    if from_text or unlike or unknown:
        raise L2DError(f"{file}: its rows have different inputs; {ONE_RUN}")
    width = len(seen[0]) // 4
    found = np.full((len(rows), width), np.nan, dtype="<f4")
    found[[row["features"] is not None for row in rows]] = np.frombuffer(b"".join(seen), "<f4").reshape(-1, width)
    names = about[0].column_names(width) if about else [f"{NUMBER}{place}" for place in range(1, width + 1)]
    return dict(zip(names, found.T, strict=True))
