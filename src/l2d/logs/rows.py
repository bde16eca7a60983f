"""The rows of a log that training and off-policy estimates take, from the log of l2d serve or from its export. Light: no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from l2d.core.prices import PriceUnit
from l2d.data.arrays import Seen
from l2d.data.sets.long_log import money_of_answers
from l2d.data.sheet import KINDS, read_header, read_sheet
from l2d.logs.export import EMBEDDED, NUMBER, SCALE, TEXT, RunInputs, read_long_form
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import counted, listed

LIMITED = ("correct", "propensity")  # to 1; other amounts of an export have no upper limit
NO_CHANCE = "without a propensity"


@dataclass(frozen=True)
class LoggedRows:
    """n decisions with an outcome, whose expert a policy chose. Numbers are NaN where they are not known."""

    file: str  # for messages
    ids: np.ndarray
    experts: np.ndarray
    errors: np.ndarray  # 1 − correct, or the loss
    prices: np.ndarray
    latencies: np.ndarray
    propensities: np.ndarray
    texts: np.ndarray | None  # what the router read, or
    features: np.ndarray | None  # the numbers that it saw [n, F]; the other is None
    columns: tuple[str, ...]  # the names of the features, without their prefixes
    embedded: bool  # whether the features at the end are what an encoder made of a text
    about: RunInputs | None  # None: an export does not say
    scales: np.ndarray  # what the runs that decided multiplied prices by
    calls: np.ndarray | None = None  # see LongForm; None for an export
    left_out: Mapping[str, int] = field(default_factory=dict)  # how many other rows the file has, by the reason

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, kept: np.ndarray) -> "LoggedRows":
        parts = {name: part[kept] for name, part in vars(self).items() if isinstance(part, np.ndarray)}
        return replace(self, **parts)

    @property
    def seen(self) -> Seen:
        """The inputs of the run that decided. An export has its columns; f_1, f_2, … are numbers without names."""
        if self.about is not None:
            return self.about.seen
        unnamed = self.columns == tuple(str(place) for place in range(1, len(self.columns) + 1))
        return Seen(() if unnamed else self.columns, TEXT if self.embedded or self.texts is not None else None)

    @property
    def unit(self) -> PriceUnit:
        return PriceUnit.of_rows(self.scales.tolist(), dollars=False)

    @property
    def expert_names(self) -> tuple[str, ...]:
        """In the run's order; without a run in the order of their names."""
        found = sorted({*self.experts.tolist()})
        first = [] if self.about is None else [name for name in self.about.experts if name in found]
        return (*first, *(name for name in found if name not in first))


def read_rows(address: Path | str, run: str | None = None) -> LoggedRows:
    """address: of the log, or its export. run: only its decisions. Left out: rows without a propensity or inputs."""
    file = str(address)
    if not isinstance(address, Path) or address.suffix.lower() not in KINDS:
        found = read_long_form(address, run)
        calls = np.fromiter(found.calls, dtype=object, count=len(found.calls))
        rows, left_out = replace(rows_of(file, found.columns, found.about), calls=calls), {NO_CHANCE: found.left_out}
    elif run is not None:
        raise ParameterError("run", "an export does not say which run decided; l2d log export --run chooses", run)
    else:
        rows, left_out = rows_of(file, read_export(address), None), {}
    kept = np.ones(len(rows), dtype=bool)
    for why, lacking in gaps_of(rows).items():
        left_out[why] = left_out.get(why, 0) + int((kept & lacking).sum())
        kept &= ~lacking
    if not kept.any():
        raise L2DError(f"{file}: no decision with an outcome, a propensity and inputs")
    return replace(rows.take(kept), left_out=left_out)


def gaps_of(rows: LoggedRows) -> dict[str, np.ndarray]:
    """Which rows lack what every row must have, bool [n], in words."""
    if rows.texts is not None:
        unseen = np.array([text is None or not text.strip() for text in rows.texts.tolist()])
    elif rows.features is not None:
        unseen = np.isnan(rows.features).any(axis=1)
    else:
        raise L2DError(f"{rows.file}: the log kept no inputs (--keep none); serve with --keep features or text")
    missing = {"without an outcome": np.isnan(rows.errors), NO_CHANCE: np.isnan(rows.propensities)}
    return missing | {"without inputs": unseen}


