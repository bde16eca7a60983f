"""Reads what experts said: the columns answer_NAME, confidence_NAME and length_NAME of a table."""

from collections.abc import Iterable, Sequence

import numpy as np

from l2d.data.agreement import Said, as_text
from l2d.data.sets.outcomes import ANSWER, CONFIDENCE, LENGTH, OUTCOMES, SAID, Expert, cell_amounts
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError
from l2d.utils.text import counted, listed


def reply_columns(names: Sequence[str], experts: Iterable[str]) -> list[str]:
    """The columns of what these experts said, and of all others that have an outcome."""
    known = {name.removeprefix(f"{kind}_") for name in names for kind in OUTCOMES if name.startswith(f"{kind}_")}
    known |= {*experts}
    return [name for name in names for begin in SAID if name.startswith(begin) and name.removeprefix(begin) in known]


def read_said(sheet: Sheet, experts: Sequence[Expert], asked: np.ndarray) -> Said | None:
    """asked: bool [n, p]. None if the table says nothing of it. A prediction is an answer too."""
    columns = {expert.name: _answer_column(sheet, expert) for expert in experts}
    numbers = [_numbers(sheet, begin, list(columns)) for begin in (CONFIDENCE, LENGTH)]
    explicit = any(column.startswith(ANSWER) for column in columns.values())
    if not explicit and "" in columns.values():
        return None if all(np.isnan(values).all() for values in numbers) else Said(None, *numbers)
    if absent := [f"{ANSWER}{name}" for name, column in columns.items() if not column]:
        raise L2DError(f"{sheet.path}: no column {listed(absent)}; give every expert one, or none")
    own = reply_columns(sheet.names, columns)
    others = [name for name in sheet.names if name.startswith(ANSWER) and name not in own]
    for name in others if explicit and not sheet.made else ():
        needed = f"correct_{name.removeprefix(ANSWER)}"
        sheet.fault(name, f"an answer without an outcome; add {needed}, or rename it if it is something else")
    cells = [[as_text(cell) for cell in sheet.columns[column].to_pylist()] for column in columns.values()]
    answers = np.array(cells, dtype=object).T
    for expert in (experts[k].name for k in Said.experts_without(answers)):
        sheet.fault(columns[expert], f"{expert} has no answer; add some, or leave it out (dataset.experts)")
    if lost := int(((answers != None) & ~asked).sum()):  # noqa: E711 (of each cell)
        sheet.note(f"{counted(lost, 'answer')} without an outcome: not used")
    return Said(answers, *numbers)


def _answer_column(sheet: Sheet, expert: Expert) -> str:
    own = f"{ANSWER}{expert.name}"
    return own if own in sheet.names else expert.column if expert.outcome == "prediction" else ""


def _numbers(sheet: Sheet, begin: str, experts: list[str]) -> np.ndarray:
    """float64 [n, p], NaN where a cell is empty or an expert has no such column."""
    nothing = np.full(len(sheet), np.nan)
    columns = [f"{begin}{name}" for name in experts]
    return np.stack([cell_amounts(sheet, name, begin) if name in sheet.names else nothing for name in columns], axis=1)
