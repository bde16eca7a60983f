"""A CSV, Parquet or JSONL file as columns of numbers or words. Errors name the file, the column and the rows."""

import csv
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import write_atomically
from l2d.utils.text import listed

KINDS = (".csv", ".parquet", ".jsonl")
OTHER_MARKS = (";", "\t", "|")  # that some programs write between cells
COUNTED = {".csv": "(row 1 is the first below the header)", ".jsonl": "(row 1 is the first line)"}
EMPTY = ("", "nan")
NOTHING = ("na", "n/a", "null", "none", "-")  # in a column of numbers: refused, since they may mean anything
TEXT = ("string", "large_string")  # types of pyarrow
TRUTH = {"true": 1.0, "false": 0.0}
YES_NO = {"yes": 1.0, "no": 0.0}  # only where a number is expected: "no" may also be Norwegian
WHOLE = 2.0**53  # beyond it floats skip whole numbers


@dataclass(frozen=True)
class Sheet:
    """columns: pyarrow's, by name, in the file's order. rows: their places in the file, from 0; None for the whole file. written:
    what the file calls columns that have other names here."""

    path: Path
    columns: dict[str, Any]
    rows: np.ndarray | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    _texts: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, kept: np.ndarray) -> "Sheet":
        """The rows where `kept`, bool [n], is true."""
        import pyarrow as pa

        rows = np.flatnonzero(kept) if self.rows is None else self.rows[kept]
        columns = {name: cells.filter(pa.array(kept)) for name, cells in self.columns.items()}
        return Sheet(self.path, columns, rows, self.written)

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def in_file(self, column: str) -> str:
        """What the file calls a column."""
        return self.written.get(column, column)

    @property
    def column(self) -> str:
        """What a column is called in messages: lines of JSON have keys."""
        return "key" if self.path.suffix.lower() == ".jsonl" else "column"

    @property
    def counted(self) -> str:
        """How rows are numbered in messages."""
        return COUNTED.get(self.path.suffix.lower(), "(row 1 is the first)")

    def check_column(self, parameter: str, column: str) -> None:
        """parameter: the key by which the user named the column."""
        if column not in self.columns:
            names = list(dict.fromkeys(map(self.in_file, self.names)))
            close = difflib.get_close_matches(column, names, n=1, cutoff=0.75)  # kind is not id
            hint = f"did you mean {close[0]}?" if close else f"there are {listed(names)}"
            raise ParameterError(parameter, f"no such {self.column} in {self.path}; {hint}", column)

    def numbers(self, column: str, *, gaps: bool = False) -> np.ndarray:
        """float64 [n]; false and no are 0, true and yes are 1. gaps: cells may be empty, NaN then."""
        cells = self.columns[column] if gaps else self._filled(column)
        values = floats(cells)
        for place in np.flatnonzero(np.isnan(values)):
            values[place] = YES_NO.get(str(cells[int(place)]).strip().lower(), np.nan)
        self.refuse(column, "not a number, nor true, false, yes or no", np.isnan(values) & ~missing(cells))
        self.refuse(column, "not finite", np.isinf(values))
        return values

    def times(self, column: str) -> np.ndarray:
        """float64 [n]: seconds, or whatever the column counts in if it holds numbers."""
        import pyarrow as pa

        cells = self._filled(column)
        if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
            whole = cells.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
            return np.asarray(whole.to_numpy(), dtype=np.float64) / 1e6
        values = floats(cells)
        for place in np.flatnonzero(np.isnan(values)):
            values[place] = seconds_of(str(cells[int(place)]))
        self.refuse(column, "not a time, such as 2026-01-31T12:00:00 or a number", np.isnan(values))
        return values

    def words(self, column: str, *, gaps: bool = False) -> list[str]:
        """Cells to be compared with each other: 3, 3.0 and " 3" are the same word. gaps: cells may be empty, "" then."""
        cells = self.columns[column] if gaps else self._filled(column)
        empty = missing(cells)
        return ["" if gap else cell_word(cell) for cell, gap in zip(cells.to_pylist(), empty, strict=True)]

    def texts(self, column: str) -> list[str]:
        """Cells as they are written. Always the same list: two would take twice the memory."""
        if column not in self._texts:
            cells = self._filled(column)
            if str(cells.type) not in TEXT:
                raise L2DError(f"{self.path}: {self.column} {self.in_file(column)}: not text but {cells.type}")
            self._texts[column] = [str(cell) for cell in cells.to_pylist()]
        return self._texts[column]

    def _filled(self, column: str) -> Any:
        """The cells of a column; empty ones are refused."""
        self.refuse(column, "empty", missing(self.columns[column]))
        return self.columns[column]

    def looks_numeric(self, column: str) -> bool:
        """Whether all cells that are not empty are numbers."""
        cells = self.columns[column]
        empty = missing(cells)
        return not empty.all() and bool((empty | ~np.isnan(floats(cells))).all())

    def is_numeric(self, column: str) -> bool:
        """Whether all cells that are not empty are numbers. If most but not all are, the others are refused as mistakes."""
        cells = self.columns[column]
        empty = missing(cells)
        wrong = np.isnan(floats(cells)) & ~empty
        filled = int((~empty).sum())
        nothing = (
            np.array([str(cell).strip().lower() in NOTHING for cell in cells.to_pylist()]) if wrong.any() else wrong
        )
        if wrong.any() and (wrong & ~nothing).sum() < (filled - (wrong & nothing).sum()) / 2:
            self.refuse(column, "not a number (correct it, or list the columns to use in dataset.features)", wrong)
        return filled > 0 and not wrong.any()

    def is_prose(self, column: str) -> bool:
        """Whether it is a column of text: most cells differ and have several words."""
        import pyarrow.compute as pc

        cells = self.columns[column]
        if str(cells.type) not in TEXT:
            return False
        words = pc.sum(pc.match_substring(cells, " ")).as_py() or 0
        return bool(min(pc.count_distinct(cells).as_py(), words) > len(cells) / 2)

    def refuse(self, column: str, what: str, bad: np.ndarray) -> None:
        """Raise if any of `bad` [n] is true."""
        if not bad.any():
            return
        found = np.flatnonzero(bad)
        rows = ((found if self.rows is None else self.rows[found]) + 1).tolist()
        cell = self.columns[column][int(found[0])].as_py()
        first = "" if cell is None else cell.isoformat() if isinstance(cell, date) else str(cell)
        said = f", the first is {first[:40]!r}" if first.strip() else ""
        where = f"in {len(rows):,} of {len(self):,} rows: {listed(rows)}{said} {self.counted}"
        raise L2DError(f"{self.path}: {self.column} {self.in_file(column)}: {what} {where}")


