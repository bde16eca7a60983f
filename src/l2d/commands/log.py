"""l2d log export: the decisions and outcomes of `l2d serve`, in the long form that training takes."""

import sys
from collections.abc import Sequence
from pathlib import Path

from l2d.utils.text import counted
from l2d.utils.user_errors import OneLineParser, answering

ABOUT = """l2d log export writes the decisions that have an outcome as a table with a row for each: id, prompt (or the numbers that
the router saw: f_NAME of its columns, prompt_1, prompt_2, … of a text), expert, router_choice, correct (or loss), price, latency,
propensity, time (seconds since 1970), and price_scale, 1/cost.error_price. l2d train dataset=log and l2d evaluate --log read the
log itself, or this table.

Rows whose expert no policy chose are left out, since they have no propensity: the client named the expert, the conversation
had it already, or the chosen expert failed and another one answered. --all keeps them, with an empty propensity."""
EXAMPLES = """example:
  l2d log export log.sqlite --out log.csv"""


def main(arguments: Sequence[str]) -> None:
    with answering():
        parser = OneLineParser(prog="l2d log", description=ABOUT, epilog=EXAMPLES)
        add = parser.add_argument
        add("action", metavar="ACTION", choices=("export",), help="export")
        add("log", metavar="LOG", help="the SQLite file or the PostgreSQL URL of l2d serve --log")
        add("--out", required=True, type=Path, metavar="TABLE", help="the .csv or .parquet file to write")
        add("--run", help="only decisions of this run, named as the server named it")
        add("--all", action="store_true", dest="every", help="also rows without a propensity")
        options = parser.parse_args(arguments)
        from l2d.commands.route import check_out
        from l2d.data.sheet import write_sheet
        from l2d.logs.databases import log_address
        from l2d.logs.export import NUMBER, TEXT, read_long_form

        check_out(options.out, None)
        found = read_long_form(log_address(options.log), options.run, options.every)
        write_sheet(options.out, found.columns)
        if found.left_out:
            rows = counted(found.left_out, "row")
            print(f"left out: {rows} without a propensity (--all keeps them)", file=sys.stderr)
        if several := sum(len(calls) > 1 for calls in found.calls):
            rows = counted(several, "row")
            print(f"{rows} of plans: only the first answer is in the table; train from the log itself", file=sys.stderr)
        if not any(name.startswith((TEXT, NUMBER)) for name in found.columns):
            print("the log kept no inputs (--keep none), so nothing can be trained from it", file=sys.stderr)
        print(f"{options.out}: {counted(len(found.columns['id']), 'row')}")
