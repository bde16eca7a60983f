"""Roles of a table's columns: named by the user, or found by what their names begin with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from l2d.data.sets.long_log import EXPERT, answer_columns, is_long, widened
from l2d.data.sets.outcomes import LATENCY, OF_AN_EXPERT, PROPENSITY, Expert, Outcome, money_columns
from l2d.data.sheet import Sheet
from l2d.utils.errors import ParameterError
from l2d.utils.text import counted, listed

GIVES_AWAY = ("label", "target", "answer")  # columns that probably leak the answer
# Columns that a router sees only if they are named: outcomes and prices of experts, and what is known only after the answer.
AFTERWARDS = (*OF_AN_EXPERT, "answer_", "probability_", "tokens_", "seconds_")
ID = re.compile(r"(.+_)?(id|uuid)", re.IGNORECASE)  # names of columns whose numbers say which one, not how much


@dataclass(frozen=True)
class Named:
    """The columns that the user named, by the keys of dataset=table."""

    experts: list[str] | None
    outcome: Outcome
    features: list[str] | None
    text: str | None
    image: str | None
    label: str | None
    category: str | None
    only: list[str] | None
    split: str | None
    split_by: str | None

    def check(self, *, reads_text: bool) -> None:
        """Refuse keys that contradict each other. reads_text: whether the router does."""
        if self.experts is None and self.outcome != "correct":
            raise ParameterError("outcome", "says what the columns in `experts` hold; name them there", self.outcome)
        if self.image is not None and (self.features or self.text is not None):
            raise ParameterError("image", "a router sees images, or features and text; name only one", self.image)
        if self.text is not None and not reads_text:
            raise ParameterError("text", "this router does not read text; choose a router that does", self.text)
        if self.only is not None and self.category is None:
            raise ParameterError("only", "needs a column of categories; name it in `category`", self.only)
        if self.split is not None and self.split_by is not None:
            raise ParameterError("split_by", "the column in `split` says which rows are for testing", self.split_by)

    @property
    def texts(self) -> list[str]:
        """Columns to read as text."""
        return [column for column in (self.text, self.image) if column is not None]

    @property
    def seen(self) -> list[tuple[str, str]]:
        """(key, column) of what a router sees."""
        texts = [(key, column) for key, column in (("text", self.text), ("image", self.image)) if column is not None]
        return texts + [("features", name) for name in self.features or []]

    @property
    def unseen(self) -> list[tuple[str, str]]:
        """(key, column) of what a router must not see, but the time."""
        named = (("label", self.label), ("category", self.category), ("split", self.split))
        return [(key, column) for key, column in named if column is not None]

    @property
    def times(self) -> list[tuple[str, str]]:
        return [] if self.split_by is None else [("split_by", self.split_by)]


def with_a_row_per_query(sheet: Sheet, named: Named) -> Sheet:
    """The sheet itself, unless it is a log with a row per answer."""
    if not is_long(sheet.names):
        return sheet
    of_query = [*named.seen, *named.unseen]
    for key, column in [*of_query, *named.times]:
        sheet.check_column(key, column)
        if column in (EXPERT, *answer_columns(sheet)):
            raise ParameterError(key, "belongs to the answers, and a router decides before there is one", column)
    columns, times = ([column for _, column in pairs] for pairs in (of_query, named.times))
    return widened(sheet, named.experts, columns, times)


def roles_of(sheet: Sheet, named: Named, experts: list[Expert]) -> dict[str, str]:
    """{column: its role}, for columns that a router must not see."""
    roles = {expert.column: f"what {expert.name} did" for expert in experts}
    for key, column in [*named.unseen, *named.times]:
        if key == "category" and column == named.label:  # both at once is fine
            continue
        sheet.check_column(key, column)
        if column in roles:
            raise ParameterError(key, f"that column is {roles[column]} already", column)
        roles[column] = "the time" if key == "split_by" else f"the {key}"
    return roles


def feature_columns(sheet: Sheet, named: Named, roles: dict[str, str]) -> list[str]:
    """The columns of numbers that a router sees."""
    for key, column in named.seen:
        sheet.check_column(key, column)
        if column in roles and not (key == "text" and roles[column] == "the category"):
            raise ParameterError(key, f"that is {roles[column]}, which a router must not see", column)
    by_name = named.features is not None or named.texts
    found = named.features or [] if by_name else _free_features(sheet, named, roles)
    if not found and not named.texts:
        raise ParameterError("features", "no numeric column is left for the router; name some, or text or image")
    return found


def _free_features(sheet: Sheet, named: Named, roles: dict[str, str]) -> list[str]:
    if not all(name.startswith(f"{named.outcome}_") for name in named.experts or []):
        raise ParameterError("features", "missing; name them: outcomes of experts not listed would be features")
    others = [name for name in sheet.names if name not in roles and not ID.fullmatch(name)]
    free = [name for name in others if not name.lower().startswith(AFTERWARDS) and sheet.is_numeric(name)]
    if leaks := [name for name in free if name.lower() in GIVES_AWAY]:
        raise ParameterError("features", f"the router would see {leaks[0]}; say label={leaks[0]}, or list the features")
    return free


def note_columns(sheet: Sheet, experts: list[Expert], named: Named, roles: dict[str, str], features: list[str]) -> None:
    """Print the use of each column: one that leaks the answer is easily overlooked."""
    inputs, prices = [*features, *named.texts], list(money_columns(sheet, experts).values())
    beside = [name for name in sheet.names if name.startswith((LATENCY, PROPENSITY))]
    paid, others = (list(dict.fromkeys(map(sheet.in_file, names))) for names in (prices, beside))
    rest = [name for name in sheet.names if name not in (*inputs, *roles, *prices, *beside, *sheet.written)]
    kinds = ", ".join(f"{expert.name} ({expert.outcome})" for expert in experts)
    use = f"{counted(len(sheet), 'row')}; experts: {kinds}; the router sees: {listed(inputs, 60)}"
    use += f"; not used: {listed(rest)}" if rest else ""
    use += f"; prices: {listed(paid)} (they count with cost=columns)" if paid else ""
    use += f"; beside the outcomes: {listed(others)}" if others else ""
    sheet.note(use)
    unused = [name for name in rest if not name.lower().startswith(AFTERWARDS)]
    prose = next((name for name in unused if sheet.is_prose(name)), None)
    if prose is not None and not named.texts and named.features is None:
        sheet.note(f"the router does not see {prose}, which looks like text; read it with dataset.text={prose}")
