"""Rows of a table: those that are kept, their ids, and those for training and test."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from l2d.data.arrays import NO_OUTCOME
from l2d.data.cells import missing
from l2d.data.sets.outcomes import Expert
from l2d.data.sets.table_columns import Named
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import Z, counted, listed

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_ID = 100


def kept_rows(sheet: Sheet, named: Named) -> Sheet:
    """The rows of the categories to keep. Duplicate ids are refused: a row could be in both the training and the test split."""
    if "id" in sheet.columns:
        ids = [str(value) for value in sheet.columns["id"].to_pylist()]
        repeated = ~np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1])
        sheet.refuse("id", "an id that an earlier row has (rename the column if it is not an id)", repeated)
    if named.category is None or named.only is None:
        return sheet
    sheet.check_column("category", named.category)
    found = sheet.words(named.category)
    if unknown := [name for name in named.only if name not in found]:
        problem = f"no row has {named.category}={unknown[0]}; there are {listed(sorted(set(found)))}"
        raise ParameterError("only", problem, unknown[0])
    return sheet.take(np.array([category in named.only for category in found]))


def asked_rows(sheet: Sheet, experts: list[Expert]) -> Sheet:
    """Without the rows on which no expert was asked."""
    if not experts:
        return sheet
    asked = ~np.logical_and.reduce([missing(sheet.columns[expert.column]) for expert in experts])
    if asked.all():
        return sheet
    if not asked.any():
        raise L2DError(f"{sheet.path}: no row has an outcome of any expert")
    sheet.note(f"left out {counted(int((~asked).sum()), 'row')} without {NO_OUTCOME}")
    return sheet.take(asked)


def row_ids(sheet: Sheet) -> np.ndarray:
    """The column id; without one, the numbers of the rows, from 1 for the first below the header."""
    if "id" in sheet.columns:
        found = [str(cell) for cell in sheet.columns["id"].to_pylist()]
        if max(map(len, found)) <= LONGEST_ID:  # an array gives all cells the length of the longest
            return np.array(found)
    return 1 + (np.arange(len(sheet)) if sheet.rows is None else sheet.rows)


def divided_rows(
    sheet: Sheet, named: Named, test_fraction: float, labels: Tensor, groups: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Training and validation rows, test rows (the same for every seed), and which of the former are validation rows."""
    from l2d.data.splits import draw_whole_groups, latest_rows, rows_of_split_column, stratified_split

    if named.split is not None:
        return rows_of_split_column(sheet, named.split, groups)
    if "split" in sheet.columns:
        raise ParameterError("split", "the table has a column split; say split=split, or rename the column")
    if named.split_by is not None:
        sheet.check_column("split_by", named.split_by)
        return *latest_rows(sheet.times(named.split_by), test_fraction, groups), None
    draw = partial(stratified_split, fraction=test_fraction, seed=0, parameter="test_fraction", strict=False)
    return *draw_whole_groups(draw, labels, groups), None


def note_drift(sheet: Sheet, errors: Tensor, train: Tensor, test: Tensor, experts: list[Expert]) -> None:
    """Print how each expert's mean error changed from the training rows to the later test rows, where it was asked."""
    changes = []
    for k, expert in enumerate(experts):
        known = [part[~part.isnan()] for part in (errors[train, k], errors[test, k])]
        if min(map(len, known)) < 2:
            changes.append(f"{expert.name} unknown")
            continue
        before, after = (float(part.mean()) for part in known)
        error = sum(float(part.var()) / len(part) for part in known) ** 0.5
        changes.append(f"{expert.name} {before:.4f} to {after:.4f} ({after - before:+.4f} ± {Z * error:.4f})")
    rows = f"from the {len(train):,} earlier rows to the {len(test):,} later ones"
    sheet.note(f"mean error {rows}, ± 95 %: {', '.join(changes)}")
