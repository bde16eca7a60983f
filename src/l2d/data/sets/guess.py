"""Guesses the roles of a table's columns from their names and values. Light: l2d check prints them, nothing is trained by them."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from l2d.data.cells import NOTHING, TEXT, TRUTH, YES_NO, cell_amount, cell_word, missing, says_dollars, seconds_of
from l2d.data.sets.outcomes import OF_AN_EXPERT, OUTCOMES
from l2d.data.sheet import Sheet

FEW = 40  # different words at most, each on five rows on average
EPOCH = (1e9, 2e13)  # seconds or milliseconds since 1970: 2001 and later
OF_MANY = (
    "user",
    "session",
    "conversation",
    "tenant",
    "customer",
    "account",
    "org",
    "thread",
    "model",
    "expert",
)  # ids of


@dataclass(frozen=True)
class Facts:
    """The values of a column, without empty ones. amounts: NaN for what is no number. different: how many values there are. few:
    they are words, and few. prose: they are texts of several words. times: they are in ISO 8601. dollars: a cell says so."""

    name: str
    words: tuple[str, ...]
    filled: int
    amounts: np.ndarray
    different: int
    few: bool
    prose: bool
    times: bool
    dollars: bool
    graded: bool

    @property
    def numeric(self) -> bool:
        return self.filled > 0 and bool(np.isnan(self.amounts).mean() < 0.1)

    def within(self, low: float, high: float) -> bool:
        known = self.amounts[~np.isnan(self.amounts)]
        return self.numeric and bool(((known >= low) & (known <= high)).mean() > 0.9)


def facts_of(sheet: Sheet, name: str) -> Facts:
    cells = sheet.columns[name]
    filled = [cell for cell, gap in zip(cells.to_pylist(), missing(cells, NOTHING), strict=True) if not gap]
    text = str(cells.type) in TEXT
    different = {str(cell).strip() for cell in filled}
    amounts = np.array([cell_amount(cell) for cell in filled], dtype=np.float64)
    words = text and bool(np.isnan(amounts).mean() > 0.5) if filled else False
    times = "timestamp" in str(cells.type) or "date" in str(cells.type)
    if words and not times:
        times = float(np.mean([np.isfinite(seconds_of(cell)) for cell in filled])) > 0.5
    long = words and float(np.mean([len(cell.split()) >= 3 for cell in filled])) > 0.5
    few = words and not times and 1 < len(different) <= FEW and 5 * len(different) <= len(filled)
    graded = {cell_word(cell).lower() for cell in filled} - {"0", "1"} <= {*YES_NO, *TRUTH} and len(different) > 1
    own = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    parts = tuple(filter(None, re.split(r"[\W_]+", own)))
    return Facts(
        name, parts, len(filled), amounts, len(different), few, long and not few, times, says_dollars(cells), graded
    )


@dataclass(frozen=True)
class Role:
    """names: words in names of such columns. fits: whether the values may be such. alone: whether they show it without a name."""

    names: str
    fits: Callable[[Facts], bool]
    alone: Callable[[Facts], bool]
    why: str


def never(_: Facts) -> bool:
    return False


def is_id(facts: Facts) -> bool:
    return 20 * facts.different >= facts.filled > 0 and not {*facts.words} & {*OF_MANY} and not facts.prose


# In the order in which they choose; each column has one role.
ROLES: Mapping[str, Role] = {
    "id": Role("id uuid guid", is_id, never, "many different values"),
    "time": Role(
        "time ts timestamp date datetime created when",
        lambda facts: facts.times or facts.within(*EPOCH),
        lambda facts: facts.times,
        "times",
    ),
    "text": Role(
        "text query prompt question input message content instruction request",
        lambda facts: facts.prose,
        lambda facts: facts.prose,
        "texts of several words",
    ),
    "expert": Role(
        "expert model llm engine agent worker annotator assistant deployment backend",
        lambda facts: facts.few and not facts.graded,
        lambda facts: facts.few and not facts.graded,
        "few different words",
    ),
    "correct": Role(
        "correct thumbs feedback rating grade graded success passed ok accepted resolved score helpful outcome result verdict",
        lambda facts: facts.within(0, 1),
        lambda facts: facts.graded,
        "right or wrong",
    ),
    "loss": Role("loss", lambda facts: facts.within(0, np.inf), never, "numbers"),
    "prediction": Role("prediction predicted", lambda facts: facts.filled > 0, never, ""),
    "price": Role(
        "price usd cost dollars spend charge billed",
        lambda facts: facts.within(0, np.inf),
        lambda facts: facts.dollars and facts.numeric,
        "amounts",
    ),
    "latency": Role(
        "latency duration elapsed ms seconds took", lambda facts: facts.within(0, np.inf), never, "numbers"
    ),
    "propensity": Role("propensity", lambda facts: facts.within(0, 1), never, "numbers from 0 to 1"),
    "category": Role(
        "topic subject category domain task intent", lambda facts: facts.few, never, "few different words"
    ),
}


@dataclass(frozen=True)
class Guess:
    """others: columns that fit the role as well."""

    role: str
    column: str
    why: str
    others: tuple[str, ...] = ()


def guess_roles(found: Sequence[Facts], given: Mapping[str, str], wanted: Sequence[str]) -> list[Guess]:
    """given: {role: column}, by the user. wanted: the roles to look for."""
    guesses = [Guess(role, column, "you say so") for role, column in given.items()]
    for role, kind in ((role, kind) for role, kind in ROLES.items() if role in wanted and role not in given):
        if role in OUTCOMES and {one.role for one in guesses} & {*OUTCOMES}:
            continue
        taken = {one.column for one in guesses}
        scores = {facts.name: score(facts, role, kind) for facts in found if facts.name not in taken}
        best = max(scores.values(), default=0)
        if not best:
            continue
        first, *others = [name for name, value in scores.items() if value == best]
        why = f"its name, and {kind.why}" if best > 1 else kind.why
        guesses.append(Guess(role, first, why if kind.why else "its name", tuple(others)))
    return guesses


def score(facts: Facts, role: str, kind: Role) -> int:
    """4: it has the role's name; 3, 2: its name ends so, or has the word; 1: its values alone show it; 0: it does not fit."""
    if not kind.fits(facts):
        return 0
    names = kind.names.split()
    if not {*facts.words} & {*names}:
        return int(kind.alone(facts))
    return 4 if facts.name == role else 3 if facts.words[-1] in names or facts.words[0] in names else 2


def kind_of_unused(facts: Facts) -> str:
    """A few words on a column without a role."""
    if facts.few:
        return f"{facts.different} different words: may be among dataset.features"
    return "numbers: may be among dataset.features" if facts.numeric and facts.different > 1 else ""


def role_by_name(name: str) -> str | None:
    """The role of a column of a table with a row per query, by what its name begins with."""
    start = next((start for start in OF_AN_EXPERT if name.startswith(start)), None)
    return None if start is None else f"{start.removesuffix('_')} of {name.removeprefix(start)}"
