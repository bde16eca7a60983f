"""CSV, Parquet and JSONL files as tables of pyarrow."""

import csv
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from l2d.utils.errors import L2DError
from l2d.utils.text import listed

MARKS = (",", ";", "\t", "|")  # between cells


def read_table(path: Path, texts: Sequence[str]) -> Any:
    """A table of pyarrow. texts: columns of a CSV to read as text."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if path.suffix.lower() == ".parquet":
            table = parquet.ParquetFile(path).read()
        else:
            table = _read_csv(path, texts) if path.suffix.lower() == ".csv" else _read_lines(path)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    check_names(path, table.column_names)
    return table


def read_names(path: Path) -> list[str]:
    """The columns of a CSV or Parquet file, from its header alone."""
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            names = parquet.read_schema(path).names
        else:
            with path.open(newline="", encoding="utf-8-sig") as lines:
                names = next(csv.reader(lines, delimiter=mark_of(path)), [])
    except ValueError as error:  # pyarrow's errors are ValueErrors too
        raise _unreadable(path, error) from error
    check_names(path, names)
    return names


def _unreadable(path: Path, error: Exception) -> L2DError:
    return L2DError(f"{path}: cannot be read ({' '.join(str(error).split())})")


def check_names(path: Path, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise L2DError(f"{path}: more than one column is called {listed(twice)}")
    if odd := [repr(name) for name in names if not name or name != name.strip()]:
        raise L2DError(f"{path}: column {listed(odd)}: no name, or spaces around it; pandas: to_csv(index=False)")


def mark_of(path: Path) -> str:
    """What stands between the cells of a CSV: the first of MARKS that its header has."""
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        head = lines.readline()
    return next((mark for mark in MARKS if mark in head), MARKS[0])


def _read_csv(path: Path, texts: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    content = path.read_bytes()
    _decoded(path, content)
    mark = mark_of(path)
    # One block: a column's type then follows from all of its cells. One thread: rows keep their numbers.
    read = arrow_csv.ReadOptions(use_threads=False, block_size=min(len(content) + 1, 2**31 - 1))
    parse = arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    # n/a and the like are no nulls: a message should show them.
    convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()), null_values=[""])
    table = arrow_csv.read_csv(pa.BufferReader(content), read, parse, convert)
    for place, name in enumerate(table.column_names if mark == ";" else ()):
        with suppress(pa.ArrowException):  # no column of numbers, or one already
            if name not in texts:  # 0,5: a comma stands in numbers
                table = table.set_column(place, name, pc.replace_substring(table[place], ",", ".").cast(pa.float64()))
    return table


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise L2DError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from None


def _read_lines(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import json as arrow_json

    size = min(path.stat().st_size + 1, 2**31 - 1)
    try:
        return arrow_json.read_json(path, read_options=arrow_json.ReadOptions(use_threads=False, block_size=size))
    except pa.ArrowInvalid:  # a line that is no JSON, or a key with values of several kinds
        return _mixed_lines(path)


def _mixed_lines(path: Path) -> Any:
    """Slower than Arrow. Values of several kinds under one key become text, as in a CSV: so a message shows the wrong ones."""
    import pyarrow as pa

    rows = []
    for number, line in enumerate(_decoded(path, path.read_bytes()).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_json_object)
        except ValueError as error:
            raise L2DError(f"{path}: line {number} is not JSON ({getattr(error, 'msg', error)})") from None
        if not isinstance(row, dict):
            raise L2DError(f'{path}: line {number} is not an object, such as {{"id": 1}}')
        rows.append(row)
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _json_cells([row.get(name) for row in rows]) for name in names})


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := {whole_characters(name): whole_characters(value) for name, value in pairs}) < len(pairs):
        raise ValueError("the same key twice")
    return found


def whole_characters(cell: Any) -> Any:
    """Half of a character, left where a text was cut within an emoji, becomes a question mark: no file can hold it."""
    return cell.encode(errors="replace").decode() if isinstance(cell, str) else cell


def _json_cells(cells: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return pa.array([cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells])
