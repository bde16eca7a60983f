"""Guesses the roles of a table's columns, from their names and values, for l2d check. Nothing is trained by a guess."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from l2d.data.cells import TEXT, TRUTH, YES_NO, amounts, cell_word, filled_cells, says_dollars, seconds_of
from l2d.data.sets.long_log import REPLY
from l2d.data.sets.outcomes import OUTCOMES
from l2d.data.sheet import Sheet

GRADES = {"0", "1", *YES_NO, *TRUTH}
MOSTLY = 0.9  # of the cells that are not empty
FEW = 100  # different words at most, each on five rows on average
EPOCH = 1e9  # seconds since 1970: 2001 and later
BAD = "error wrong incorrect fail failed failure bad down mistake hallucinated hallucination escalated rejected"  # yes is a loss
# Ids of these say nothing about the query.
OF_ANSWERS = {"answer", "response", "output", "completion", "reply"}
OF_MANY = {"user", "session", "conversation", "tenant", "customer", "account", "org", "thread", "model", "expert"}
# {role: (words in names of such columns, kinds of values that fit, kinds that show it without a name)}, in the order in which they
# choose: each column has one role.
ROLES = {
    "id": ("id uuid guid ticket", "many", ""),
    "time": ("time ts timestamp date datetime created opened when", "times epoch", "times"),
    "text": ("text query prompt question input message content instruction request", "prose", "prose"),
    "expert": (
        "expert model llm engine agent worker annotator assistant deployment backend answered handled",
        "few one",
        "few",
    ),
    "correct": (
        "correct thumbs feedback rating grade success passed ok accepted resolved score helpful outcome result verdict",
        "graded share nothing",
        "graded",
    ),
    "loss": (f"loss {BAD}", "graded amounts", ""),
    "prediction": ("prediction predicted", "few amounts many", ""),
    "price": ("price usd cost dollars spend charge billed", "amounts", "dollars"),
    "latency": ("latency duration elapsed ms seconds took", "amounts", ""),
    "propensity": ("propensity", "share", ""),
    "length": ("length chars characters", "amounts", ""),
    "answer": ("answer response output completion reply", "prose few amounts many", ""),
    "confidence": ("confidence certainty logprob logit", "amounts numbers", ""),
    "category": ("topic subject category domain task intent", "whole", ""),
}


Kinds = Mapping[str, Mapping[str, str]]  # {column: {kind: in words}}


class Guess(NamedTuple):
    """others: columns that fit the role as well."""

    role: str
    column: str
    why: str
    others: tuple[str, ...] = ()


def kinds_of(sheet: Sheet, name: str) -> dict[str, str]:
    """{kind: in words}: the kinds of values that a column has, but for empty cells."""
    cells = sheet.columns[name]
    filled = filled_cells(cells)
    if not filled:
        return {"nothing": "empty"}
    different = {str(cell).strip() for cell in filled}
    values = np.array(amounts(filled))
    words = str(cells.type) in TEXT and float(np.isnan(values).mean()) > 0.5
    timed = str(cells.type).startswith(("timestamp", "date"))
    timed |= words and float(np.mean([np.isfinite(seconds_of(str(cell))) for cell in filled])) > 0.5
    few = words and not timed and 1 < len(different) <= min(FEW, len(filled) / 5)
    long = words and float(np.mean([len(str(cell).split()) > 2 for cell in filled])) > 0.5
    graded = len(different) > 1 and np.mean([cell_word(cell).lower() in GRADES for cell in filled]) > MOSTLY

    def mostly(low: float, high: float) -> bool:
        return float(((values >= low) & (values <= high)).mean()) > MOSTLY

    found = {
        "times": (timed, "times"),
        "epoch": (mostly(EPOCH, np.inf), "seconds since 1970"),
        "prose": (long and not few, "texts of several words"),
        "few": (few and not graded, f"{len(different)} different words"),
        "one": (len(different) == 1, "one value"),
        "whole": (few and not graded and len(filled) == len(cells), f"{len(different)} different words"),
        "graded": (graded, "right or wrong"),
        "share": (mostly(0, 1), "from 0 to 1"),
        "dollars": (mostly(0, np.inf) and says_dollars(cells), "dollars"),
        "numbers": (mostly(-np.inf, np.inf), "numbers"),
        "amounts": (mostly(0, np.inf), "numbers"),
        "many": (20 * len(different) >= len(filled) and not long, f"{len(different):,} different values"),
    }
    return {kind: told for kind, (is_so, told) in found.items() if is_so}


def experts_by_value(kinds: Kinds) -> list[str]:
    """Columns of grades by their names, else by their values, if there are several and none is called expert."""
    if any(fit(name, kinds[name], "expert")[0] > 1 for name in kinds):
        return []
    scored = [name for name in kinds if fit(name, kinds[name], "correct")[0] > 1]
    bad = [name for name in kinds if fit(name, kinds[name], "loss")[0]]
    graded = [name for name in kinds if "graded" in kinds[name] and name not in (*scored, *bad)]
    return next((found for found in (scored, graded) if len(found) > 1), [])


def guess_roles(kinds: Kinds, given: Mapping[str, str], wanted: Sequence[str]) -> list[Guess]:
    """kinds: of each column. given: {role: column}, by the user. wanted: the roles to look for."""
    guesses = [Guess(role, column, "you say so") for role, column in given.items()]
    for role in (role for role in ROLES if role in wanted and role not in given):
        if role in OUTCOMES and any(guess.role in OUTCOMES for guess in guesses):
            continue
        taken = {guess.column for guess in guesses}
        found = {name: fit(name, kinds[name], role) for name in kinds if name not in taken}
        best = max((score for score, _ in found.values()), default=0)
        by_name = role != "correct" or best > 1 or not any(fit(name, kinds[name], "loss")[0] > 1 for name in found)
        if best and by_name:  # is_error says more than is_weekend, which has the values of a grade
            first, *others = [name for name, (score, _) in found.items() if score == best]
            guesses.append(Guess(role, first, found[first][1], tuple(others)))
    return guesses


def fit(column: str, kinds: Mapping[str, str], role: str) -> tuple[int, str]:
    """The points of a column for a role, and why: 4 by its name, 3 its begin or end, 2 a word in it, 1 its values, 0 not at all."""
    names, fitting, alone = (words.split() for words in ROLES[role])
    words = re.findall(r"[a-z]+|\d+", re.sub(r"([a-z])([A-Z])", r"\1_\2", column).lower()) or [column]
    kind = next((kind for kind in (*alone, *fitting) if kind in kinds), None)
    bad = {*BAD.split()} & {*words}
    of_grade = bad and (role == "correct" or (role == "loss" and "graded" not in kinds))
    of_query = role == "length" and words[1:] and not OF_ANSWERS & {*words}
    of_other = (role == "id" and OF_MANY & {*words}) or (role in REPLY and (words[-1] not in names or of_query))
    if kind is None or of_other or of_grade:
        return 0, ""
    if not {*words} & {*names}:
        return int(kind in alone), kinds[kind]
    ends = words[0] in names or words[-1] in names
    return 4 if column.lower() == role else 3 if ends else 2, f"its name; {kinds[kind]}"
