"""Cells of a sheet as numbers, words and times."""

from datetime import UTC, datetime
from typing import Any

import numpy as np

EMPTY = ("", "nan")
TEXT = ("string", "large_string")  # types of pyarrow
TRUTH = {"true": 1.0, "false": 0.0}
YES_NO = {"yes": 1.0, "no": 0.0}  # only where a number is expected: "no" may also be Norwegian
WHOLE = 2.0**53  # beyond it floats skip whole numbers


def missing(cells: Any) -> np.ndarray:
    """bool [n], true for empty cells: null, NaN, or a word in EMPTY."""
    if str(cells.type) in TEXT:
        return np.array([cell is None or cell.strip().lower() in EMPTY for cell in cells.to_pylist()], dtype=bool)
    return np.asarray(cells.is_null(nan_is_null=True))


def floats(cells: Any) -> np.ndarray:
    """float64 [n], NaN where a cell is empty or not a number."""
    import pyarrow as pa

    if pa.types.is_boolean(cells.type) or pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
        return np.array(cells.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)  # a copy that can be written
    return np.array([cell_number(cell) for cell in cells.to_pylist()], dtype=np.float64)


def cell_number(cell: object) -> float:
    """The number in a cell, or the one in TRUTH; NaN if there is none."""
    text = str(cell).strip().lower()
    if text in TRUTH:
        return TRUTH[text]
    try:
        return float("nan") if "_" in text else float(text)  # Python reads 1_2 as 12
    except ValueError:
        return float("nan")


def cell_word(cell: object) -> str:
    """Whole numbers without a point; text without the space around it."""
    value = cell_number(cell)
    if not abs(value) < WHOLE:
        return str(cell).strip()
    return str(int(value)) if value.is_integer() else repr(value)


def seconds_of(cell: str) -> float:
    """Seconds of a time in ISO 8601, UTC unless it has a zone; NaN for anything else."""
    try:
        time = datetime.fromisoformat(cell.strip())
    except ValueError:
        return float("nan")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
