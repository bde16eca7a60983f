"""The rows of a table and what its columns mean, with all faults of its cells. Light to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from l2d.data.agreement import Said
from l2d.data.arrays import NO_OUTCOME, Seen
from l2d.data.cells import floats, missing, seconds_of
from l2d.data.sets.outcomes import Expert, amounts_beside, amounts_of, columns_beside, read_said
from l2d.data.sets.table_columns import Named, categories_of, feature_columns, roles_of, with_a_row_per_query
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import counted, listed

MOST = 20_000  # rows without an outcome of which prices are learned


@dataclass(frozen=True)
class TableRows:
    """A table as it was read. roles: of columns that a router must not see. words: the labels. amounts: the parts of Answers.
    some_left_out: whether rows without an outcome were. priced: those of them that have a price, and their amounts."""

    sheet: Sheet
    experts: list[Expert]
    roles: dict[str, str]
    seen: Seen
    words: list[str] | None
    texts: list[str] | None
    amounts: dict[str, np.ndarray] | None
    said: Said | None
    some_left_out: bool
    priced: tuple[Sheet, dict[str, np.ndarray]] | None
    rows_per_day: float | None


def read_rows(sheet: Sheet, named: Named, find_experts: Callable[[Sheet], list[Expert]]) -> TableRows:
    """From a sheet that collects its faults."""
    days = _days(sheet, named.split_by or "time")  # before a log loses its times
    sheet = with_a_row_per_query(sheet, named)
    experts = find_experts(sheet)  # first: a log whose outcome is misspelt is no table, and its ids may repeat
    whole = _kept_rows(sheet, named)
    asked = _asked_rows(whole, experts, named.experts is not None)
    sheet = whole if asked.all() else whole.take(asked)
    roles = roles_of(sheet, named, experts)
    features = feature_columns(sheet, named, roles, experts)
    words_of = categories_of(sheet, features)
    commas = tuple(name for name in features if name not in words_of and sheet.has_commas(name))
    seen = Seen(tuple(features), named.text, named.image, categories=words_of, commas=commas)
    words = None if named.label is None else sheet.words(named.label)
    texts = None if named.text is None else sheet.texts(named.text)
    amounts = amounts_of(sheet, experts, words) if experts else None
    said = None if amounts is None else read_said(sheet, experts, ~np.isnan(amounts["errors"]))
    for column in (column for column in (named.category, named.split) if column is not None):
        sheet.words(column)
    for column in (name for name in features if name not in seen.categories):
        sheet.numbers(column)
    if named.split_by is not None:
        sheet.times(named.split_by)
    rate, lacking = len(sheet) / days if days else None, not asked.all()
    apart = named.split_by is None and named.split is None  # else these rows may be of the test's time
    more = _priced_rows(whole.take(~asked), experts, seen) if lacking and apart else None
    priced = None if more is None else (more, amounts_beside(more, experts))
    return TableRows(sheet, experts, roles, seen, words, texts, amounts, said, lacking, priced, rate)


def _days(sheet: Sheet, column: str) -> float | None:
    """From the first to the last time in a column; None without times. The unit of numbers is not known."""
    if column not in sheet.columns or not np.isnan(floats(sheet.columns[column])).all():
        return None
    times = [seconds for cell in sheet.columns[column].to_pylist() if (seconds := seconds_of(str(cell))) == seconds]
    return (max(times) - min(times)) / 86_400 if times else None


def _kept_rows(sheet: Sheet, named: Named) -> Sheet:
    """The rows of the categories to keep that a router can read. Duplicate ids are refused: they may be on both sides."""
    if "id" in sheet.columns:
        ids = [str(value) for value in sheet.columns["id"].to_pylist()]
        repeated = ~np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1])
        sheet.refuse("id", "an id that an earlier row has (rename the column if it is not an id)", repeated)
    if named.category is not None and named.only is not None:
        sheet.check_column("category", named.category)
        found = sheet.words(named.category)
        if unknown := [name for name in named.only if name not in found]:
            problem = f"no row has {named.category}={unknown[0]}; there are {listed(sorted(set(found)))}"
            raise ParameterError("only", problem, unknown[0])
        sheet = sheet.take(np.array([category in named.only for category in found]))
    empty = missing(sheet.columns[named.text]) if named.text and named.text in sheet.columns else np.zeros(0, bool)
    if empty.any() and not empty.all():
        sheet.note(f"left out {counted(int(empty.sum()), 'row')} without a text in {named.text}")
        return sheet.take(~empty)
    return sheet


def _asked_rows(sheet: Sheet, experts: list[Expert], chosen: bool) -> np.ndarray:
    """bool [n]: the rows with an outcome. chosen: whether the user chose the experts, so others may have been asked."""
    asked = np.ones(len(sheet), dtype=bool)
    if experts:
        asked = ~np.logical_and.reduce([missing(sheet.columns[expert.column]) for expert in experts])
    if not asked.any():
        raise L2DError(f"{sheet.path}: no row has an outcome of any expert")
    if not asked.all():
        lacking = f"an outcome of {listed([expert.name for expert in experts])}" if chosen else NO_OUTCOME
        sheet.note(f"left out {counted(int((~asked).sum()), 'row')} without {lacking}")
    return asked


def _priced_rows(sheet: Sheet, experts: list[Expert], seen: Seen) -> Sheet | None:
    """The rows with a price and all inputs, at most MOST of them; None if there are none. sheet: the rows without an outcome."""
    money = [missing(sheet.columns[column]) for column in columns_beside(sheet, experts).values()]
    found = ~np.logical_and.reduce(money or [np.ones(len(sheet), dtype=bool)]) & (seen.image is None)
    for name in seen.features if found.any() else ():
        cells = sheet.columns[name]
        found &= ~(missing(cells) if name in seen.categories else np.isnan(floats(cells)))
    if not found.any():
        return None
    sheet.note(f"{int(found.sum()):,} of these rows have a price, which counts for the expected prices")
    return sheet.take(found & (found.cumsum() % -(-found.sum() // MOST) == 0))
