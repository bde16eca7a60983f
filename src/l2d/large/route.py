"""Choices for files larger than memory: a folder of Parquet files, one per piece, whole or absent."""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from l2d.data.sets.large import URL, Piece, find_files, pieces_of, sheets_of
from l2d.data.sheet import Sheet
from l2d.large.passes import each_piece
from l2d.router.queries import rows_of_sheet
from l2d.router.router import Router
from l2d.router.trained import decide_outputs, embed, outputs_of
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.text import given_columns

CHOSEN, COST = "expert", "expected_cost_"


def route_large(router: Router, path: str, out: Path) -> Counter[str]:
    """The number of rows for each expert."""
    if out.exists():
        raise ParameterError("--out", "is there already; a folder is written whole, so name a new one", out)
    if URL in str(out) or not out.parent.is_dir():
        raise ParameterError("--out", "must be a new folder in one that all workers see", out)
    with under("--file"):
        pieces = pieces_of(find_files(path))
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as place:
        work = partial(route_piece, router, Path(place))
        counts = sum(each_piece(pieces, work, True, max(16, *router.description.shape)), Counter[str]())
        Path(place).chmod(0o755)
        Path(place).rename(out)
    return counts


def route_piece(router: Router, folder: Path, piece: Piece) -> Counter[str]:
    import pyarrow as pa
    from pyarrow import parquet

    counts, tables = Counter[str](), map(partial(chosen, router), sheets_of(piece))
    if (first := next(tables, None)) is not None:
        file = folder / f"part-{piece.file:05}-{max(0, piece.group):05}.parquet"
        with parquet.ParquetWriter(file, first.schema) as writer:
            try:
                for table in chain([first], tables):
                    writer.write_table(table.cast(first.schema))
                    counts.update(table[CHOSEN].to_pylist())
            except (pa.ArrowException, ValueError) as error:
                problem = f"{piece.url}: the columns are not the same throughout ({error}); Parquet says what they are"
                raise L2DError(" ".join(problem.split())) from error
    return counts


def chosen(router: Router, sheet: Sheet) -> Any:
    """The columns of the file, the chosen expert, and what each is expected to cost if the method estimates it."""
    import pyarrow as pa

    inputs, empty = rows_of_sheet(sheet, router.description, partial(embed, router))
    outputs = outputs_of(router, inputs)
    decisions = decide_outputs(router, outputs)[1].masked_fill(empty, router.description.guard.best)
    own = {CHOSEN: np.array(router.experts)[decisions.numpy()]}
    with torch.inference_mode():
        costs = router.method.expected_costs(outputs)
    if costs is not None:
        own |= {f"{COST}{name}": column.numpy() for name, column in zip(router.experts, costs.T, strict=True)}
    return pa.table({**given_columns(sheet.columns, own), **own})
