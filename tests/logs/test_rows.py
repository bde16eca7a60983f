"""The rows of an export, by hand."""

from pathlib import Path
from typing import Any

from l2d.data.sheet import write_sheet
from l2d.logs.rows import read_rows

REASONS = ("without a propensity", "without an outcome", "without inputs")


def test_a_row_that_lacks_two_things_is_left_out_once(tmp_path: Path) -> None:
    cells: dict[str, list[Any]] = {"id": [*"01234"], "expert": [*"abaab"], "f_x": [1.0, 2.0, None, 3.0, 4.0]}
    cells |= {"correct": [1.0, None, 0.0, 0.0, 1.0], "propensity": [0.5, None, 0.5, None, 0.25]}
    write_sheet(tmp_path / "export.csv", cells)
    rows = read_rows(tmp_path / "export.csv")
    assert (rows.errors.tolist(), rows.propensities.tolist()) == ([0.0, 0.0], [0.5, 0.25])
    assert {why: number for why, number in rows.left_out.items() if number} == dict.fromkeys(REASONS, 1)
