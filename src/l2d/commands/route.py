"""The command: which expert a trained router sends each query to, as CSV."""

import argparse
import csv
import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from l2d.serving.router import Choice, Router
from l2d.utils.errors import L2DError
from l2d.utils.files import write_text
from l2d.utils.user_errors import answering

HELP = """Which expert a trained router sends each query to.

usage: l2d route RUN --text TEXT [--text TEXT ...] [--prices PRICES] [--raw] [--out CHOICES]
       l2d route RUN --file QUERIES [--prices PRICES] [--raw] [--out CHOICES]
       l2d route RUN --image FILE [FILE ...] [--prices PRICES] [--raw] [--out CHOICES]

RUN is the folder of a finished run, runs/.../seed=<s>; nothing else is needed, neither the data nor the experts
(a router that reads text through a frozen encoder, router=minilm, needs that encoder).

  --text    a query, for routers that see one text
  --file    a CSV or Parquet file with a row per query and the columns that the router was trained on; others are passed over
  --image   images, for routers that see one; they are brought to the size that the router was trained on
  --prices  others than those of training, such as small=0.1,large=0.3 or in the experts' order 0.1,0.3 (method=cost_regression,
            label_regression, plugin, trained without cost.prices=columns); the guard is fitted to them anew
  --raw     what the router itself prefers, where validation had the run shift its scores or send everything to one expert
  --out     write there, whole or not at all, and not to the standard output

Writes CSV: the number of the query, its id where --file has a column of that name, the chosen expert, and for each expert
  posterior_NAME       p̂(NAME|query) where the method has one: with method=mild or tdef the expert's share of the expected
                       reward, with method=ce and its kin the chance that it is the cheapest
  expected_cost_NAME   error plus price that the method expects (method=cost_regression, plugin, one_vs_all and their kin)
both empty where the method does not say. The decision is that of the run (decision=argmax or posterior), with its guard.

examples:
  l2d route runs/mmlu_sim/own/table/error/mild/1a2b3c4d/seed=0 --text "Solve for x: 3x + 4 = 19."
  l2d route runs/queries/own/table/error/mild/1a2b3c4d/seed=0 --file queries.csv --out choices.csv
  l2d route runs/digits/III/synthetic/error/mild/1a2b3c4d/seed=0 --image three.png seven.png

in Python:
  from l2d.serving.router import Router
  router = Router.load("runs/.../seed=0")
  router.route(["Solve for x: 3x + 4 = 19."])[0].expert"""


def as_csv(choices: Sequence[Choice], experts: Sequence[str]) -> str:
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    kinds = ("posterior", "expected_cost")
    known = any(choice.id is not None for choice in choices)
    names = [f"{kind}_{name}" for kind in kinds for name in experts]
    writer.writerow(["query", *(["id"] if known else []), "expert", *names])
    for place, choice in enumerate(choices, start=1):
        numbers = [
            values[name] if values else None for values in (choice.posterior, choice.expected_costs) for name in experts
        ]
        cells = ["" if value is None else f"{value:.6g}" for value in numbers]
        writer.writerow([place, *([choice.id] if known else []), choice.expert, *cells])
    return content.getvalue()


def _prices(text: str) -> list[float] | dict[str, float]:
    # Also small:0.1, as in cost.prices.
    parts = [re.split(r"[=:](?=[^=:]*$)", part) for part in text.strip("[]{} ").split(",")]
    try:
        if all(len(part) == 2 for part in parts):
            named = {name.strip(" '\""): float(price) for name, price in parts}
            if len(named) < len(parts):
                raise ValueError
            return named
        return [float(part) for (part,) in parts]
    except ValueError:
        raise L2DError(
            f"--prices={text}: must be such as small=0.1,large=0.3, or 0.1,0.3 in the experts' order"
        ) from None


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise L2DError(f"{message}; see l2d route --help")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("run", metavar="RUN", type=Path)
    parser.add_argument("--text", action="append")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--image", nargs="+", action="extend")
    parser.add_argument("--prices", type=_prices)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    given = [name for name in ("text", "file", "image") if getattr(options, name) is not None]
    if len(given) != 1:
        parser.error(
            f"give one of --text, --file, --image, not {' and '.join(f'--{name}' for name in given) or 'none'}"
        )
    out = options.out
    if out is not None and (out.is_dir() or not out.parent.is_dir()):  # said before the work, not after it
        raise L2DError(f"--out={out}: {'is a folder' if out.is_dir() else f'no such folder: {out.parent}'}")
    return options


def answer(options: argparse.Namespace) -> str:
    router = Router.load(options.run, raw=options.raw)
    if options.prices is not None:
        try:
            router.reprice(options.prices)
        except L2DError as error:
            raise L2DError(re.sub("^prices", "--prices", str(error))) from error
    if (said := router.held) is not None:
        print(said, file=sys.stderr)
    choices = ask(router, options)
    if (note := getattr(router.encoder, "note", None)) is not None:  # an encoder of the user's own may have none
        print(note, file=sys.stderr)
    return as_csv(choices, router.experts)


def ask(router: Router, options: argparse.Namespace) -> list[Choice]:
    if options.file is not None:
        return router.route_file(options.file)
    for name in ("text", "image"):  # texts and paths are both words: the flag says which
        if getattr(options, name) is not None and router.kind != name:
            raise L2DError(f"--{name}: this router sees {router.sees}; see l2d route --help")
    return router.route(options.text or options.image)


def main(arguments: Sequence[str]) -> None:
    with answering():
        if not arguments or {"-h", "--help"} & {*arguments}:
            print(HELP)
            return
        options = parse(arguments)
        content = answer(options)
        if options.out is None:
            print(content, end="")
        else:
            write_text(options.out, content)
