"""A log with a row per answer, made into a table with a row per query and empty cells where an expert was not asked."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from l2d.data.arrays import same_name
from l2d.data.cells import TEXT, missing
from l2d.data.sets.outcomes import ALSO_CALLED, OUTCOMES, PROPENSITY, SAID, check_answers, near_names, refuse_near
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError, ParameterError, unknown
from l2d.utils.text import counted, listed

EXPERT, ID = "expert", "id"
MONEY_WORDS = ("price", "cost", "usd", "cost_usd", "price_usd")
# Columns of an answer, and what the columns of a table with a row per query are called.
PREFIXES = {"latency": "latency_", "propensity": PROPENSITY}
# The same, unless the user names them as something else: `answer` may be the right one. `length` alone may be the query's.
REPLY = {prefix.removesuffix("_"): prefix for prefix in SAID}
# Known only after the answer, or of no use for a new query: left out, unless they are named.
AFTER = (
    *(EXPERT, "answer", "response", "tokens", "probability", "seconds", "time", "timestamp", "router_choice"),
    *("price_scale", *MONEY_WORDS, *PREFIXES, *OUTCOMES, *ALSO_CALLED),
)


def is_long(names: list[str]) -> bool:
    """True for the columns of a log with a row per answer. One may begin as an outcome of a table does, such as correct_answer."""
    wide = sum(name.startswith(f"{kind}_") for kind in OUTCOMES for name in names) > 1
    return EXPERT in names and outcome_column(names) is not None and not wide


def outcome_column(names: list[str]) -> str | None:
    """correct, prediction or loss; or cost, if there is none of them."""
    return next((name for name in (*OUTCOMES, "cost") if name in names), None)


def answer_columns(sheet: Sheet, taken: Collection[str] = ()) -> dict[str, str]:
    """{column of an answer: how its columns begin in a table with a row per query}; the outcome first. taken: named otherwise."""
    outcome = outcome_column(sheet.names)
    assert outcome is not None
    refuse_near(sheet, ["propensity", *(OUTCOMES if outcome == "cost" else ())])
    money = [name for name in money_of_answers(sheet) if name != outcome]
    found = {outcome: f"{'loss' if outcome == 'cost' else outcome}_", **dict.fromkeys(money, "price_")}
    reply = {name: prefix for name, prefix in REPLY.items() if name in sheet.names and name not in taken}
    found |= {name: prefix for name, prefix in PREFIXES.items() if name in sheet.names}
    return found if [*reply] == ["length"] else found | reply


def money_of_answers(sheet: Sheet) -> list[str]:
    """Columns of what an answer cost. Beside an outcome, more than one is refused."""
    found, outcome = [name for name in MONEY_WORDS if name in sheet.names], outcome_column(sheet.names)
    priced = any(name != outcome for name in found)
    refuse_near(sheet, [*([] if priced else MONEY_WORDS), "latency", "answer", "confidence"])
    if len(found) - (outcome == "cost") > 1:
        raise L2DError(f"{sheet.path}: columns {listed(found)}: two prices of an answer; keep one")
    return found


def widened(
    sheet: Sheet, only: list[str] | None, named: list[str], first_of: list[str], merge: Sequence[Sequence[str]] = ()
) -> Sheet:
    """only: the experts to use, by their names or columns. named: columns that must not differ between the answers to one query;
    others that do are left out. first_of: columns with the value of the first answer. merge: lists of names of one expert."""
    import pyarrow as pa

    columns, experts = answer_columns(sheet, (*named, *first_of)), sheet.words(EXPERT)
    known = {name: names[0] for names in merge for name in names}
    if absent := sorted(set(known) - {*experts, *known.values()}):
        raise ParameterError("merge", unknown("expert", absent[0], dict.fromkeys(experts)), absent[0])
    experts = [known.get(name, name) for name in experts]
    prefix = next(iter(columns.values()))
    used = np.array([only is None or expert in only or f"{prefix}{expert}" in only for expert in experts])
    names = list(dict.fromkeys(experts))
    for alike in near_names([expert for expert, mine in zip(experts, used, strict=True) if mine]):
        told = f"nearly equal names {', '.join(alike)}; if they are one expert: dataset.merge=[[{','.join(alike)}]]"
        if len({*map(same_name, alike)}) < len(alike):
            sheet.refuse(EXPERT, told, np.isin(experts, alike))
        else:
            sheet.note(told)
    numbers: dict[str, int] = {}  # of queries, by first appearance; without an id, every row is one
    as_text = ID in sheet.columns and str(sheet.columns[ID].type) in TEXT  # then 1.1 is not 1.10
    ids = sheet.texts(ID) if as_text else sheet.words(ID) if ID in sheet.columns else range(len(sheet))
    query = np.array([numbers.setdefault(str(one).strip(), len(numbers)) for one in ids])
    first = np.unique(query, return_index=True)[1]
    place = query * len(names) + np.array([names.index(name) for name in experts])
    sheet, chosen = chosen_answers(sheet, place, next(iter(columns)), [*columns])
    check_answers(sheet.take(used), columns)
    rows = np.full((len(first), len(names)), -1)  # of the answers, by query and expert
    rows.flat[place[chosen]] = chosen
    wide, written = {}, {}
    for name in _of_the_query(sheet, query, first, [EXPERT, *columns], named, first_of):
        wide[name] = sheet.columns[name].take(pa.array(first_filled(sheet, name, query) if name in named else first))
    for column, prefix in _right_propensities(sheet, columns, query, used).items():
        for name, mine in zip(names, rows.T, strict=True):
            wide[f"{prefix}{name}"] = sheet.columns[column].take(pa.array(mine, mask=mine < 0))
            written[f"{prefix}{name}"] = sheet.in_file(column)
    note = f"a log of {counted(len(chosen), 'answer')}, made into {counted(len(first), 'row')}, one per query"
    if again := len(sheet) - len(chosen):
        note += f"; left out {counted(again, 'row')} with an answer that came before"
    sheet.note(note)
    return replace(sheet, columns=wide, rows=first, written={**sheet.written, **written}, made=tuple(written))


def _right_propensities(sheet: Sheet, columns: dict[str, str], query: np.ndarray, used: np.ndarray) -> dict[str, str]:
    """No propensities if answers to a query are graded one by one: an outcome is known less often than its expert was asked."""
    outcome = next(iter(columns))
    graded = ~missing(sheet.columns[outcome])
    partly = np.intersect1d(query[used & graded], query[used & ~graded])
    if PROPENSITY not in columns.values() or not len(partly):
        return columns
    why = f"{len(partly):,} of {query.max() + 1:,} queries have answers with and without {outcome}"
    sheet.note(f"propensities are estimated anew: {why}")
    return {name: prefix for name, prefix in columns.items() if prefix != PROPENSITY}


def chosen_answers(sheet: Sheet, answer: np.ndarray, outcome: str, columns: Sequence[str]) -> tuple[Sheet, np.ndarray]:
    """The sheet with completed rows, and the row of each answer, by its number: the first in time that has an outcome, or else the
    first: who asks once gets it. answer: the number of each row's."""
    probe = replace(sheet, faults={})
    times = probe.times("time") if "time" in sheet.columns else np.zeros(len(sheet))
    times = np.zeros(len(sheet)) if probe.faults else times  # the file's order counts, unless every row has a time
    chosen = first_of(answer, times, missing(sheet.columns[outcome]))
    if len(chosen) == len(answer):
        return sheet, chosen
    for problem in (probe.faults or {}).values():
        sheet.note(f"{problem}; of answers that occur twice, the first in the file counts")
    return _completed(sheet, np.unique(answer, return_inverse=True)[1], columns), chosen


