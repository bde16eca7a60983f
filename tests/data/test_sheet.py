"""Files of columns: how they are named, and how much of them a message shows."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from l2d.data.cells import cell_word, missing
from l2d.data.sheet import Sheet, read_header, read_sheet, write_sheet
from l2d.utils.errors import L2DError, ParameterError


@pytest.mark.parametrize("name", ["t.CSV", "t.parquet"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    """Also into a folder that is not there yet; the ending may be in capitals."""
    path = tmp_path / "new" / "folder" / name
    write_sheet(path, {"b": ["x", "y, z"], "a": [1.5, 2]})
    sheet = read_sheet(path)
    assert sheet.names == read_header(path).names == ["b", "a"]
    assert sheet.texts("b") == ["x", "y, z"]
    assert sheet.numbers("a").tolist() == [1.5, 2]
    assert [file.name for file in path.parent.iterdir()] == [name]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_times_in_nanoseconds_need_no_pandas(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    written, seconds = "2023-08-04T19:22:45.499127123Z", [1_691_176_965.499127]
    if name == "t.csv":
        (tmp_path / name).write_text(f"time\n{written}\n")
    else:
        time = pa.array([written]).cast(pa.timestamp("ns", "UTC"))
        parquet.write_table(pa.table({"time": time, "took": pa.array([1_500], pa.duration("ns"))}), tmp_path / name)
    sheet = read_sheet(tmp_path / name)
    assert sheet.times("time").tolist() == pytest.approx(seconds, abs=1e-5)
    assert all(len(sheet.columns[one].to_pylist()) == 1 for one in sheet.names)


def test_decimal_commas_beside_an_empty_cell(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b;word\n7,755;7,755;n/a\n1,5;n/a;x\n")
    sheet = read_sheet(tmp_path / "t.csv")
    assert sheet.numbers("a").tolist() == [7.755, 1.5]
    assert sheet.numbers("b", gaps=True)[0] == 7.755
    assert sheet.texts("word")[0] == "n/a"


def test_rows_keep_their_numbers_however_often_some_are_taken(tmp_path: Path) -> None:
    write_sheet(tmp_path / "t.csv", {"x": [0, 1, 2, 3, 4, 5]})
    some = read_sheet(tmp_path / "t.csv").take(np.arange(6) > 0).take(np.arange(5) % 2 == 0)
    assert isinstance(some, Sheet)
    assert some.numbers("x").tolist() == [1, 3, 5]
    with pytest.raises(L2DError, match=r"column x: odd in 2 of 3 rows: 4, 6, the first are '3' and '5' "):
        some.refuse("x", "odd", np.array([False, True, True]))


@pytest.mark.parametrize(
    ("name", "nothing"),
    [("t.csv", "no rows"), ("t.jsonl", None), ("t.parquet", "no rows")],
)
def test_faults_of_cells_and_columns(name: str, nothing: str | None, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "t.jsonl":
        path.write_text('{"x": "1"}\n{"x": "a"}\n')
    else:
        write_sheet(path, {"x": ["1", "a"]})
    sheet = read_sheet(path, ["x"])
    with pytest.raises(L2DError) as refused:
        sheet.numbers("x")
    assert str(refused.value).startswith(f"{path}: column x: not a number")
    assert "1 of 2 rows: 2, the first is 'a'" in str(refused.value)
    with pytest.raises(ParameterError, match=r"^label=y: no such column in .*; there are x$"):
        sheet.check_column("label", "y")
    with pytest.raises(ParameterError, match=r"^text=promt: .* prompt\?$"):
        Sheet(path, {"prompt": []}).check_column("text", "promt")
    (tmp_path / "empty.jsonl").write_text("{}\n")
    with pytest.raises(L2DError, match="no columns"):
        read_sheet(tmp_path / "empty.jsonl")
    if nothing is not None:
        write_sheet(path, {"x": []})
        with pytest.raises(L2DError, match=f": {nothing}$"):
            read_sheet(path)


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["a" * 40 + "b"], f"the first is '{'a' * 40}' "),
        (["2026-03-01T00:05:28"], "the first is '2026-03-01T00:05:28' "),
        ([""] * 2000, "2,000 of 2,000 rows: 1, 2, .* 12 and 1,988 more "),
    ],
)
def test_messages_show_some_rows_and_the_first_cell(cells: list[str], shown: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"x": cell}) + "\n" for cell in cells))
    with pytest.raises(L2DError, match=shown):
        read_sheet(tmp_path / "t.jsonl").numbers("x")


def test_cells_of_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfx,note\r\n1,"a, b\n""c"""\r\n\r\n2,d\r\n')
    sheet = read_sheet(path)
    assert read_header(path).names == sheet.names == ["x", "note"]
    assert sheet.numbers("x").tolist() == [1, 2]
    assert sheet.texts("note") == ['a, b\n"c"', "d"]
    assert missing(pa.chunked_array([["NaN", " nan ", "", "x", None]])).tolist() == [True, True, True, False, True]


@pytest.mark.parametrize(("mark", "numbers"), [(";", [1.5, -2.0]), ("\t", ["1,5", "-2"])])
def test_other_marks_between_cells(mark: str, numbers: list[object], tmp_path: Path) -> None:
    """As programs of countries with a decimal comma write a CSV: a byte order mark, commas in texts, empty cells."""
    rows = [["x", "name", "id"], ["1,5", "a, b", "007"], ["-2", "", "1,2"]]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(mark.join(row) for row in rows), encoding="utf-8-sig")
    sheet = read_sheet(path, ["id"])
    assert read_header(path).names == sheet.names == ["x", "name", "id"]
    assert {name: cells.to_pylist() for name, cells in sheet.columns.items()} == {
        "x": numbers, "name": ["a, b", ""], "id": ["007", "1,2"],
    }  # fmt: skip