def left_out_note(left_out: Mapping[str, int]) -> str:
    """The numbers of rows that were left out, by the reason; empty if none were."""
    return "".join(f"; left out: {counted(number, 'row')} {why}" for why, number in left_out.items() if number)


def explored_rows(rows: LoggedRows) -> LoggedRows:
    """Without rows whose expert was certain: they say nothing of what others would have done. Refuses to leave none."""
    found = rows.take(rows.propensities < 1)
    if not len(found):
        raise L2DError(f"{rows.file}: no row was explored (l2d serve --explore), so the experts cannot be compared")
    return found


def read_export(file: Path) -> dict[str, Any]:
    """The columns of an export, as `read_long_form` gives them."""
    names = read_header(file).names if file.is_file() else []
    sheet = read_sheet(file, [name for name in ("id", TEXT, "expert") if name in names])
    outcome = "loss" if "loss" in sheet.names else "correct"
    seen = [name for name in sheet.names if name.startswith((NUMBER, EMBEDDED))]
    absent = [name for name in ("expert", "propensity", outcome) if name not in sheet.names]
    if TEXT not in sheet.names and not seen:
        absent.append(f"{TEXT} (the text that the router reads) or {NUMBER}NAME (numbers that it sees)")
    if absent:
        raise L2DError(f"{file}: no column {listed(absent)}; there are {listed(sheet.names)}")
    if (money := money_of_answers(sheet)) not in ([], ["price"]):
        raise L2DError(f"{file}: column {money[0]}: the price of an answer is in the column price; rename it")
    numbers = [name for name in ("correct", "loss", "price", "latency", "propensity", SCALE) if name in sheet.names]
    texts = {TEXT: sheet.columns[TEXT].to_pylist()} if TEXT in sheet.names else {}
    if "id" in sheet.names:
        first = np.unique(sheet.words("id"), return_index=True)[1]
        sheet.refuse("id", "given before", ~np.isin(np.arange(len(sheet)), first))
    found = {name: sheet.numbers(name, gaps=True) for name in (*numbers, *seen)}
    for name in numbers:
        most = 1 if name in LIMITED else np.inf
        sheet.refuse(name, f"not from 0 to {most:g}", (found[name] < 0) | (found[name] > most))
    sheet.refuse("propensity", "not above 0", found["propensity"] <= 0)
    ids = sheet.columns["id"].to_pylist() if "id" in sheet.names else [f"row {row + 1}" for row in range(len(sheet))]
    return {"id": ids, **found, **texts, "expert": sheet.words("expert")}


def rows_of(file: str, columns: Mapping[str, Any], about: RunInputs | None) -> LoggedRows:
    unknown = np.full(len(columns["id"]), np.nan)
    seen = [name for name in columns if name.startswith((NUMBER, EMBEDDED))]
    return LoggedRows(
        file,
        ids=np.array(columns["id"], dtype=str),
        experts=np.array(columns["expert"], dtype=str),
        errors=as_floats(columns["loss"]) if "loss" in columns else 1 - as_floats(columns["correct"]),
        prices=as_floats(columns.get("price", unknown)),
        latencies=as_floats(columns.get("latency", unknown)),
        propensities=as_floats(columns.get("propensity", unknown)),
        texts=np.array(columns[TEXT], dtype=object) if TEXT in columns else None,
        features=np.stack([as_floats(columns[name]) for name in seen], axis=1, dtype=np.float32) if seen else None,
        columns=tuple(name.removeprefix(NUMBER) for name in seen if not name.startswith(EMBEDDED)),
        embedded=any(name.startswith(EMBEDDED) for name in seen),
        about=about,
        scales=as_floats(columns.get(SCALE, unknown)),
    )


def as_floats(cells: Sequence[float | None] | np.ndarray) -> np.ndarray:
    return np.asarray(cells, dtype=np.float64)
