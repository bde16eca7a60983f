"""l2d evaluate RUN --log LOG: what a router is worth, by the outcomes in the log of l2d serve."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from l2d.commands.route import add_decision_flags, load_router, tell_how_it_decides
from l2d.core.prices import Prices
from l2d.core.results import Estimate
from l2d.utils.text import Z, aligned, counted, listed
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags

if TYPE_CHECKING:  # they import torch
    from l2d.analysis.log_value import LogValue, PolicyValue
    from l2d.logs.rows import LoggedRows
    from l2d.router.router import Router

DESCRIPTION = """The value of a router, by the outcomes in the log of l2d serve: its mean cost per query (error + price), against
the policy that ran and against each expert alone, with 95 % intervals.

The log knows what one expert did on each query. The propensities that the server logged make up for it: the estimates are right
whatever chose the experts, if all of them had a chance (l2d serve --explore). Rows that trained the router are left out, and rows
without a propensity or, if the run needs it, a price. A line says how many."""
EPILOG = """columns:
  doubly robust   the mean cost: what a regression expects, corrected by the outcomes of the rows that were asked
  SNIPS           the mean cost by the outcomes alone, weighted by 1/propensity; less certain, but without a regression
  router's gain   how much less the router costs, on the same rows, by the doubly robust estimates
  rows            the rows on which the log asked the expert that the policy chooses

Below: the mean price of the router's choices on these queries, doubly robust, in the unit of the prices in training; within a
budget (--budget, or that of a saved router), whether it is kept. With --prices, or if RUN was saved at one price per expert and its
own differed between queries, these prices count, not those of the log.

example:
  l2d evaluate runs/queries/own/table/error/linear/1a2b3c4d/seed=0 --log log.sqlite"""
HEADER = ["95 % intervals", "doubly robust", "", "SNIPS", "", "router's gain", "", "rows"]
WITH_LIMITS = 6  # the version of the log's tables that counts questions
LIMITED = (
    "at least {} of {} did not get the router's choice, by a limit (--capacity) or `available`; values may be far off"
)
WITHHELD = "SELECT id FROM decisions WHERE decided_by = 'capacity'"


def main(arguments: Sequence[str]) -> None:
    with answering():
        parser = OneLineParser(prog="l2d evaluate", description=DESCRIPTION, epilog=EPILOG)
        add = parser.add_argument
        add("run", metavar="RUN", type=Path, help="the folder of a finished run, runs/.../seed=<s>")
        add("--log", required=True, help="the log of l2d serve: its file or its URL; or what l2d log export wrote")
        add("--run", dest="decided_by", metavar="NAME", help="only decisions of this run, named as the server named it")
        add_decision_flags(parser)
        options = parser.parse_args(arguments)
        from l2d.logs.databases import log_address
        from l2d.logs.rows import read_rows

        with given_as_flags():
            address = log_address(options.log)
            rows = read_rows(address, options.decided_by)  # before torch is imported
        router = load_router(options)
        from l2d.analysis.log_value import log_value

        relisted = router.prices.listed is not None and router.network.price_model is not None
        own = options.prices is not None or relisted  # the log's are of another kind
        rows = rows_to_judge_by(rows, router, options.run.expanduser(), own)
        if not (options.run.expanduser() / "test.npz").is_file():
            print("this router does not say which rows trained it; those would favour it here", file=sys.stderr)
        tell_how_it_decides(router)
        found = log_value(router, rows, own_prices=own)
        point = router.operating_point
        budget = None if point is None or point.max_error is not None else point.budget  # a saved router has its own
        unknown = [f"not known: {listed(found.unknown)}, hardly asked in these rows"] if found.unknown else []
        unknown += limits_note(address, rows)
        said = [*unknown, *price_notes(found, router.prices, budget), verdict(found, router.prices)]
        policies = (found.router, found.ran, *found.singles)
        print("\n".join([aligned(HEADER, [row_of(one, router.prices) for one in policies]), *said]))


def limits_note(address: Path | str, rows: "LoggedRows") -> list[str]:
    """In how many of these rows limits or `available` changed the router's choice, if there were any. An export does not say."""
    from l2d.data.sheet import KINDS
    from l2d.logs.databases import reading

    if isinstance(address, Path) and address.suffix.lower() in KINDS:
        return []
    with reading(address) as database:
        limited = database.version() >= WITH_LIMITS and database.rows("SELECT expert FROM asks LIMIT 1")
        number = len({one["id"] for one in database.rows(WITHHELD)} & {*rows.ids.tolist()})
    return [LIMITED.format(f"{number:,}", counted(len(rows), "row"))] if limited or number else []


