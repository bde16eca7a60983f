"""A log with a row per answer, made into a table with a row per query and empty cells where an expert was not asked."""

import sys

import numpy as np

from l2d.data.sets.outcomes import LATENCY, MONEY, OUTCOMES, PROPENSITY
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError
from l2d.utils.text import counted, listed

EXPERT, ID = "expert", "id"
MONEY_WORDS = ("price", "cost", "usd", "cost_usd", "price_usd")
# Columns of an answer, and what the columns of a table with a row per query are called.
PREFIXES = {"latency": LATENCY, "propensity": PROPENSITY}
# Known only after the answer, or of no use for a new query: left out, unless they are named.
AFTER = ("answer", "response", "tokens", "probability", "seconds", "time", "timestamp", "router_choice", "price_scale")


def is_long(names: list[str]) -> bool:
    """Whether columns are those of a log with a row per answer: expert, and what it did."""
    wide = any(name.startswith(f"{kind}_") for kind in OUTCOMES for name in names)
    return EXPERT in names and outcome_column(names) is not None and not wide


def outcome_column(names: list[str]) -> str | None:
    """correct, prediction or loss; or cost, if there is none of them."""
    return next((name for name in (*OUTCOMES, "cost") if name in names), None)


def widened(sheet: Sheet, kept: list[str]) -> Sheet:
    """kept: columns of which a query has the value of its first answer. Others that differ between the answers to one query belong
    to the answers and are left out."""
    import pyarrow as pa

    outcome = outcome_column(sheet.names)
    assert outcome is not None
    experts = sheet.words(EXPERT)
    names = list(dict.fromkeys(experts))
    columns = {outcome: f"{'loss' if outcome == 'cost' else outcome}_"}
    money = [name for name in MONEY_WORDS if name in sheet.names and name != outcome]
    if len(money) > 1:
        raise L2DError(f"{sheet.path}: columns {listed(money)}: two prices of an answer; keep one")
    columns |= dict.fromkeys(money, MONEY[0]) | {name: pre for name, pre in PREFIXES.items() if name in sheet.names}
    query, first = _queries(sheet)
    place = query * len(names) + np.array([names.index(name) for name in experts])
    answered, chosen = _first_answers(sheet, place, [name for name in columns if name != "latency"], names)
    wide = {}
    for name in _of_the_query(sheet, query, first, [EXPERT, *columns, *AFTER], kept):
        wide[name] = sheet.columns[name].take(pa.array(first))
    for column, prefix in columns.items():
        cells = sheet.columns[column].take(pa.array(chosen))
        for k, name in enumerate(names):
            rows = np.full(len(first), -1)
            mine = answered % len(names) == k
            rows[answered[mine] // len(names)] = np.flatnonzero(mine)
            wide[f"{prefix}{name}"] = cells.take(pa.array(rows, mask=rows < 0))
    told = f"a log of {counted(len(answered), 'answer')}, made into {counted(len(first), 'row')}, one per query"
    print(f"{sheet.path}: {told}", file=sys.stderr)
    return Sheet(sheet.path, wide, first)


def _queries(sheet: Sheet) -> tuple[np.ndarray, np.ndarray]:
    """The query of each row, numbered by first appearance, and the first row of each. Without an id, every row is one."""
    if ID not in sheet.columns:
        return np.arange(len(sheet)), np.arange(len(sheet))
    ids = np.array(sheet.words(ID), dtype=object).astype(str)
    _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return np.argsort(order)[inverse], first[order]


def _first_answers(
    sheet: Sheet, place: np.ndarray, columns: list[str], names: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """The places that have an answer, and the row of each. Answers of one expert to one query must agree."""
    answered, chosen, inverse = np.unique(place, return_index=True, return_inverse=True)
    for column in columns if len(answered) < len(place) else ():
        words = np.array(sheet.words(column, gaps=True), dtype=object)
        differ = np.flatnonzero(words != words[chosen][inverse])
        if len(differ):
            row = int(differ[0])
            before = int(chosen[inverse[row]])
            same = f"rows {before + 1:,} and {row + 1:,} have the same id and expert, {names[int(place[row]) % len(names)]}"
            raise L2DError(f"{sheet.path}: {same}, but {column} is {words[before]} and {words[row]} {sheet.counted}")
    return answered, chosen


def _of_the_query(sheet: Sheet, query: np.ndarray, first: np.ndarray, taken: list[str], kept: list[str]) -> list[str]:
    found: list[str] = []
    left_out: list[str] = []
    for name in sheet.names:
        if name in kept or name == ID:
            found.append(name)
        elif name not in taken:
            cells = [repr(cell) for cell in sheet.columns[name].to_pylist()]  # as text, NaN is equal to NaN
            same = len(first) == len(sheet) or all(cells[row] == cells[first[own]] for row, own in enumerate(query))
            (found if same else left_out).append(name)
    if left_out:
        what = f"{listed(left_out)}: differs between answers to one query, so the router does not see it"
        print(f"{sheet.path}: {what}", file=sys.stderr)
    return found
