"""Reads a table's columns: the experts' outcomes, prices, latencies and propensities, and the classes of the labels."""

import difflib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from l2d.data.arrays import same_name
from l2d.data.cells import cell_number, says_dollars
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError, ParameterError, unknown
from l2d.utils.text import counted, listed

Outcome = Literal["correct", "prediction", "loss"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "prediction", "loss")
MONEY = ("price_", "cost_", "usd_", "cost_usd_", "price_usd_")  # names of what an expert costs on a row begin so
LATENCY, PROPENSITY = "latency_", "propensity_"
SAID = ANSWER, CONFIDENCE, LENGTH = "answer_", "confidence_", "length_"  # of what experts said
MILLISECONDS = re.compile(r"(^|_)(ms|millis|milliseconds)(_|$)", re.IGNORECASE)
NEAR = 0.88  # of difflib: corect is near correct, corrected and incorrect are not
ALSO_CALLED = ("is_correct", "was_correct", "label_correct", "correctness")  # correct
OF_AN_EXPERT = (*(f"{kind}_" for kind in OUTCOMES), *MONEY, LATENCY, PROPENSITY)
BESIDE = {"prices": MONEY, "latencies": (LATENCY,), "propensities": (PROPENSITY,)}  # parts of Answers
EASILY_MISSPELT = ("propensity", *(begin.removesuffix("_") for begin in SAID))


@dataclass(frozen=True)
class Expert:
    """outcome: what its column holds."""

    name: str
    column: str
    outcome: Outcome


def find_experts(sheet: Sheet, columns: list[str] | None, outcome: Outcome) -> list[Expert]:
    """The columns correct_NAME, prediction_NAME and loss_NAME of the file; or `columns`, which all hold `outcome`."""
    if columns is None:
        made = sheet.made or sheet.names  # a log with a row per answer may have a column correct_answer of its own
        kinds = [(column, kind) for column in made for kind in OUTCOMES if column.startswith(f"{kind}_")]
    else:
        kinds = [(_outcome_column(sheet, name, outcome), outcome) for name in columns]
    experts = [Expert(column.removeprefix(f"{kind}_"), column, kind) for column, kind in kinds]
    if columns is not None and len(experts) < 2:
        raise ParameterError("experts", f"{counted(len(experts), 'expert')}; routing needs at least 2", columns)
    if len(experts) < 2:
        found = f"only one expert, {experts[0].name}" if experts else "no experts"
        needs = "a table has two or more columns correct_NAME, a log the columns expert and correct"
        check = f"there are {listed(sheet.names)}; l2d check {sheet.path} says what they may be"
        raise L2DError(f"{sheet.path}: {found}; {needs}; {check}")
    _refuse_misspelt(sheet, experts, all_of_them=columns is None)
    names = [same_name(expert.name) for expert in experts]
    if twice := [expert.column for expert in experts if names.count(same_name(expert.name)) > 1]:
        problem = "two outcomes of one expert (capitals and spaces in names do not count); keep or rename one"
        raise L2DError(f"{sheet.path}: columns {' and '.join(twice)}: {problem}")
    return experts


def near_names(names: Sequence[str]) -> list[list[str]]:
    """Names that differ only in capitals, spaces and punctuation, together; the first is the one that occurs most often."""
    alike: dict[str, Counter[str]] = {}
    for name, count in Counter(names).items():
        alike.setdefault(re.sub(r"[\W_]", "", name.casefold()), Counter())[name] = count
    return [[name for name, _ in found.most_common()] for found in alike.values() if len(found) > 1]


def _refuse_misspelt(sheet: Sheet, experts: list[Expert], *, all_of_them: bool) -> None:
    """Refuse nearly right names of what belongs to an expert. If all experts are used, so are outcomes whose name is not quite one:
    an expert that has a price would be left out."""
    known, names = {expert.name for expert in experts}, sheet.names
    named = {name[len(start) :] for name in names for start in OF_AN_EXPERT if name.casefold().startswith(start)}
    for name in sorted(named - known) if all_of_them else ():
        refuse_near(sheet, [experts[0].outcome], f"_{name}")
    for name in sorted(known):
        refuse_near(sheet, EASILY_MISSPELT, f"_{name}")
    owned = {f"{begin}{name}" for begin in MONEY for name in known} | {expert.column for expert in experts}
    for column in (column for column in names if column.startswith(MONEY) and column not in owned):
        if near := [name for name in known if column.endswith(f"_{name}")]:
            sheet.fault(column, f"did you mean {MONEY[0]}{near[0]}? Rename it if it is something else")