def missing(cells: Any) -> np.ndarray:
    """Which cells are empty: null, NaN, or a word in EMPTY."""
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
    """As in TRUTH; NaN if it is not a number."""
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
    """From a time as ISO 8601 writes it, UTC unless it says otherwise; NaN for anything else."""
    try:
        time = datetime.fromisoformat(cell.strip())
    except ValueError:
        return float("nan")
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def file_problem(path: Path) -> str | None:
    """Why a path cannot be a sheet, or None. Does not read the file."""
    if path.suffix.lower() not in KINDS:
        return f"must be a file that ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}"
    return None if path.is_file() else f"no such file (looked for in {Path.cwd()})"


def release_unused() -> None:
    """Return to the system what Arrow keeps for later sheets."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def read_sheet(path: Path, texts: Sequence[str] = ()) -> Sheet:
    """Read the whole file. A CSV has a header, commas and UTF-8; a JSONL an object per line. texts: columns to read as text, where
    024 is not a number."""
    if problem := file_problem(path):
        raise L2DError(f"{path}: {problem}")
    import pyarrow as pa
    from pyarrow import parquet

    try:
        kind = path.suffix.lower()
        table = (
            _read_csv(path, texts)
            if kind == ".csv"
            else _read_lines(path)
            if kind == ".jsonl"
            else parquet.ParquetFile(path).read()
        )
    except (pa.ArrowException, OSError) as error:
        raise L2DError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    release_unused()  # reading took more than twice the file's size
    _check_header(path, table.column_names)
    if not table.num_rows:
        raise L2DError(f"{path}: no rows{' below the header' if kind == '.csv' else ''}")
    columns = {}
    for name, cells in zip(table.column_names, table.columns, strict=True):
        if not name.startswith("__index_level_"):  # written by pandas, like dictionaries
            columns[name] = cells.cast(cells.type.value_type) if pa.types.is_dictionary(cells.type) else cells
    return Sheet(path, columns)


def read_header(path: Path) -> Sheet:
    """The columns' names without their cells."""
    try:
        if path.suffix.lower() == ".parquet":
            from pyarrow import parquet

            names = parquet.read_schema(path).names
        elif path.suffix.lower() == ".jsonl":
            names = read_sheet(path).names  # any line may have a key that others lack
        else:
            with path.open(newline="", encoding="utf-8-sig") as lines:
                names = next(csv.reader(lines), [])
    except ValueError as error:  # pyarrow's errors are ValueErrors too
        raise L2DError(f"{path}: cannot be read ({' '.join(str(error).split())})") from error
    _check_header(path, names)
    return Sheet(path, dict.fromkeys(names))


