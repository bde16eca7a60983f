"""Cells as people write them."""

import math
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from l2d.data.cells import NOTHING, amounts, cell_amount, missing
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("0.5", 0.5), (" 1e-3 ", 1e-3), (True, 1.0), ("FALSE", 0.0), ("Yes", 1.0), ("down", 0.0), ("👍🏽", 1.0), ("👎", 0.0),
        ("pass", 1.0), ("Failed", 0.0), ("thumbs up", 1.0), ("✓", 1.0), ("✔️", 1.0), ("✗", 0.0), ("$0.0021", 0.0021),
        ("0.0021 USD", 0.0021), ("US$ 3", 3.0), ("$1,204.50", 1204.5), ("2$", 2.0), ("0.5 ct", 0.005), ("-$1", math.nan),
        ("1,204 ms", 1.204), ("1.2 s", 1.2), ("350ms", 0.35), ("2 min", 120.0), ("1,204", 1204.0), ("1,234,567", 1234567.0),
        ("0,002", math.nan), ("12,34", math.nan), ("$1 USD", math.nan), ("€3", math.nan), ("1_000", math.nan), ("$", math.nan),
        ("maybe", math.nan), ("n/a", math.nan), ("", math.nan), (None, math.nan), ("ms", math.nan),
    ],
)  # fmt: skip
def test_amounts_are_dollars_seconds_or_shares(cell: object, value: float) -> None:
    assert cell_amount(cell) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["0,0021 USD", "$1.5", "1,204", 2, "0,3 ct"], [0.0021, 1.5, 1.204, 2, 0.003]),
        (["1,204", "10,500", "2.5"], [1204, 10500, 2.5]),
        (["850,2 ms", "1204,5 ms"], [0.8502, 1.2045]),
    ],
)
def test_one_decimal_comma_tells_what_all_commas_of_a_column_are(cells: list[object], values: list[float]) -> None:
    assert amounts(cells) == pytest.approx(values)


def test_a_long_run_of_digits_takes_no_time() -> None:
    begun = time.process_time()
    assert math.isnan(cell_amount("0" * 20_000 + " and so on"))
    assert time.process_time() - begun < 1


def test_a_plain_number_has_the_unit_of_its_column() -> None:
    assert [cell_amount(cell, plain=1e-3) for cell in ("500", 500, "1,500", "2 s", "$2")] == [0.5, 0.5, 1.5, 2, 2]


def test_nothing_is_empty_among_numbers_alone() -> None:
    cells = pa.chunked_array([["1", "n/a", None, "-", "NULL", "none", " "]])
    assert missing(cells, NOTHING).tolist() == [False] + [True] * 6
    assert missing(cells).tolist() == [False, False, True, False, False, False, True]
    sheet = Sheet(Path("t.csv"), {"x": cells, "note": cells}).without_nothing(["x"])
    np.testing.assert_equal(sheet.numbers("x", gaps=True), [1] + [math.nan] * 6)
    assert sheet.words("note", gaps=True)[1] == "n/a"


def test_times_of_several_kinds() -> None:
    """The same second: with a zone, without one (UTC), in seconds and in milliseconds since 1970."""
    written = [
        "2026-01-01T01:00:00+01:00",
        "2026-01-01 00:00:00",
        "2026-01-01T00:00:00Z",
        "1767225600",
        "1767225600000",
    ]
    assert Sheet(Path("t.csv"), {"t": pa.chunked_array([written])}).times("t").tolist() == [1767225600.0] * 5
    counts = Sheet(Path("t.csv"), {"t": pa.chunked_array([[1.0, 2e12]])})
    assert counts.times("t").tolist() == [1.0, 2e12]  # numbers alone count in whatever they do


def test_faults_are_collected_once_each() -> None:
    cells = {"x": pa.chunked_array([["1", "two", "-3"]]), "y": pa.chunked_array([[1.0, None, None]])}
    faults: dict[tuple[str, str], str] = {}
    sheet = Sheet(Path("t.csv"), cells, faults=faults)
    for _ in range(2):
        values = sheet.numbers("x")
        sheet.refuse("x", "negative", values < 0)
        sheet.take(np.array([True, True, False])).numbers("y")
    assert [column for column, _ in faults] == ["x", "x", "y"]
    assert "in 1 of 2 rows: 2" in [*faults.values()][2]
    with pytest.raises(L2DError, match="column x"):
        Sheet(Path("t.csv"), cells).numbers("x")