def _completed(sheet: Sheet, answer: np.ndarray, columns: Sequence[str]) -> Sheet:
    """An empty cell gets the first one of its answer that is not empty: a row that grades an answer may know nothing else. In other
    columns than these only from an earlier row: what comes with the grade is no input. answer: its number, < n."""
    import pyarrow as pa

    found, rows = {}, np.arange(len(sheet))
    for name, cells in sheet.columns.items():
        empty = missing(cells)
        first = np.full(len(sheet), len(sheet))  # the first row of each answer that has this cell
        np.minimum.at(first, answer[~empty], rows[~empty])
        source = first[answer]
        filled = empty & (source < (len(sheet) if name in columns else rows))
        found[name] = cells.take(pa.array(np.where(filled, source, rows)))
    return replace(sheet, columns=found)


def _of_the_query(
    sheet: Sheet, query: np.ndarray, first: np.ndarray, read: list[str], named: list[str], first_of: list[str]
) -> list[str]:
    """The columns of a query. read: those of an answer that are read."""
    found, left_out, later = list[str](), list[str](), list[str]()
    for name in sheet.names:
        if name in first_of or name == ID:
            found.append(name)
        elif name in named:
            differs = _differs(sheet, name, first_filled(sheet, name, query)[query])
            sheet.refuse(name, "differs although the id is the same", differs & ~missing(sheet.columns[name]))
            found.append(name)
        elif name not in read and name.casefold() in AFTER:
            later += [] if name in sheet.written else [name]  # its role is known
        elif name not in read:
            (left_out if _differs(sheet, name, first[query]).any() else found).append(name)
    if left_out:
        sheet.note(f"{listed(left_out)}: differs between answers to one query, so the router does not see it")
    if later:
        sheet.note(f"left out because of their names: {listed(later)} (dataset.features can name columns of numbers)")
    return found


def first_filled(sheet: Sheet, column: str, query: np.ndarray) -> np.ndarray:
    """The first row of each query that has this cell, or else its first row."""
    return first_of(query, missing(sheet.columns[column]))


def first_of(group: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """The row of each group, by its number, that comes first by these keys; the last key counts most."""
    order = np.lexsort((*keys, group))
    return order[np.unique(group[order], return_index=True)[1]]


def _differs(sheet: Sheet, column: str, first: np.ndarray) -> np.ndarray:
    """bool [n]. first: the row to compare with each one."""
    cells = np.array([repr(cell) for cell in sheet.columns[column].to_pylist()], object)  # as text, NaN is equal to NaN
    return np.asarray(cells != cells[first], dtype=bool)