def rows_to_judge_by(rows: "LoggedRows", router: "Router", run: Path, own_prices: bool) -> "LoggedRows":
    from l2d.analysis.log_value import fresh_rows, rows_with_prices
    from l2d.logs.rows import explored_rows, left_out_note

    fresh, trained = fresh_rows(rows, run)
    explored = explored_rows(fresh)
    found, unpriced = rows_with_prices(explored, router, own_prices)
    left = {**rows.left_out, "with the id of a row that trained this router": trained}
    left |= {"without exploration": len(fresh) - len(explored), "without a price": unpriced}
    print(f"{rows.file}: {counted(len(found), 'decision')} with an outcome{left_out_note(left)}", file=sys.stderr)
    return found


def row_of(one: "PolicyValue", prices: Prices) -> list[str]:
    def shown(estimate: Estimate | None, sign: str = "") -> list[str]:
        """The value, and the ends of its interval."""
        if estimate is None:
            return ["", ""]
        value, half = estimate.value, estimate.standard_error
        ends = [] if half is None else [value - Z * half, value + Z * half]
        return [prices.show(value, sign), " to ".join(prices.show(end, sign) for end in ends)]

    return [one.name, *shown(one.doubly_robust), *shown(one.snips), *shown(one.gain, "+"), f"{one.asked:,}"]


def price_notes(found: "LogValue", prices: Prices, budget: float | None) -> list[str]:
    """The price of the router's choices, and if there is a budget, whether they are within it."""
    if found.price is None or found.paid is None:
        return []
    told, value, half = prices.short, found.price.value, Z * (found.price.standard_error or 0.0)
    router = f"router {told(value)} (95 % interval {told(value - half)} to {told(value + half)})"
    said = f"{prices.mean_price} per query: {router}; {found.ran.name} {told(found.paid.value)}"
    if budget is None:
        return [said]
    rounding = 1e-6 * budget  # of prices in 32 bits
    within = "within" if value <= budget + rounding else "above"
    unsure = ", but not significantly" if half > max(abs(value - budget), rounding) else ""
    return [said, f"the router is {within} the budget of {told(budget)}{unsure}"]


def verdict(found: "LogValue", prices: Prices) -> str:
    """A sentence. The best expert alone is the best one on these rows, which favours it."""
    from l2d.router.score import BUDGET_SAYS

    best, ran = found.best_single, found.ran
    single = f"{best.name}, the best expert alone{BUDGET_SAYS[found.within_budget]}"
    than = f"{compared(ran.gain, ran.name, prices)}, and {compared(best.gain, single, prices)}"
    return f"verdict: per query, the router {than}."


def compared(gain: Estimate | None, name: str, prices: Prices) -> str:
    assert gain is not None  # only the router's own is
    value, half = gain.value, Z * (float("inf") if gain.standard_error is None else gain.standard_error)
    if abs(value) <= half:
        return f"is not significantly cheaper or dearer than {name} ({prices.show(value, '+')} ± {prices.show(half)})"
    less, size = "less" if value > 0 else "more", abs(value)
    interval = f"95 % interval {prices.show(size - half)} to {prices.show(size + half)}"
    return f"costs {prices.show(size)} {less} than {name} ({interval})"