def refuse_near(sheet: Sheet, words: Sequence[str], end: str = "") -> None:
    """Refuse a column whose name is nearly one of these words, followed by this end: it would be overlooked, and a router might see
    it. Only the words are compared: with a long name of an expert at the end, all columns would be alike."""
    for name in (name for name in sheet.names if name.endswith(end) and not name.startswith(OF_AN_EXPERT)):
        for word in (word for word in words if f"{word}{end}" not in sheet.names):
            if _is_near(word, name.removesuffix(end).casefold()):
                sheet.fault(name, f"did you mean {word}{end}? Rename it if it is something else")


def _is_near(word: str, name: str) -> bool:
    """name: in small letters. A plural may count something. Many words are near one as short as loss: gloss, lossy, los."""
    if name == word or (word == "correct" and name in ALSO_CALLED):
        return True
    like = difflib.SequenceMatcher(None, name, word).ratio() >= NEAR
    return like and name != f"{word}s" and word != "loss"


def _outcome_column(sheet: Sheet, name: str, outcome: Outcome) -> str:
    """A column may be named in full (correct_gpt) or by its expert (gpt)."""
    if name not in sheet.columns and f"{outcome}_{name}" in sheet.columns:
        return f"{outcome}_{name}"
    if sheet.made and name not in sheet.columns:  # a log with a row per answer
        known = [column.removeprefix(f"{outcome}_") for column in sheet.names if column.startswith(f"{outcome}_")]
        raise ParameterError("experts", unknown("expert", name, known), name)
    sheet.check_column("experts", name)
    return name


def money_columns(sheet: Sheet, experts: list[Expert]) -> dict[str, str]:
    """{expert: its column of prices}, for all experts or for none."""
    return _columns_beside(sheet, experts, MONEY)


def _columns_beside(sheet: Sheet, experts: list[Expert], prefixes: tuple[str, ...]) -> dict[str, str]:
    """{expert: its column that begins so}, for all experts or for none. Latencies of some experts are ignored."""
    others, found = sheet.columns.keys() - {expert.column for expert in experts}, dict[str, str]()
    for name in (expert.name for expert in experts):
        own = [f"{prefix}{name}" for prefix in prefixes if f"{prefix}{name}" in others]
        if len(own) > 1:
            raise L2DError(f"{sheet.path}: columns {' and '.join(own)}: two prices of {name}; keep one")
        if own:
            found[name] = own[0]
    absent = [f"{prefixes[0]}{expert.name}" for expert in experts if expert.name not in found]
    if found and absent and prefixes[0] != LATENCY:
        raise L2DError(f"{sheet.path}: no column {listed(absent)}; give every expert one, or none")
    return {} if absent else found


def in_dollars(sheet: Sheet, experts: list[Expert]) -> bool:
    """True if a price column says so, by its name or in its cells."""
    money = money_columns(sheet, experts).items()
    named = any("usd" in sheet.in_file(column).removesuffix(name).casefold() for name, column in money)
    return named or any(says_dollars(sheet.columns[column]) for _, column in money)


def check_answers(sheet: Sheet, columns: Mapping[str, str]) -> None:
    """Refuse answers of a log that a table with a row per query would refuse, by the file's own names and rows. columns:
    those of an answer, and how they begin in such a table; the outcome is the first."""
    outcome, *others = columns
    kind = columns[outcome].removesuffix("_")
    expert = Expert("", outcome, "loss" if kind == "loss" else "correct")
    if kind != "prediction":
        _errors(sheet, expert, None)
    for column in (column for column in others if columns[column] != ANSWER):
        cell_amounts(sheet, column, columns[column])


