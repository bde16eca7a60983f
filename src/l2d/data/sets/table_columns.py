"""Roles of a table's columns: named by the user, or found by what their names begin with."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from l2d.data.sets.long_log import AFTER, EXPERT, ID, MONEY_WORDS, PREFIXES, REPLY, answer_columns, is_long, widened
from l2d.data.sets.outcomes import LATENCY, OF_AN_EXPERT, OUTCOMES, PROPENSITY, Expert, columns_beside, reply_columns
from l2d.data.sheet import Sheet
from l2d.utils.errors import ParameterError, unknown
from l2d.utils.text import counted, listed

ROLES = (EXPERT, *OUTCOMES, "price", *PREFIXES, *REPLY, "time", ID)  # of dataset.columns: columns get these names
KEYS = ("text", "image", "label", "category", "split")  # the same, for what has a key of its own
MOST_CATEGORIES = 50  # of a column of words among the features

SAID_ROLE = "what an expert said"
GIVES_AWAY = ("label", "target", "answer")  # columns that probably leak the answer
# Columns that a router sees only if they are named: outcomes and prices of experts, and what is known only after the answer.
AFTERWARDS = (*OF_AN_EXPERT, "answer_", "probability_", "tokens_", "seconds_")
IDS = re.compile(r"(.+_)?(id|uuid)", re.IGNORECASE)  # names of columns whose numbers say which one, not how much


def check_role(role: str) -> None:
    if role not in (*ROLES, *KEYS):
        raise ParameterError(f"columns.{role}", unknown("role", role, (*ROLES, *KEYS)))


@dataclass(frozen=True)
class Named:
    """The columns that the user named, by the keys of dataset=table. columns: those with another name, by role."""

    experts: list[str] | None
    outcome: Any
    features: list[str] | None
    text: str | None
    image: str | None
    label: str | None
    category: str | None
    only: list[str] | None
    split: str | None
    split_by: str | None
    confounders: list[str] | None
    columns: Mapping[str, str]
    merge: Sequence[Sequence[str]]

    @classmethod
    def of(cls, columns: Mapping[str, str], merge: Sequence[Sequence[str]], **named: Any) -> Named:
        """columns: {role: column}. Roles of queries are keys of their own; the others are names of columns."""
        for role in columns:
            check_role(role)
        roles = {role: column for role, column in columns.items() if role in ROLES}
        if twice := [column for column in roles.values() if [*roles.values()].count(column) > 1]:
            raise ParameterError("columns", f"{twice[0]} has two roles", dict(columns))
        for key, column in ((key, columns[key]) for key in KEYS if key in columns):
            if named[key] not in (None, column):
                raise ParameterError(key, f"columns.{key} is {column}; name it once", named[key])
            named[key] = column
        here = {column: role for role, column in roles.items()}
        renamed = {key: here.get(column, column) for key, column in named.items() if isinstance(column, str)}
        return cls(**{**named, **renamed}, columns=roles, merge=merge)

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
        return [column for column in (self.text, self.image) if column is not None]

    @property
    def seen(self) -> list[tuple[str, str]]:
        """(key, column) of what a router sees."""
        texts = [("text", self.text), ("image", self.image)]
        return [(key, name) for key, name in (*texts, *(("features", name) for name in self.features or [])) if name]

    @property
    def unseen(self) -> list[tuple[str, str]]:
        """(key, column) of what a router must not see; the time last."""
        named = (("label", self.label), ("category", self.category), ("split", self.split))
        confounders = [("confounders", name) for name in self.confounders or []]
        return [(key, column) for key, column in (*named, *confounders, ("split_by", self.split_by)) if column]


def with_roles(sheet: Sheet, named: Named) -> Sheet:
    """Call the columns by the roles that the user gave them. Others of that name, other outcomes and other prices are left out."""
    for role, column in named.columns.items():
        sheet.check_column(f"columns.{role}", column)
    families = [family for family in (OUTCOMES, MONEY_WORDS) if {*family} & {*named.columns}]
    dropped = {*named.columns, *(name for family in families for name in family)} - {*named.columns.values()}
    here = {column: role for role, column in named.columns.items()}
    columns = {here.get(name, name): cells for name, cells in sheet.columns.items() if name not in dropped}
    return replace(sheet, columns=columns, written={role: column for column, role in here.items() if role != column})


def with_a_row_per_query(sheet: Sheet, named: Named) -> Sheet:
    """The sheet itself, unless it is a log with a row per answer. n/a and the like are empty cells in columns of numbers."""
    names = sheet.names
    if not is_long(names):
        if named.merge:
            raise ParameterError("merge", "is for a row per answer; here, rename or remove columns", named.merge)
        own = [] if named.outcome == "prediction" else named.experts or []
        beside = {*reply_columns(names, own), *(name for name in names if name.startswith(OF_AN_EXPERT))}
        beside -= {name for name in beside if name.startswith(("prediction_", "answer_"))}
        return sheet.without_nothing([name for name in names if name in own or name in beside])
    numbers = ("correct", "loss", "confidence", *MONEY_WORDS, *PREFIXES)
    sheet = sheet.without_nothing([name for name in names if name in numbers])
    of_query = [*named.seen, *named.unseen]
    columns = [column for key, column in of_query if key != "split_by"]
    for key, column in of_query:
        sheet.check_column(key, column)
        if column in (EXPERT, *answer_columns(sheet, columns)):
            raise ParameterError(key, "belongs to the answers, and a router decides before there is one", column)
    return widened(sheet, named.experts, columns, [named.split_by] if named.split_by else [], named.merge)


def categories_of(sheet: Sheet, features: list[str]) -> dict[str, tuple[str, ...]]:
    """{feature: its values}, for columns of words with few values."""
    values = {name: tuple(sorted({*sheet.words(name, gaps=True)} - {""})) for name in features if sheet.is_words(name)}
    for name in (name for name in values if len(values[name]) > MOST_CATEGORIES):
        few = f"at most {MOST_CATEGORIES} can be a feature (or read it as dataset.text)"
        sheet.fault(name, f"{len(values[name]):,} different words; {few}")
    return {name: found for name, found in values.items() if len(found) <= MOST_CATEGORIES}


def roles_of(sheet: Sheet, named: Named, experts: list[Expert]) -> dict[str, str]:
    """{column: its role}, for columns that a router must not see."""
    said = reply_columns(sheet.names, [expert.name for expert in experts])
    roles = dict.fromkeys(said, SAID_ROLE) | {expert.column: f"what {expert.name} did" for expert in experts}
    both = {"category": (named.label,), "confounders": (named.label, named.category)}  # both at once is fine
    for key, column in ((key, column) for key, column in named.unseen if column not in both.get(key, ())):
        sheet.check_column(key, column)
        if column in roles:
            raise ParameterError(key, f"that column is {roles[column]} already", column)
        roles[column] = {"split_by": "the time", "confounders": "a confounder"}.get(key, f"the {key}")
    return roles | {name: f"the {name}" for name in ("time", ID) if name in named.columns and name in sheet.columns}


def feature_columns(sheet: Sheet, named: Named, roles: dict[str, str], experts: list[Expert]) -> list[str]:
    """The columns of numbers that a router sees."""
    for key, column in named.seen:
        sheet.check_column(key, column)
        if column in roles and not (key == "text" and roles[column] == "the category"):
            raise ParameterError(key, f"that is {roles[column]}, which a router must not see", column)
    if named.features is not None or named.texts:
        found = named.features or []
    else:
        if not all(name.startswith(f"{named.outcome}_") for name in named.experts or []):
            raise ParameterError("features", "missing; name them: outcomes of experts not listed would be features")
        found = free_columns(sheet, roles, [expert.name for expert in experts])
        if leaks := [name for name in found if name.lower() in GIVES_AWAY]:
            told = f"the router would see {leaks[0]}; say label={leaks[0]}, or list the features"
            raise ParameterError("features", told)
    if not found and not named.texts:
        raise ParameterError("features", "no numeric column is left for the router; name some, or text or image")
    return found


def free_columns(sheet: Sheet, taken: Collection[str], experts: Sequence[str]) -> list[str]:
    """Columns of numbers that are no ids and not known only after the answer, such as chars_NAME of two experts or more."""
    ends = {(name, name.removesuffix(f"_{one}")) for name in sheet.names for one in experts if name.endswith(f"_{one}")}
    begins = [begin for _, begin in ends]
    own = {name for name, begin in ends if begins.count(begin) > 1}
    others = [name for name in sheet.names if name not in (*taken, *own) and not IDS.fullmatch(name)]
    return [name for name in others if not name.lower().startswith(AFTERWARDS) and sheet.is_numeric(name)]


def note_columns(
    sheet: Sheet, experts: list[Expert], named: Named, roles: dict[str, str], features: list[str]
) -> list[str]:
    """Print the use of each column. Return the unused ones that may be known before an expert is asked."""
    inputs, prices = [*features, *named.texts], list(columns_beside(sheet, experts).values())
    beside = [name for name in sheet.names if name.startswith((LATENCY, PROPENSITY)) or roles.get(name) == SAID_ROLE]
    paid, others = (list(dict.fromkeys(map(sheet.in_file, names))) for names in (prices, beside))
    rest = [name for name in sheet.names if name not in (*inputs, *roles, *prices, *beside, *sheet.made)]
    kinds = ", ".join(f"{expert.name} ({expert.outcome})" for expert in experts)
    use = [f"{counted(len(sheet), 'row')}; experts: {kinds}; the router sees: {listed(inputs, 60)}"]
    use += [f"{role}: {column}" for role, column in named.columns.items() if role in (EXPERT, *OUTCOMES, "time")]
    answered = (*beside, *(expert.column for expert in experts))
    use += [f"{role}: {sheet.in_file(name)}" for name, role in roles.items() if name not in answered]
    use += [f"not used: {listed(rest)}"] if rest else []
    use += [f"prices: {listed(paid)} (they count with cost=columns)"] if paid else []
    use += [f"beside the outcomes: {listed(others)}"] if others else []
    sheet.note("; ".join(use))
    unused = [name for name in rest if not name.lower().startswith(AFTERWARDS)]
    prose = next((name for name in unused if sheet.is_prose(name)), None)
    if prose is not None and not named.texts and named.features is None:
        sheet.note(f"the router does not see {prose}, which looks like text; read it with dataset.text={prose}")
    known = [name for name in (named.label, named.category) if name and name not in (named.confounders or ())]
    return known + [name for name in unused if name.casefold() not in AFTER and not IDS.fullmatch(name)]
