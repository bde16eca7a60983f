"""l2d add: a saved router with one more expert, from a few outcomes or none."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l2d.commands.route import load_router
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import user_path
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

if TYPE_CHECKING:  # it imports torch
    from l2d.data.sheet import Sheet

DESCRIPTION = """A router with one more expert, in a folder of its own. Nothing is trained: its chances are borrowed from the known
experts' and corrected by its outcomes. Until these say more, its expected error counts with 1.5 standard errors more."""

EPILOG = """the file has a row per query with the columns that the router was trained on, and correct_NAME (or loss_NAME) of the new
expert; with those columns of all known experts too, fewer rows say as much. Rows without an outcome of NAME are left out.

example:
  l2d add RUN --expert mini --like small --price 0.0004 --out routers/mini"""


def read_errors(sheet: "Sheet", name: str) -> np.ndarray | None:
    """[n], NaN where the cell is empty; None if there is no column of this expert."""
    if (column := f"correct_{name}") in sheet.columns:
        return 1 - sheet.numbers(column, gaps=True)
    return sheet.numbers(column, gaps=True) if (column := f"loss_{name}") in sheet.columns else None


def read_outcomes(
    file: Path, name: str, experts: Sequence[str], columns: Sequence[str], text: str | None
) -> Mapping[str, Any]:
    """Queries, the new expert's errors and, if all are there, the known experts'. columns, text: what is seen."""
    from l2d.data.sheet import read_sheet

    sheet = read_sheet(file, [] if text is None else [text])
    own = read_errors(sheet, name)
    if own is None:
        raise L2DError(f"{file}: no column correct_{name} or loss_{name}; name the new expert's outcomes so")
    if missing := [column for column in columns if column not in sheet.columns]:
        raise L2DError(f"{file}: no column {missing[0]}, which the router sees")
    kept = np.flatnonzero(~np.isnan(own))
    cells = {column: sheet.columns[column].to_pylist() for column in columns}
    queries = [{column: cells[column][i] for column in columns} for i in kept]
    known = [one[kept] for expert in experts if (one := read_errors(sheet, expert)) is not None]
    whole = len(known) == len(experts) and not np.isnan(known).any()
    return {"queries": queries, "errors": own[kept], "others": np.stack(known, axis=1) if whole else None}


def main(arguments: list[str]) -> None:
    with answering():
        parser = OneLineParser(prog="l2d add", description=DESCRIPTION, epilog=EPILOG)
        add = parser.add_argument
        add("run", metavar="RUN", type=Path, help="the folder of a finished run, or of a saved router")
        add("--expert", metavar="NAME", required=True, help="the new expert")
        add("--file", type=user_path, help="its outcomes, CSV, Parquet or JSONL")
        add("--like", metavar="KNOWN", help="the known expert that it resembles; needed without --file")
        add("--price", type=float, help="per query, in the unit of the prices in training")
        add("--out", metavar="FOLDER", type=user_path, required=True, help="where the new router is written")
        add("--trust", metavar="MODULE", action="append", default=[], help="build classes of this module too")
        parser.set_defaults(raw=False, prices=None)
        options = parser.parse_args(arguments)
        if options.out.exists():
            raise ParameterError("--out", "is there already; choose a new folder", options.out)
        router = load_router(options)
        seen, found = router.description.seen, dict[str, Any]()
        if options.file is not None:
            columns = [*seen.features, *filter(None, (seen.text,))]
            if not columns:
                raise ParameterError("--file", f"this router sees {router.description.sees}; use Router.with_expert")
            found = dict(read_outcomes(options.file, options.expert, router.experts, columns, seen.text))
            if router.description.kind == "text":
                found["queries"] = [row[seen.text] for row in found["queries"]]
        with given_as_flags(name="expert", errors="file", others="file", queries="file"):
            more = router.with_expert(options.expert, price=options.price, like=options.like, **found)
        more.save(options.out)
        judged = more.guard_note or "judged by its own outcomes alone"
        print(f"{options.expert}: {len(found.get('queries', ())):,} outcomes; {judged}", file=sys.stderr)
        print(f"written to {options.out}", file=sys.stderr)