def _check_header(path: Path, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise L2DError(f"{path}: more than one column is called {listed(twice)}")
    if odd := [repr(name) for name in names if not name or name != name.strip()]:
        raise L2DError(
            f"{path}: column {listed(odd)}: no name, or spaces around it; in pandas, use to_csv(index=False)"
        )
    if len(names) == 1 and (other := next((mark for mark in OTHER_MARKS if mark in names[0]), None)):
        raise L2DError(f"{path}: one column, {names[0][:40]!r}; a CSV has commas between its cells, not {other!r}")


def _read_csv(path: Path, texts: Sequence[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    content = path.read_bytes()
    _decoded(path, content)
    read_header(path)  # refuses semicolons before a comma in some cell does
    return arrow_csv.read_csv(
        pa.BufferReader(content),
        # One block: a column's type then follows from all of its cells. One thread: rows keep their numbers.
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=min(len(content) + 1, 2**31 - 1)),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
        # n/a and the like are no nulls: a message should show them.
        convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(texts, pa.string()), null_values=[""]),
    )


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
            rows.append(json.loads(line, object_pairs_hook=_json_object))
        except ValueError as error:
            problem = f"is not JSON ({getattr(error, 'msg', error)}); write one object per line"
            raise L2DError(f"{path}: line {number} {problem}") from None
        if not isinstance(rows[-1], dict):
            raise L2DError(f'{path}: line {number} is not an object, such as {{"id": 1}}')
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _json_cells([row.get(name) for row in rows]) for name in names})


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := {whole_characters(name): value for name, value in pairs}) < len(pairs):
        raise ValueError("the same key twice")
    return found


def whole_characters(text: str) -> str:
    """Half of a character, left where a text was cut within an emoji, becomes a question mark: no file can hold it."""
    return text.encode(errors="replace").decode()


def _json_cells(cells: list[Any]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(cells)
    except UnicodeEncodeError:  # half of a character: a text was cut within an emoji
        return _json_cells(json.loads(json.dumps(cells, ensure_ascii=False).encode(errors="replace")))
    except (pa.ArrowException, OverflowError):
        texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells]
        return _written_cells(texts)


def write_sheet(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """A .csv or .parquet file of these columns, whole or absent."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    writers = {".csv": arrow_csv.write_csv, ".parquet": parquet.write_table}
    if path.suffix.lower() not in writers:
        raise L2DError(f"{path}: must end in .csv or .parquet")
    table = pa.table({whole_characters(name): _written_cells(cells) for name, cells in columns.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, partial(writers[path.suffix.lower()], table))


def _written_cells(cells: Sequence[object]) -> Any:
    import pyarrow as pa

    return pa.array([whole_characters(cell) if isinstance(cell, str) else cell for cell in cells])
