"""Parquet or JSONL files that need not fit into memory: what they are, and their rows a few at a time. Light: no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from l2d.data.cells import missing
from l2d.data.sets.outcomes import PROPENSITY, Expert, find_experts
from l2d.data.sets.table_columns import Named, feature_columns, roles_of
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import user_path
from l2d.utils.text import listed

KINDS = (".parquet", ".jsonl")
WHOLE = ("image", "label", "category", "split", "split_by", "confounders", "columns", "merge")
BLOCK = 32_768  # rows in memory at a time
BYTES = 1 << 24  # of a JSONL, at a time
AT_ONCE = 16  # footers that are read at a time
URL, PATTERN = "://", "*?["


@dataclass(frozen=True)
class Piece:
    """The part that one task reads: a row group of a Parquet file, or a JSONL file (group −1, whose rows are counted
    only by reading). file: its number. first: the number of its first row in the file."""

    url: str
    file: int
    group: int = -1
    first: int = 0
    rows: int = 1


@dataclass(frozen=True)
class Layout:
    """Columns to read. words: features that are words. propensities: none or one per expert. text: rows without are left out."""

    experts: tuple[Expert, ...]
    features: tuple[str, ...]
    words: tuple[str, ...]
    propensities: tuple[str, ...]
    text: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(expert.name for expert in self.experts)

    @property
    def columns(self) -> list[str]:
        outcomes = (expert.column for expert in self.experts)
        return [*self.features, *outcomes, *self.propensities, *filter(None, [self.text])]

    def sheets(self, piece: Piece) -> Iterator[Sheet]:
        """The rows of a piece that a router can read, BLOCK at a time."""
        for sheet in sheets_of(piece, self.columns):
            kept = sheet if self.text is None else sheet.take(~missing(sheet.columns[self.text]))
            if len(kept):
                yield kept


def is_large(path: str) -> bool:
    """True if this names several files, or files elsewhere."""
    return URL in path or any(mark in path for mark in PATTERN) or user_path(path).is_dir()


def find_files(path: str) -> list[str]:
    """The URLs of the Parquet or JSONL files in a folder or of a glob, in the order of their names."""
    import fsspec

    try:
        system, place = fsspec.core.url_to_fs(path if URL in path else str(user_path(path).absolute()))
        if not any(mark in path for mark in PATTERN) and system.isdir(place):
            place = f"{place.rstrip('/')}/**"
        places = system.glob(place, detail=True)
        parted = {one for one, about in places.items() if about["type"] == "directory" and one.lower().endswith(KINDS)}
        files = (system.find(one) if one in parted else [one] for one in places)
        found = [file for file in sorted({*chain.from_iterable(files)}) if file.lower().endswith(KINDS)]
    except (ImportError, OSError, ValueError) as error:  # without rights, or a kind of URL that needs another package
        raise ParameterError("path", f"cannot be read ({str(error).splitlines()[0]})", path) from error
    if len(kinds := {Path(file).suffix.lower() for file in found}) != 1:
        none = f"no file {' or '.join(KINDS)} there"
        raise ParameterError("path", "both .parquet and .jsonl files there; name one kind" if kinds else none, path)
    return [system.unstrip_protocol(file) for file in found]


def fingerprint_of_files(urls: Sequence[str]) -> str:
    """A hash of the files' names, sizes and times."""
    import fsspec

    keys = [f"{url} {system.ukey(place)}" for url in urls for system, place in [fsspec.core.url_to_fs(url)]]
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]


def pieces_of(urls: Sequence[str]) -> list[Piece]:
    """All pieces, in the files' order. Parquet files must have the same columns."""
    if not urls[0].lower().endswith(".parquet"):
        return [Piece(url, number) for number, url in enumerate(urls)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        footers = list(pool.map(_footer, urls))
    found, names = [], footers[0][0]
    for number, (url, (own, groups)) in enumerate(zip(urls, footers, strict=True)):
        if differ := sorted({*own} ^ {*names}):
            raise L2DError(f"{shown(url)}: other columns than {shown(urls[0])}: {listed(differ)}")
        firsts = np.cumsum([0, *groups]).tolist()
        found += [Piece(url, number, group, firsts[group], rows) for group, rows in enumerate(groups) if rows]
    if not found:
        raise L2DError(f"{shown(urls[0])}: no rows")
    return found


def _footer(url: str) -> tuple[list[str], list[int]]:
    from pyarrow import parquet

    with opened(url) as file:
        about = parquet.ParquetFile(file).metadata
        return about.schema.names, [about.row_group(k).num_rows for k in range(about.num_row_groups)]


def shown(url: str) -> str:
    return url.removeprefix("file://")


@contextmanager
def opened(url: str) -> Iterator[Any]:
    """A file of any file system. What goes wrong while it is read is one line with its name."""
    import fsspec
    import pyarrow as pa

    try:
        with fsspec.open(url, "rb") as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        reason = "it vanished" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
        raise L2DError(f"{shown(url)}: cannot be read ({reason})") from error


def sheets_of(piece: Piece, columns: Sequence[str] | None = None) -> Iterator[Sheet]:
    """The rows of a piece, BLOCK at a time. columns: None for all."""
    import pyarrow as pa

    first, path = piece.first, Path(shown(piece.url))
    with opened(piece.url) as file:
        for part in _lines(file) if piece.group < 0 else _group(file, piece.group, columns):
            if lacking := [name for name in columns or () if name not in part.schema.names]:
                raise L2DError(f"{path}: no column {lacking[0]} in rows from {first + 1:,}")
            cells = {name: pa.chunked_array([part[name]]) for name in columns or part.schema.names}
            coded = {name: one for name, one in cells.items() if pa.types.is_dictionary(one.type)}
            cells |= {name: one.cast(one.type.value_type) for name, one in coded.items()}
            yield Sheet(path, cells, rows=np.arange(first, first + len(part)))
            first += len(part)


def _group(file: Any, group: int, columns: Sequence[str] | None) -> Iterator[Any]:
    from pyarrow import parquet

    about = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    yield from about.iter_batches(BLOCK, [group], columns, use_threads=False)


def _lines(file: Any) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import json

    rest = b""
    while chunk := file.read(BYTES):
        whole, end, rest = (rest + chunk).rpartition(b"\n")
        if end:
            yield from json.read_json(pa.BufferReader(whole + end)).to_batches(BLOCK)
    if rest.strip():
        yield from json.read_json(pa.BufferReader(rest)).to_batches(BLOCK)


def layout_of(piece: Piece, named: Named) -> Layout:
    """The roles of the columns, from the first rows."""
    if given := [key for key in WHOLE if getattr(named, key)]:
        raise ParameterError(given[0], "needs all rows in memory, in one file", getattr(named, given[0]))
    if (sheet := next(sheets_of(piece), None)) is None:
        raise L2DError(f"{shown(piece.url)}: no rows")
    experts = find_experts(sheet, named.experts, named.outcome)
    features = feature_columns(sheet, named, roles_of(sheet, named, experts), experts)
    chances = [name for name in sheet.names if name in {f"{PROPENSITY}{expert.name}" for expert in experts}]
    words = tuple(name for name in features if sheet.is_words(name))
    return Layout(tuple(experts), tuple(features), words, tuple(chances), named.text)
