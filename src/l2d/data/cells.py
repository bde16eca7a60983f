"""Cells of a sheet as numbers, words and times."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

EMPTY = ("", "nan")
NOTHING = (*EMPTY, "na", "n/a", "null", "none", "-", "?", "unknown")  # only in columns of numbers: a word may be none
TEXT = ("string", "large_string")  # types of pyarrow
TRUTH = {"true": 1.0, "false": 0.0}
# Only where a number is expected: "no" may also be Norwegian.
YES = ("yes", "y", "up", "thumbs up", "👍", "pass", "passed", "right", "correct", "good", "ok", *"✓✔✅")
NO = ("no", "n", "down", "thumbs down", "👎", "fail", "failed", "wrong", "incorrect", "bad", *"✗✘❌")
YES_NO = dict.fromkeys(YES, 1.0) | dict.fromkeys(NO, 0.0)
SKIN = re.compile("[\U0001f3fb-\U0001f3ff\ufe0f]")  # tones of emojis
UNITS = {"$": 1, "us$": 1, "usd": 1, "ct": 0.01, "ms": 1e-3, "s": 1, "sec": 1, "min": 60}  # to dollars and seconds
DOLLARS = re.compile(r"\$|usd|\d *ct$", re.IGNORECASE)
NUMBER = r"[-+]?(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?|\d++\.?\d*|\.\d+)(?:e[-+]?\d+)?"
AMOUNT = re.compile(rf"(us\$|usd|\$)?\s*({NUMBER})\s*(us\$|usd|\$|ct|ms|s|sec|min)?")
DECIMAL = re.compile(r"\D{0,4}(?:0,\d|\d+,\d\d?(?!\d))")  # 0,0021 and 850,2 have no comma between thousands
WHOLE = 2.0**53  # beyond it floats skip whole numbers


def missing(cells: Any, words: tuple[str, ...] = EMPTY) -> np.ndarray:
    """bool [n], true for empty cells: null, NaN, or one of these words."""
    if str(cells.type) in TEXT:
        return np.array([cell is None or cell.strip().lower() in words for cell in cells.to_pylist()], dtype=bool)
    return np.asarray(cells.is_null(nan_is_null=True))


def filled_cells(cells: Any) -> list[Any]:
    """Without n/a and the like."""
    return [cell for cell, gap in zip(cells.to_pylist(), missing(cells, NOTHING), strict=True) if not gap]


def floats(cells: Any) -> np.ndarray:
    """float64 [n], NaN where a cell is empty or not a number."""
    import pyarrow as pa

    if pa.types.is_boolean(cells.type) or pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
        return np.array(cells.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)  # a copy that can be written
    return np.array([np.nan if cell is None else cell_number(cell) for cell in cells.to_pylist()], dtype=np.float64)


def cell_number(cell: object) -> float:
    """The number in a cell, or the one in TRUTH; NaN if there is none."""
    text = str(cell).strip().lower()
    if text in TRUTH:
        return TRUTH[text]
    try:
        return float("nan") if "_" in text else float(text)  # Python reads 1_2 as 12
    except ValueError:
        return float("nan")


def cell_amount(cell: object, plain: float = 1.0) -> float:
    """The number, dollars or seconds in a cell, 1 or 0 for a word in YES_NO, else NaN. plain: the unit of plain numbers."""
    if (value := cell_number(cell)) == value:  # not NaN
        return value * plain
    text = SKIN.sub("", str(cell).strip().lower())
    match = AMOUNT.fullmatch(text)
    if match is None or (match[1] and match[3]):
        return YES_NO.get(text, float("nan"))
    unit = match[1] or match[3]
    return float(match[2].replace(",", "")) * (UNITS[unit] if unit else plain)


def amounts(cells: Sequence[object], plain: float = 1.0, *, commas: bool = False) -> list[float]:
    """The amounts in a column's cells. If one of them has a decimal comma, or `commas` says so, all commas are."""
    if commas or any(DECIMAL.match(cell) for cell in cells if isinstance(cell, str)):
        cells = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
    return [cell_amount(cell, plain) for cell in cells]


def says_dollars(cells: Any) -> bool:
    """True if some cell has the sign or the name of the currency, or of its cents."""
    return str(cells.type) in TEXT and any(DOLLARS.search(str(cell)) for cell in cells.to_pylist())


def cell_word(cell: object) -> str:
    """Whole numbers without a point; text without the space around it."""
    value = cell_number(cell)
    if not abs(value) < WHOLE:
        return str(cell).strip()
    return str(int(value)) if value.is_integer() else repr(value)


def cell_words(cells: Any) -> list[str]:
    """Empty ones are ""."""
    return ["" if gap else cell_word(cell) for cell, gap in zip(cells.to_pylist(), missing(cells), strict=True)]


def seconds_of(cell: str) -> float:
    """Seconds of a time in ISO 8601, UTC unless it has a zone; NaN for anything else."""
    try:
        time = datetime.fromisoformat(cell.strip())
    except ValueError:
        return float("nan")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
