"""Reads the columns of experts: outcomes, prices, latencies, propensities and answers; and the classes of the labels."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from l2d.data.agreement import Said, as_text
from l2d.data.arrays import same_name
from l2d.data.cells import cell_number, missing, says_dollars
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError, ParameterError, unknown
from l2d.utils.text import counted, listed

Outcome = Literal["correct", "prediction", "loss"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "prediction", "loss")
MONEY = ("price_", "cost_", "usd_", "cost_usd_", "price_usd_")  # names of what an expert costs on a row begin so
LATENCY, PROPENSITY = "latency_", "propensity_"
SAID = ANSWER, CONFIDENCE, LENGTH = "answer_", "confidence_", "length_"  # of what experts said
MILLISECONDS = re.compile(r"(?:^|[\W_]|(?<=[a-z])(?=M))(?i:ms|millis|milliseconds)(?![a-z])")
NEAR = 0.88  # of difflib: corect is near correct, corrected and incorrect are not
ALSO_CALLED = ("is_correct", "was_correct", "label_correct", "correctness")  # correct
OF_AN_EXPERT = (*(f"{kind}_" for kind in OUTCOMES), *MONEY, LATENCY, PROPENSITY)
BESIDE = {"prices": MONEY, "latencies": (LATENCY,), "propensities": (PROPENSITY,)}  # parts of Answers
EASILY_MISSPELT = ("propensity", *(begin.removesuffix("_") for begin in SAID))


class Expert(NamedTuple):
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
    if len(experts) < 2:
        if columns is not None:
            raise ParameterError("experts", f"{counted(len(experts), 'expert')}; routing needs at least 2", columns)
        found = f"only one expert, {experts[0].name}" if experts else "no experts"
        needs = "a table has two or more columns correct_NAME, a log the columns expert and correct"
        check = f"there are {listed(sheet.names)}; l2d check {sheet.path} says what they may be"
        raise L2DError(f"{sheet.path}: {found}; {needs}; {check}")
    _refuse_misspelt(sheet, experts, all_of_them=columns is None)
    names = [same_name(expert.name) for expert in experts]
    if twice := [expert.column for expert, name in zip(experts, names, strict=True) if names.count(name) > 1]:
        problem = "two outcomes of one expert (capitals and spaces in names do not count); keep or rename one"
        raise L2DError(f"{sheet.path}: columns {' and '.join(twice)}: {problem}")
    return experts


def _outcome_column(sheet: Sheet, name: str, outcome: Outcome) -> str:
    """A column may be named in full (correct_gpt) or by its expert (gpt)."""
    if name in sheet.columns or f"{outcome}_{name}" not in sheet.columns:
        if sheet.made and name not in sheet.columns:  # a log with a row per answer
            known = [column.removeprefix(f"{outcome}_") for column in sheet.names if column.startswith(f"{outcome}_")]
            raise ParameterError("experts", unknown("expert", name, known), name)
        sheet.check_column("experts", name)
        return name
    return f"{outcome}_{name}"


def near_names(names: Sequence[str]) -> list[list[str]]:
    """Names that differ only in capitals, spaces and punctuation, together; the first is the one that occurs most often."""
    alike: dict[str, Counter[str]] = {}
    for name, count in Counter(names).items():
        alike.setdefault(re.sub(r"[\W_]", "", name.casefold()), Counter())[name] = count
    return [[name for name, _ in found.most_common()] for found in alike.values() if len(found) > 1]


def _refuse_misspelt(sheet: Sheet, experts: list[Expert], *, all_of_them: bool) -> None:
    """Refuse nearly right names of what belongs to an expert. all_of_them: also of outcomes, or an expert would be left out."""
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
    it. A plural may count something; many words are near one as short as loss: gloss, lossy, los."""
    for name in (name for name in sheet.names if name.endswith(end) and not name.startswith(OF_AN_EXPERT)):
        begin = name.removesuffix(end).casefold()
        for word in (word for word in words if f"{word}{end}" not in sheet.names):
            like = difflib.SequenceMatcher(None, begin, word).ratio() >= NEAR
            near = like and begin != f"{word}s" and word != "loss"
            if near or begin == word or (word == "correct" and begin in ALSO_CALLED):
                sheet.fault(name, f"did you mean {word}{end}? Rename it if it is something else")


def columns_beside(sheet: Sheet, experts: list[Expert], prefixes: tuple[str, ...] = MONEY) -> dict[str, str]:
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
    money = columns_beside(sheet, experts).items()
    named = any("usd" in sheet.in_file(column).removesuffix(name).casefold() for name, column in money)
    return named or any(says_dollars(sheet.columns[column]) for _, column in money)


def check_answers(sheet: Sheet, columns: Mapping[str, str]) -> None:
    """Refuse answers of a log that a table with a row per query would refuse, by the file's own names and rows. columns:
    those of an answer, and how they begin in such a table; the outcome is the first."""
    outcome, *others = columns
    kind = columns[outcome].removesuffix("_")
    if kind != "prediction":
        errors_of(sheet, Expert("", outcome, "loss" if kind == "loss" else "correct"), None)
    for column in (column for column in others if columns[column] != ANSWER):
        cell_amounts(sheet, column, columns[column])


