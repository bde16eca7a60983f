"""CSV, Parquet and JSONL files as tables of pyarrow."""

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from l2d.data.cells import NOTHING
from l2d.utils.errors import L2DError
from l2d.utils.text import listed

MARKS = (",", ";", "\t", "|")  # between cells


def read_table(path: Path, texts: Sequence[str]) -> Any:
    """A table of pyarrow. texts: columns of a CSV to read as text."""
    from pyarrow import parquet

    with _reading(path):
        if path.suffix.lower() == ".parquet":
            table = parquet.ParquetFile(path).read()
        else:
            table = _read_lines(path) if path.suffix.lower() == ".jsonl" else _read_csv(path, texts)
    _check_names(path, table.column_names)
    return table


def read_names(path: Path) -> list[str]:
    """The columns of a CSV or Parquet file, from its header alone."""
    with _reading(path):
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            names = parquet.read_schema(path).names
        else:
            with path.open(newline="", encoding="utf-8-sig") as lines:
                names = next(csv.reader(lines, delimiter=mark_of(path)), [])
    _check_names(path, names)
    return names


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:  # pyarrow's are some of these
        raise L2DError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error


def _check_names(path: Path, names: list[str]) -> None:
    if not names:
        raise L2DError(f"{path}: no columns")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise L2DError(f"{path}: more than one column is called {listed(twice)}")
    if odd := [repr(name) for name in names if not name or name != name.strip()]:
        raise L2DError(f"{path}: column {listed(odd)}: no name, or spaces around it; pandas: to_csv(index=False)")


def mark_of(path: Path) -> str:
    """The mark between the cells of a CSV: the first of MARKS that its header has."""
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        head = lines.readline()
    return next((mark for mark in MARKS if mark in head), MARKS[0])


def _read_csv(path: Path, texts: Sequence[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    content = path.read_bytes()
    try:
        content.decode()  # Arrow would read other bytes as binary cells
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise L2DError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from None
    mark = mark_of(path)
    # One block: a column's type then follows from all of its cells. One thread: rows keep their numbers.
    read = arrow_csv.ReadOptions(use_threads=False, block_size=min(len(content) + 1, 2**31 - 1))
    parse = arrow_csv.ParseOptions(delimiter=mark, newlines_in_values=True)
    # n/a and the like are no nulls: a message should show them. But a column of text would lose its decimal commas.
    types, decimal = dict.fromkeys(texts, pa.string()), mark == ";"
    gaps = [*NOTHING, *map(str.upper, NOTHING), *map(str.title, NOTHING), "NaN"] if decimal else [""]
    convert = arrow_csv.ConvertOptions(column_types=types, null_values=gaps, decimal_point=",."[not decimal])
    return arrow_csv.read_csv(pa.BufferReader(content), read, parse, convert)


def _read_lines(path: Path) -> Any:
    """Dates stay text, and a key's values of several kinds become text, as in a CSV: so a message shows the wrong ones."""
    import pyarrow as pa
    from pyarrow import json as arrow_json

    read = arrow_json.ReadOptions(use_threads=False, block_size=min(path.stat().st_size + 1, 2**31 - 1))
    with suppress(pa.ArrowInvalid):  # a line that is no JSON, or a key with values of several kinds
        table = arrow_json.read_json(path, read)
        dates = [(one.name, pa.string()) for one in table.schema if pa.types.is_timestamp(one.type)]
        parse = arrow_json.ParseOptions(explicit_schema=pa.schema(dates))
        return arrow_json.read_json(path, read, parse).select(table.column_names) if dates else table
    rows = [row for _, row in json_lines(path)]
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _json_cells([row.get(name) for row in rows]) for name in names})


def json_lines(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Pairs: file and line, for messages; the line's object. Empty lines are left out."""
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        where, row = f"{path}: line {number:,}", None
        with suppress(ValueError):  # not JSON, or not UTF-8
            row = json.loads(line) if line.strip() else {}
        if not isinstance(row, dict):
            raise L2DError(f"{where}: not a JSON object in UTF-8")
        if line.strip():
            found.append((where, {whole_characters(name): whole_characters(cell) for name, cell in row.items()}))
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
