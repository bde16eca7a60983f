"""From queries to the inputs of a router."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.data.cells import TEXT, missing
from l2d.data.given import is_frame
from l2d.data.inputs import Embed, array_inputs, image_inputs, row_inputs, sheet_inputs, text_inputs
from l2d.data.sheet import Sheet, read_sheet
from l2d.runs.artifact.exported import RouterDescription
from l2d.utils.errors import L2DError
from l2d.utils.text import listed

IDS = ("id", "ID", "Id")  # names of a column that identifies the rows of a file
BLANK = "?"  # in the place of an empty text, which no encoder reads; what is made of it decides nothing


def readable(queries: Any, text: str | None) -> tuple[Any, Tensor]:
    """The queries with BLANK in the place of an empty text, and which of them had one, bool [n]. text: the column."""
    queries = plain_queries(queries)
    if text is None or isinstance(queries, np.ndarray):
        return queries, torch.zeros(len(queries), dtype=torch.bool)
    empty, filled = torch.zeros(len(queries), dtype=torch.bool), list(queries)
    for place, query in enumerate(queries):
        said = query.get(text, BLANK) if isinstance(query, Mapping) else query
        gone = said is None or type(said).__name__ == "NAType" or (isinstance(said, float) and np.isnan(said))
        if gone or (isinstance(said, str) and not said.strip()):
            empty[place], filled[place] = True, {**query, text: BLANK} if isinstance(query, Mapping) else BLANK
    return filled, empty


def plain_queries(queries: Any) -> Any:
    """A list or an array of numbers; from a DataFrame, rows as mappings by column."""
    if isinstance(queries, str | bytes | Mapping):
        raise L2DError("queries: must be a list, even for a single query")
    if isinstance(queries, Tensor):
        queries = queries.detach().cpu().numpy()
    if is_frame(queries):
        queries = queries.rename(columns=str).to_dict("records")
    elif hasattr(queries, "to_numpy"):  # a column of a DataFrame
        queries = queries.to_numpy()
    return queries.tolist() if isinstance(queries, np.ndarray) and queries.dtype.kind in "UO" else queries


def query_inputs(queries: Any, about: RouterDescription, embed: Embed) -> Tensor:
    """queries: as for Router.route, or a DataFrame. An empty text is refused."""
    queries = plain_queries(queries)
    if isinstance(queries, np.ndarray):
        if about.seen.text is not None:
            raise L2DError(f"queries: an array; this router sees {about.sees}")
        flat = queries.ndim == 3 and about.shape[-1:] == (1,)  # images without a dimension for their one channel
        return array_inputs(queries[..., None] if flat else queries, about.shape, about.seen.columns)
    kinds, seen = {_kind(query) for query in queries}, about.seen
    if kinds <= {"text", "path"} and about.kind == "image":
        return image_inputs(queries, about.shape, seen.white)
    if kinds == {"text"} and about.kind == "text":
        return text_inputs(queries, embed)
    if kinds == {"mapping"} and (seen.features or seen.text is not None):
        return row_inputs(queries, seen, embed)
    if kinds == {"numbers"} and about.kind == "row" and seen.text is None:
        try:
            rows = np.asarray(queries)
        except ValueError:
            raise L2DError("queries: rows of different lengths") from None
        return array_inputs(rows, about.shape, seen.columns)
    raise L2DError(f"queries: {', '.join(sorted(kinds))}; this router sees {about.sees}")


def file_inputs(path: Path, about: RouterDescription, embed: Embed) -> tuple[Tensor, Tensor, list[str] | list[None]]:
    """The rows of a CSV, Parquet or JSONL file, which of them have no text, bool [n], and their ids."""
    sheet = read_sheet(path, [*(column for column in (about.seen.text, about.seen.image) if column is not None), *IDS])
    inputs, empty = rows_of_sheet(sheet, about, embed)
    ids: list[str] | list[None] = [None] * len(sheet)
    if known := [name for name in IDS if name in sheet.columns]:
        ids = ["" if cell is None else str(cell) for cell in sheet.columns[known[0]].to_pylist()]
    return inputs, empty, ids


def rows_of_sheet(sheet: Sheet, about: RouterDescription, embed: Embed) -> tuple[Tensor, Tensor]:
    path, seen = sheet.path, about.seen
    columns = [*seen.features, *(column for column in (seen.text, seen.image) if column is not None)]
    if not columns:
        raise L2DError(f"{path}: this router sees {about.sees}, which a table cannot hold")
    if absent := [column for column in columns if column not in sheet.columns]:
        there = f"this router sees {about.sees}; there are {listed(sheet.names)}"
        raise L2DError(f"{path}: no column {listed(absent)}; {there}")
    empty = np.zeros(len(sheet), dtype=bool)
    if seen.text is not None and str((cells := sheet.columns[seen.text]).type) in TEXT:
        import pyarrow as pa
        import pyarrow.compute as pc

        empty = missing(cells)
        sheet.columns[seen.text] = pc.if_else(pa.array(empty), BLANK, cells)
    return sheet_inputs(sheet, seen, about.shape, embed), torch.from_numpy(empty)


def _kind(query: object) -> str:
    if isinstance(query, str):
        return "text"
    if isinstance(query, Mapping):
        return "mapping"
    if isinstance(query, Sequence | np.ndarray):
        return "numbers"
    return "path" if isinstance(query, Path) else type(query).__name__
