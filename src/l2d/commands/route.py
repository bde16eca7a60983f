"""l2d route: which expert a trained router sends each query to, as CSV."""

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from l2d.data.sets.large import is_large
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.files import user_path, write_text
from l2d.utils.own_modules import look_in
from l2d.utils.text import csv_text, given_columns
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

if TYPE_CHECKING:  # it imports torch
    from l2d.router.choices import Choice
    from l2d.router.router import Router

DESCRIPTION = """Which expert a trained router sends each query to, as CSV.

RUN is all that is needed: neither the data nor the experts. (A router that reads text through a frozen encoder, router=minilm,
needs that encoder.) Nothing in RUN can run code: only classes of l2d are built, and of the modules named with --trust."""

EPILOG = """the CSV has a line per query. First come all columns of --file (given_NAME, if NAME is below); then
  row                  the query's number, from 1; in a file, 1 is the first row below the header
  expert               the chosen expert; ask: whom a plan asks first (method=plan)
  decided_by           router, or unreadable: a query without a text goes to the best single expert. Only if there are some
  expected_price       of the chosen expert, in the unit of the prices in training; with cost.latency_price, latency included
  expected_error       of the chosen expert
and, for each expert,
  posterior_NAME       p̂(NAME|query). method=mild and tdef: the expert's share of the expected reward. method=ce and its relatives:
                       the probability that the expert is the cheapest
  expected_cost_NAME   expected error plus price, with --budget times its factor (method=cost_regression, plugin, one_vs_all and
                       their relatives)
Columns that the method does not estimate are left out, and the price if all are 0. The run's own rule decides
(decision=argmax or posterior), then its guard.

examples:
  l2d route runs/mmlu_sim/own/table/error/mild/1a2b3c4d/seed=0 --text "Solve for x: 3x + 4 = 19."
  l2d route runs/queries/own/table/error/mild/1a2b3c4d/seed=0 --file queries.csv --out choices.csv"""


def make_route_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="l2d route", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a finished run, runs/.../seed=<s>")
    group = parser.add_argument_group("queries (one of these)")
    queries = group.add_mutually_exclusive_group(required=True)
    queries.add_argument("--text", action="append", help="a query, for routers that see one text; repeat it for more")
    file = """a CSV, Parquet or JSONL file with a row per query and the columns that the router was trained on; it sees no
        others, but all come back in the CSV. A folder, a glob or a URL of Parquet or JSONL files is read in parts on Ray, and --out
        is then a new folder of Parquet files"""
    queries.add_argument("--file", type=lambda text: text if is_large(text) else user_path(text), help=file)
    image = "images, for routers that see one; they are resized to the size that the router was trained on"
    queries.add_argument("--image", metavar="FILE", nargs="+", action="extend", help=image)
    add_decision_flags(parser)
    capacity = """the most rows of --file for an expert: {alice: 40, large: 10%%}. The rows are assigned so that the expected cost
        of all is least; experts that are not named have no limit"""
    parser.add_argument("--capacity", type=read_capacity, help=capacity)
    written = "write the CSV to this file (default: print it)"
    parser.add_argument("--out", metavar="CHOICES", type=user_path, help=written)
    return parser


