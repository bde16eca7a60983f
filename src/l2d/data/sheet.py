"""A CSV, Parquet or JSONL file as columns of numbers or words. Errors name the file, the column and the rows."""

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from l2d.data.cells import DECIMAL, NOTHING, TEXT, amounts, cell_words, filled_cells, floats, missing, seconds_of
from l2d.data.sheet_files import mark_of, read_names, read_table, whole_characters
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import write_atomically
from l2d.utils.text import listed

KINDS = (".csv", ".tsv", ".parquet", ".jsonl")
EPOCH_MS = 1e11  # larger numbers beside times are milliseconds since 1970
COUNTED = "(rows count from 1, without a header)"


@dataclass(frozen=True)
class Sheet:
    """columns: pyarrow's, by name. rows: their places in the file, from 0; None: all. written: what the file calls columns with
    other names here. made: columns made of the answers in a log. faults: where they are collected; None: the first is raised."""

    path: Path
    columns: dict[str, Any]
    rows: np.ndarray | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    faults: dict[tuple[str, str], str] | None = field(default=None, compare=False)
    _texts: dict[str, list[str]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def take(self, kept: np.ndarray) -> "Sheet":
        """The rows where `kept`, bool [n], is true."""
        import pyarrow as pa

        rows = np.flatnonzero(kept) if self.rows is None else self.rows[kept]
        columns = {name: cells.filter(pa.array(kept)) for name, cells in self.columns.items()}
        return replace(self, columns=columns, rows=rows)

    @property
    def names(self) -> list[str]:
        return list(self.columns)

    def in_file(self, column: str) -> str:
        return self.written.get(column, column)

    def note(self, text: str) -> None:
        print(f"{self.path}: {text}", file=sys.stderr)

    def check_column(self, parameter: str, column: str) -> None:
        """parameter: the key by which the user named the column."""
        if column not in self.columns:
            names = list(dict.fromkeys(map(self.in_file, self.names)))
            close = difflib.get_close_matches(column, names, n=1, cutoff=0.75)  # kind is not id
            hint = f"did you mean {close[0]}?" if close else f"there are {listed(names)}"
            raise ParameterError(parameter, f"no such column in {self.path}; {hint}", column)

    def without_nothing(self, columns: Sequence[str]) -> "Sheet":
        """Empty cells for n/a and the like in these columns, which are of numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = {name: self.columns[name] for name in columns if str(self.columns[name].type) in TEXT}
        filled = {name: pc.if_else(pa.array(~missing(one, NOTHING)), one, None) for name, one in texts.items()}
        return replace(self, columns={**self.columns, **filled})

    def numbers(self, column: str, *, gaps: bool = False, plain: float = 1.0, commas: bool = False) -> np.ndarray:
        """float64 [n]: numbers, 0/1 for words, dollars, seconds. gaps: empty cells are NaN. plain: the unit of plain cells.
        commas: whether all are decimal."""
        import pyarrow as pa

        cells = self.columns[column] if gaps else self._filled(column)
        values = floats(cells) * plain
        unread = np.isnan(values) & np.asarray(cells.is_valid())
        values[unread] = amounts(cells.filter(pa.array(unread)).to_pylist(), plain, commas=commas)
        known = "not a number, an amount ($0.02, 1.2 s), or a word such as yes, no, up, down"
        self.refuse(column, known, np.isnan(values) & ~missing(cells))
        self.refuse(column, "not finite", np.isinf(values))
        return values

    def has_commas(self, column: str) -> bool:
        """True if the numbers of a column have decimal commas. Those between semicolons were read before."""
        cells = self.columns[column]
        if str(cells.type) in TEXT:
            return any(map(DECIMAL.match, filled_cells(cells)))
        return str(cells.type) == "double" and self.path.suffix.lower() == ".csv" and mark_of(self.path) == ";"

    def times(self, column: str) -> np.ndarray:
        """float64 [n]: seconds, or whatever the column counts in if it holds numbers."""
        import pyarrow as pa

        cells = self._filled(column)
        if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
            whole = cells.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
            return np.asarray(whole.to_numpy(), dtype=np.float64) / 1e6
        values = floats(cells)
        if (words := np.isnan(values)).any():
            values[~words & (values > EPOCH_MS)] /= 1000
        for place in np.flatnonzero(words):
            values[place] = seconds_of(str(cells[int(place)]))
        self.refuse(column, "not a time, such as 2026-01-31T12:00:00 or a number", np.isnan(values))
        return values

    def words(self, column: str, *, gaps: bool = False) -> list[str]:
        """Cells to be compared with each other: 3, 3.0 and " 3" are the same word. gaps: cells may be empty, "" then."""
        return cell_words(self.columns[column] if gaps else self._filled(column))

    def texts(self, column: str) -> list[str]:
        """Cells as they are written. Always the same list: two would take twice the memory."""
        if column not in self._texts:
            cells = self._filled(column)
            if str(cells.type) not in TEXT:
                self.fault(column, f"not text but {cells.type}")
            self._texts[column] = [str(cell) for cell in cells.to_pylist()]
        return self._texts[column]

    def _filled(self, column: str) -> Any:
        """The cells of a column; empty ones are refused."""
        self.refuse(column, "empty", missing(self.columns[column]))
        return self.columns[column]

    def is_numeric(self, column: str) -> bool:
        """True if all cells that are not empty are numbers. If most but not all are, the others are refused as mistakes."""
        cells = self.columns[column]
        filled, told = ~missing(cells), ~missing(cells, NOTHING)
        wrong = np.isnan(floats(cells)) & filled
        if (wrong & told).sum() < told.sum() / 2:
            self.refuse(column, "not a number (correct it, or list the columns to use in dataset.features)", wrong)
        return bool(filled.any() and not wrong.any())

    def is_words(self, column: str) -> bool:
        """True if it is a column of words: most cells are no numbers or amounts."""
        cells = self.columns[column]
        filled = filled_cells(cells) if str(cells.type) in TEXT else []
        return 2 * int(np.isnan(amounts(filled)).sum()) > len(filled)

    def is_prose(self, column: str) -> bool:
        """True if it is a column of text: most cells differ and have several words."""
        import pyarrow.compute as pc

        cells = self.columns[column]
        several = pc.sum(pc.match_substring(cells, " ")).as_py() or 0 if str(cells.type) in TEXT else 0
        return bool(several > len(cells) / 2 and pc.count_distinct(cells).as_py() > len(cells) / 2)

    def fault(self, column: str, what: str, where: str = "") -> None:
        """Raise a fault of a column, or keep it for later; one of each kind."""
        text = f"column {self.in_file(column)}: {what}{where}"
        if self.faults is None:
            raise L2DError(f"{self.path}: {text}")
        self.faults.setdefault((self.in_file(column), what), text)

    def refuse(self, column: str, what: str, bad: np.ndarray) -> None:
        """A fault, if any of `bad` [n] is true."""
        if not bad.any():
            return
        found = np.flatnonzero(bad)
        rows = ((found if self.rows is None else self.rows[found]) + 1).tolist()
        cells = [self.columns[column][place].as_py() for place in found[:100].tolist()]
        texts = [*dict.fromkeys(str(cell)[:40] for cell in cells if cell is not None and str(cell).strip())][:2]
        shown = f", the first {'is' if len(texts) == 1 else 'are'} {' and '.join(map(repr, texts))}" if texts else ""
        self.fault(column, what, f" in {len(rows):,} of {len(self):,} rows: {listed(rows)}{shown} {COUNTED}")


def faulty(path: Path, faults: Sequence[str]) -> L2DError:
    """All faults in one line, which says once how rows are counted."""
    texts = [text.removeprefix(f"{path}: ") for text in faults]
    several = "; ".join(f"{number}. {text.replace(f' {COUNTED}', '')}" for number, text in enumerate(texts, start=1))
    return L2DError(f"{path}: {texts[0] if len(texts) == 1 else f'{len(texts)} faults: {several} {COUNTED}'}")


def file_problem(path: Path) -> str | None:
    """The reason why a path cannot be a sheet, or None. Does not read the file."""
    if path.suffix.lower() not in KINDS:
        return f"must be a file that ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}"
    return None if path.is_file() else f"no such file (looked for in {Path.cwd()})"


def read_sheet(path: Path, texts: Sequence[str] = ()) -> Sheet:
    """Read the whole file. texts: columns to read as text, where 024 is not a number."""
    if problem := file_problem(path):
        raise L2DError(f"{path}: {problem}")
    import pyarrow as pa

    table = read_table(path, texts)
    pa.default_memory_pool().release_unused()  # reading took more than twice the file's size
    if not table.num_rows:
        raise L2DError(f"{path}: no rows")
    # Indices and dictionaries are written by pandas. Python's times have no ns.
    columns = {name: table[name] for name in table.column_names if not name.startswith("__index_level_")}
    dictionaries = {name: cells for name, cells in columns.items() if pa.types.is_dictionary(cells.type)}
    times = {name: pa.timestamp("us", one.type.tz) for name, one in columns.items() if pa.types.is_timestamp(one.type)}
    times |= {name: pa.duration("us") for name, one in columns.items() if pa.types.is_duration(one.type)}
    kinds = {**times, **{name: cells.type.value_type for name, cells in dictionaries.items()}}
    return Sheet(path, columns | {name: columns[name].cast(kind, safe=False) for name, kind in kinds.items()})


def read_header(path: Path) -> Sheet:
    """The columns' names without their cells. All of a JSONL is read: any line may have a key that others lack."""
    names = read_sheet(path).names if path.suffix.lower() == ".jsonl" else read_names(path)
    return Sheet(path, dict.fromkeys(names))


def write_sheet(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """A .csv or .parquet file of these columns, whole or absent."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    write = {".csv": arrow_csv.write_csv, ".parquet": parquet.write_table}.get(path.suffix.lower())
    if write is None:
        raise L2DError(f"{path}: must end in .csv or .parquet")
    valid = {whole_characters(name): list(map(whole_characters, cells)) for name, cells in columns.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, partial(write, pa.table(valid)))