def amounts_of(sheet: Sheet, experts: list[Expert], labels: list[str] | None) -> dict[str, np.ndarray]:
    """The parts of Answers, float64 [n, p]. Outcomes are NaN where a cell is empty: the expert was not asked."""
    errors = np.stack([_errors(sheet, expert, labels) for expert in experts], axis=1)
    found = {"errors": errors, **amounts_beside(sheet, experts)}
    columns = {"errors": [expert.column for expert in experts], "prices": [*money_columns(sheet, experts).values()]}
    for part in (part for part in columns if part in found):
        for k, column in enumerate(columns[part]):
            if np.isnan(found[part][:, k]).all():
                sheet.fault(column, f"empty; fill in some, or leave {experts[k].name} out (dataset.experts)")
    asked, chances = ~np.isnan(errors), found.get("propensities")
    if chances is not None and (lacking := int((asked & np.isnan(chances)).sum())):
        del found["propensities"]
        if not asked.all():  # else none is needed
            why = f"{lacking:,} of {counted(int(asked.sum()), 'outcome')} have none"
            sheet.note(f"propensities are estimated anew: {why}; fill them in to use yours")
    return found


def amounts_beside(sheet: Sheet, experts: list[Expert]) -> dict[str, np.ndarray]:
    """Prices, latencies and propensities, float64 [n, p], if the sheet has them."""
    columns = {key: _columns_beside(sheet, experts, prefixes).values() for key, prefixes in BESIDE.items()}
    cells = {key: [cell_amounts(sheet, name, BESIDE[key][0]) for name in names] for key, names in columns.items()}
    return {key: np.stack(amounts, axis=1) for key, amounts in cells.items() if amounts}


def cell_amounts(sheet: Sheet, column: str, prefix: str) -> np.ndarray:
    """float64 [n], NaN where a cell is empty; none is negative, but for a confidence. prefix: how such columns begin. A name such
    as latency_ms says what plain numbers are."""
    milliseconds = prefix == LATENCY and column in sheet.written and MILLISECONDS.search(sheet.in_file(column))
    values = sheet.numbers(column, gaps=True, plain=1e-3 if milliseconds else 1.0)
    sheet.refuse(column, "negative", (values < 0) & (prefix != CONFIDENCE))
    if prefix == PROPENSITY:
        sheet.refuse(column, "not above 0 and at most 1", (values <= 0) | (values > 1))
    return values


def _errors(sheet: Sheet, expert: Expert, labels: list[str] | None) -> np.ndarray:
    """float64 [n]: 1 − correctness, 1[prediction ≠ label], or the loss as it is; NaN where the cell is empty."""
    if expert.outcome != "prediction":
        values = sheet.numbers(expert.column, gaps=True)
        if expert.outcome == "loss":
            sheet.refuse(expert.column, "negative", values < 0)
            return values
        sheet.refuse(expert.column, "not between 0 (wrong) and 1 (right)", (values < 0) | (values > 1))
        return 1 - values
    if labels is None:
        raise ParameterError("label", f"missing; predictions in column {expert.column} need a column to compare with")
    predictions = sheet.words(expert.column, gaps=True)
    if not set(predictions) & set(labels):
        found = f"predictions are {listed(sorted(set(predictions)))}, labels {listed(sorted(set(labels)))}"
        raise L2DError(f"{sheet.path}: column {expert.column}: no prediction is ever a label; {found}")
    wrong = [np.nan if one == "" else float(one != true) for one, true in zip(predictions, labels, strict=True)]
    return np.array(wrong, dtype=np.float64)


def class_numbers(words: list[str] | None, n: int) -> tuple[np.ndarray, int]:
    """Labels as 0, 1, … (numbers by size, then words), int64 [n], and how many classes there are; −1 and 0 without labels."""
    if words is None:
        return np.full(n, -1), 0

    def place(word: str) -> tuple[bool, float, str]:
        value = cell_number(word)
        return (True, 0.0, word) if np.isnan(value) else (False, value, word)

    classes = {word: k for k, word in enumerate(sorted(set(words), key=place))}
    return np.array([classes[word] for word in words]), len(classes)