def add_decision_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags for prices, a budget and the guard. argparse wraps the help texts itself."""
    add = parser.add_argument_group("decisions").add_argument
    prices = """decide by other prices than those of training, in the unit of the prices in training, before cost.scale:
        small=0.1,large=0.3, or 0.1,0.3 in the experts' order (method=cost_regression, label_regression, plugin or a simple router
        such as knn). The guard is fitted to them. A saved router within a budget keeps that budget"""
    add("--prices", type=read_prices, help=prices)
    budget = """keep the mean price per query within this, in the unit of --prices: prices are multiplied by the least factor that
        does so (methods as for --prices)"""
    add("--budget", type=float, help=budget)
    error = """the cheapest decisions whose true error is at most this, with --confidence (default 0.95) over the draw of the rows
        that the router did not see; for queries like these, without the guard"""
    add("--max-error", type=float, help=error)
    chance = "within a budget: the chance that it is kept, such as 0.95 (default: about 0.5, where the budget binds)"
    add("--confidence", type=float, help=chance)
    raw = "decide without the guard, which may shift scores or send every query to one expert; not with a budget"
    add("--raw", action="store_true", help=raw)
    trust = "build classes of this module too, if the run uses them"
    add("--trust", metavar="MODULE", action="append", default=[], help=trust)


def read_amounts(text: str) -> list[tuple[str, str]]:
    """The names, which may be empty, and the amounts of small=0.1,large=0.3, {small: 0.1, large: 0.3} or [0.1, 0.3]."""
    parts = [part.rpartition("=" if "=" in part else ":") for part in text.strip("[]{} ").split(",")]
    return [(name.strip(" '\""), amount.strip(" '\"")) for name, _, amount in parts]


def read_prices(text: str) -> list[float] | dict[str, float]:
    names, amounts = zip(*read_amounts(text), strict=True)
    with suppress(ValueError):
        prices = [float(amount) for amount in amounts]
        if not any(names):
            return prices
        if all(names) and len({*names}) == len(names):
            return dict(zip(names, prices, strict=True))
    raise ParameterError("--prices", "must be such as small=0.1,large=0.3, or 0.1,0.3 in the experts' order", text)


def read_capacity(text: str) -> dict[str, str]:
    amounts = dict(pairs := read_amounts(text))
    if "" in amounts or len(amounts) < len(pairs):
        raise ParameterError("--capacity", 'must be such as {alice: 40, large: "10%"}', text)
    return amounts


def refuse_overwriting(out: Path, read: Sequence[Path]) -> None:
    """read: the files that the command reads."""
    if any(file.exists() and out.exists() and out.samefile(file) for file in read):
        raise ParameterError("--out", "is a file that is read, and would be lost; choose another", out)


def check_out(out: Path, file: Path | None) -> None:
    """Before the work, not after it."""
    refuse_overwriting(out, [] if file is None else [file])
    if out.is_dir():
        raise ParameterError("--out", "is a folder", out)
    if not out.parent.is_dir():
        raise ParameterError("--out", f"no such folder: {out.parent}", out)


def load_router(options: argparse.Namespace) -> "Router":
    if options.trust:
        look_in(str(Path.cwd()))
    RunFolder(options.run.expanduser()).config()  # a folder without a run is answered before torch is imported
    from l2d.router.router import Router

    router = Router.load(options.run, raw=options.raw, trust=options.trust)
    asked = {name: getattr(options, name, None) for name in ("budget", "confidence", "max_error")}
    if any(given is not None for given in (options.prices, *asked.values())):
        with given_as_flags():
            router = router.at(options.prices, **asked)
    return router


def tell_how_it_decides(router: "Router") -> None:
    """Print what a budget and the guard do to all choices. A budget needs the guard."""
    kept = router.operating_point
    if kept is not None:
        print(kept, file=sys.stderr)
    if router.guard_note is not None:
        print(router.guard_note + " (--raw decides without the guard)" * (kept is None), file=sys.stderr)


def ask_router(router: "Router", options: argparse.Namespace) -> "list[Choice]":
    if options.capacity is not None and options.file is None:
        raise ParameterError("--capacity", "needs --file, a batch of rows", dict(options.capacity))
    if options.file is not None:
        with given_as_flags():
            return router.route_file(options.file, capacity=options.capacity)
    for name in ("text", "image"):  # texts and paths are both words: the flag says which
        if getattr(options, name) is not None and router.description.kind != name:
            raise L2DError(f"--{name}: this router sees {router.description.sees}; see l2d route --help")
    return router.route(options.text or options.image)


def columns_of(file: Path) -> dict[str, list[str]]:
    """The cells of a CSV file as they are written there, of a Parquet file as text."""
    from l2d.data.sheet import read_header, read_sheet

    columns = read_sheet(file, read_header(file).names).columns
    return {name: ["" if cell is None else str(cell) for cell in found.to_pylist()] for name, found in columns.items()}


def choices_csv(
    choices: "Sequence[Choice]",
    experts: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    chosen_name: str = "expert",
) -> str:
    """columns: of the file with the queries, if there is one. They come first, so that the choices can be joined with it."""
    table: dict[str, Sequence[Any]] = {"row": range(1, len(choices) + 1), chosen_name: [c.expert for c in choices]}
    if any(choice.unread for choice in choices):
        table["decided_by"] = ["unreadable" if choice.unread else "router" for choice in choices]
    numbers: dict[str, Sequence[float | None]] = {}
    if paid := chosen_prices(choices):
        numbers["expected_price"] = paid
    if any(choice.expected_errors for choice in choices):
        numbers["expected_error"] = [(choice.expected_errors or {}).get(choice.expert) for choice in choices]
    for kind, part in (("posterior", "posterior"), ("expected_cost", "expected_costs")):
        found = [getattr(choice, part) for choice in choices]
        if any(found):
            numbers |= {f"{kind}_{name}": [(one or {}).get(name) for one in found] for name in experts}
    table |= {name: ["" if cell is None else f"{cell:.6g}" for cell in cells] for name, cells in numbers.items()}
    table = given_columns(columns, (*table, "expert")) | table
    return csv_text([[*table], *zip(*table.values(), strict=True)])


def chosen_prices(choices: "Sequence[Choice]") -> list[float | None]:
    """The expected prices of the chosen experts, None for a query that was not read; empty if none is known, or if all are 0."""
    found = [(choice.expected_prices or {}).get(choice.expert) for choice in choices]
    return found if any(found) else []


def choices_summary(choices: "Sequence[Choice]", router: "Router") -> str:
    counts = Counter(choice.expert for choice in choices)
    said = f"{len(choices):,} queries: " + ", ".join(f"{counts[name]:,} to {name}" for name in router.experts)
    paid = [price for price in chosen_prices(choices) if price is not None]
    return f"{said}; expected {router.prices.mean_price} {router.prices.short(fmean(paid))}" if paid else said


def route_files(options: argparse.Namespace) -> None:
    if options.out is None or options.capacity is not None:
        raise ParameterError("--file", "several files need --out, a new folder, and take no --capacity", options.file)
    router = load_router(options)
    tell_how_it_decides(router)
    from l2d.large.route import route_large

    counts = route_large(router, options.file, options.out)
    said = ", ".join(f"{counts[name]:,} to {name}" for name in router.experts)
    print(f"{counts.total():,} queries: {said}; written to {options.out}", file=sys.stderr)


def main(arguments: list[str]) -> None:
    with answering():
        options = make_route_parser().parse_args(arguments)
        if isinstance(options.file, str):
            route_files(options)
            return
        if options.out is not None:
            check_out(options.out, options.file)
        router = load_router(options)
        from l2d.router.trained import plan_of

        choices = ask_router(router, options)
        tell_how_it_decides(router)
        if router.encoder is not None and router.encoder.note is not None:
            print(router.encoder.note, file=sys.stderr)
        if unread := sum(choice.unread for choice in choices):
            print(f"{unread:,} of {len(choices):,} queries have no text: to the best single expert", file=sys.stderr)
        first = "expert" if plan_of(router)[0] is None else "ask"
        if first == "ask":
            what = "the column ask has its first call; what follows depends on answers (l2d serve)"
            print(f"a plan: {what}", file=sys.stderr)
        content = choices_csv(choices, router.experts, {} if options.file is None else columns_of(options.file), first)
        if options.out is None:
            print(content, end="")
        else:
            write_text(options.out, content)
            print(f"{choices_summary(choices, router)}; written to {options.out}", file=sys.stderr)