def amounts_of(sheet: Sheet, experts: list[Expert], labels: list[str] | None) -> dict[str, np.ndarray]:
    """The parts of Answers, float64 [n, p]. Outcomes are NaN where a cell is empty: the expert was not asked."""
    errors = np.stack([errors_of(sheet, expert, labels) for expert in experts], axis=1)
    found = {"errors": errors, **amounts_beside(sheet, experts)}
    columns = {"errors": [expert.column for expert in experts], "prices": [*columns_beside(sheet, experts).values()]}
    for part in (part for part in columns if part in found):
        for k in (k for k, column in enumerate(columns[part]) if missing(sheet.columns[column]).all()):
            sheet.fault(columns[part][k], f"empty; fill in some, or leave {experts[k].name} out (dataset.experts)")
    asked, chances = ~np.isnan(errors), found.get("propensities")
    if chances is not None and (lacking := int((asked & np.isnan(chances)).sum())):
        del found["propensities"]
        if not asked.all():  # else none is needed
            why = f"{lacking:,} of {counted(int(asked.sum()), 'outcome')} have none"
            sheet.note(f"propensities are estimated anew: {why}; fill them in to use yours")
    return found


def amounts_beside(sheet: Sheet, experts: list[Expert]) -> dict[str, np.ndarray]:
    found = {}
    for key, prefixes in BESIDE.items():
        if columns := columns_beside(sheet, experts, prefixes).values():
            found[key] = np.stack([cell_amounts(sheet, name, prefixes[0]) for name in columns], axis=1)
    return found


def cell_amounts(sheet: Sheet, column: str, prefix: str) -> np.ndarray:
    """float64 [n], NaN for empty cells. prefix: how such columns begin. A name such as latency_ms says what plain numbers are."""
    milliseconds = prefix == LATENCY and column in sheet.written and MILLISECONDS.search(sheet.in_file(column))
    values = sheet.numbers(column, gaps=True, plain=1e-3 if milliseconds else 1.0)
    sheet.refuse(column, "negative", (values < 0) & (prefix != CONFIDENCE))
    if prefix == PROPENSITY:
        sheet.refuse(column, "not above 0 and at most 1", (values <= 0) | (values > 1))
    return values


def errors_of(sheet: Sheet, expert: Expert, labels: list[str] | None) -> np.ndarray:
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
    if not {*predictions} & {*labels}:
        found = f"predictions are {listed(sorted(set(predictions)))}, labels {listed(sorted(set(labels)))}"
        raise L2DError(f"{sheet.path}: column {expert.column}: no prediction is ever a label; {found}")
    wrong = [np.nan if one == "" else float(one != true) for one, true in zip(predictions, labels, strict=True)]
    return np.array(wrong, dtype=np.float64)


def class_numbers(words: list[str] | None, n: int) -> tuple[np.ndarray, int]:
    """Labels as 0, 1, … (numbers by size, then words), int64 [n], and how many classes there are; −1 and 0 without labels."""
    if words is None:
        return np.full(n, -1), 0
    numbers = {word: cell_number(word) for word in {*words}}
    order = sorted(numbers, key=lambda word: (np.isnan(numbers[word]), np.nan_to_num(numbers[word]), word))
    classes = {word: k for k, word in enumerate(order)}
    return np.array([classes[word] for word in words]), len(classes)


def reply_columns(names: Sequence[str], experts: Iterable[str]) -> list[str]:
    """The columns of what these experts said, and of all others that have an outcome."""
    known = {name.removeprefix(f"{kind}_") for name in names for kind in OUTCOMES if name.startswith(f"{kind}_")}
    known |= {*experts}
    return [name for name in names for begin in SAID if name.startswith(begin) and name.removeprefix(begin) in known]


def read_said(sheet: Sheet, experts: Sequence[Expert], asked: np.ndarray) -> Said | None:
    """asked: bool [n, p]. None if the table says nothing of it. A prediction is an answer too."""
    columns, numbers, nothing = dict[str, str](), [], np.full(len(sheet), np.nan)
    for expert in experts:
        own = f"{ANSWER}{expert.name}"
        columns[expert.name] = own if own in sheet.names else expert.column if expert.outcome == "prediction" else ""
    for begin in (CONFIDENCE, LENGTH):  # NaN where a cell is empty or an expert has no such column
        names = [f"{begin}{name}" for name in columns]
        parts = [cell_amounts(sheet, name, begin) if name in sheet.names else nothing for name in names]
        numbers.append(np.stack(parts, axis=1))
    explicit = any(column.startswith(ANSWER) for column in columns.values())
    if not explicit and "" in columns.values():
        return None if all(np.isnan(values).all() for values in numbers) else Said(None, *numbers)
    if absent := [f"{ANSWER}{name}" for name, column in columns.items() if not column]:
        raise L2DError(f"{sheet.path}: no column {listed(absent)}; give every expert one, or none")
    own_columns = reply_columns(sheet.names, columns)
    for name in sheet.names if explicit and not sheet.made else ():
        if name.startswith(ANSWER) and name not in own_columns:
            needed = f"correct_{name.removeprefix(ANSWER)}"
            sheet.fault(name, f"an answer without an outcome; add {needed}, or rename it if it is something else")
    answers = np.array([list(map(as_text, sheet.columns[column].to_pylist())) for column in columns.values()], object).T
    for one in (experts[k].name for k in Said.experts_without(answers)):
        sheet.fault(columns[one], f"{one} has no answer; add some, or leave it out (dataset.experts)")
    if lost := int(((answers != None) & ~asked).sum()):  # noqa: E711 (of each cell)
        sheet.note(f"{counted(lost, 'answer')} without an outcome: not used")
    return Said(answers, *numbers)