def test_words() -> None:
    cells = (3, 3.0, " 3.0 ", True, "a b ", 0.5, "1_000", "no")
    assert [cell_word(cell) for cell in cells] == ["3", "3", "3", "1", "a b", "0.5", "1_000", "no"]
    assert cell_word("9007199254740993") != cell_word("9007199254740992")  # as floats they would be one


def test_text_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Also a cell of more than two megabytes, a block of Arrow's reader."""
    texts = ["024", "1.50", "true", "word " * 500_000]
    write_sheet(tmp_path / "t.csv", {"t": texts})
    assert read_sheet(tmp_path / "t.csv", ["t"]).texts("t") == texts
    write_sheet(tmp_path / "t.parquet", {"t": [1, 2]})
    with pytest.raises(L2DError, match="column t: not text but int64"):
        read_sheet(tmp_path / "t.parquet", ["t"]).texts("t")


def test_dates_in_strings_stay_as_they_are_written(tmp_path: Path) -> None:
    rows = [{"x": 1, "due": "2026-03-01", "at": "2026-03-01T00:00:01Z"}] * 2
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sheet = read_sheet(tmp_path / "t.jsonl")
    assert (sheet.names, sheet.words("due")) == (["x", "due", "at"], ["2026-03-01"] * 2)
    assert (sheet.times("at") - sheet.times("due")).tolist() == [1, 1]


def test_times_of_every_type(tmp_path: Path) -> None:
    """Nanoseconds are rounded; a time of day is none."""
    moment = datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)
    columns = {
        "text": ["2026-01-31T13:00:00.000005+01:00"],
        "number": [moment.timestamp()],
        "stamp": pa.array([int(moment.timestamp()) * 10**9 + 5_001], type=pa.timestamp("ns", tz="UTC")),
        "day": pa.array([moment.date()], type=pa.date32()),
        "clock": pa.array([moment.time()], type=pa.time64("us")),
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    sheet = read_sheet(tmp_path / "t.parquet")
    for name in ("text", "number", "stamp"):
        assert sheet.times(name).tolist() == pytest.approx([moment.timestamp()], abs=1e-6)
    assert sheet.times("day").tolist() == [datetime(2026, 1, 31, tzinfo=UTC).timestamp()]
    with pytest.raises(L2DError, match="column clock: not a time"):
        sheet.times("clock")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"a": 1}', '{"a": 2}', '{"a" 3}'], "line 3: not a JSON object"),
        (['{"a": 1}', "", "[2]"], "line 3: not a JSON object"),
        (['{"a": 1}', '{"a": "\xff"}'], "line 2: not a JSON object in UTF-8"),
        ([], "no columns"),
    ],
)
def test_lines_that_are_no_objects(lines: list[str], words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes("\n".join(lines).encode("latin-1"))
    with pytest.raises(L2DError, match=words):
        read_sheet(path)


def test_values_of_several_kinds_under_one_key(tmp_path: Path) -> None:
    """As in a CSV: a number among words is a word, and a message shows the wrong one by its line."""
    path = tmp_path / "t.jsonl"
    rows: list[dict[str, object]] = [
        {"a": True, "b": 1, "c": 1.5, "d": {"x": 1}},
        {"a": 0, "b": "yes", "c": 2, "d": [1]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"a": None, "b": "€3", "e": 1}]))
    sheet = read_sheet(path)
    assert sheet.names == ["a", "b", "c", "d", "e"]
    np.testing.assert_equal(sheet.numbers("a", gaps=True), [1, 0, np.nan])
    np.testing.assert_equal(sheet.numbers("c", gaps=True), [1.5, 2, np.nan])
    assert sheet.words("d", gaps=True) == ['{"x": 1}', "[1]", ""]
    with pytest.raises(L2DError, match=r"column b: not a number, .* in 1 of 3 rows: 3, the first is '€3'"):
        sheet.numbers("b")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['{"a": "hi \\ud83d"}', '{"a": "\\ud83d\\udc4d"}'], {"a": ["hi ?", "👍"]}),  # a whole one stays
        (['{"a": "cut \\ud83d"}', '{"a": 3}'], {"a": ["cut ?", "3"]}),
        (['{"a": 1, "b\\ud83d": 2}'], {"a": [1], "b?": [2]}),
    ],
)
def test_half_of_a_character_is_a_question_mark(lines: list[str], expected: object, tmp_path: Path) -> None:
    """A text that was cut within an emoji, beside cells of any kind or in a key."""
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(lines))
    assert {name: cells.to_pylist() for name, cells in read_sheet(path).columns.items()} == expected


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_half_of_a_character_is_written_as_a_question_mark(tmp_path: Path, suffix: str) -> None:
    write_sheet(tmp_path / f"t{suffix}", {"a\ud83d": ["hi \ud83d", "👍", None], "b": [1, None, 0.5]})
    sheet = read_sheet(tmp_path / f"t{suffix}")
    assert sheet.columns["a?"].to_pylist() == ["hi ?", "👍", None if suffix == ".parquet" else ""]
    assert sheet.columns["b"].to_pylist() == [1, None, 0.5]
