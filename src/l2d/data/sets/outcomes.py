"""Reads a table's columns: the experts' outcomes and prices, and the classes of the labels."""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from l2d.data.arrays import Answers
from l2d.data.sheet import Sheet, cell_number
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import listed

Outcome = Literal["correct", "prediction", "cost"]
OUTCOMES: tuple[Outcome, ...] = ("correct", "prediction", "cost")
PRICE = "price_"


@dataclass(frozen=True)
class Expert:
    """outcome: what its column holds."""

    name: str
    column: str
    outcome: Outcome


def find_experts(sheet: Sheet, columns: list[str] | None, outcome: Outcome) -> list[Expert]:
    """The columns correct_NAME, prediction_NAME and cost_NAME of the file; or `columns`, which all hold `outcome`."""
    if columns is None:
        kinds = [(column, kind) for column in sheet.names for kind in OUTCOMES if column.startswith(f"{kind}_")]
    else:
        kinds = [(_outcome_column(sheet, name, outcome), outcome) for name in columns]
    experts = [Expert(column.removeprefix(f"{kind}_"), column, kind) for column, kind in kinds]
    if len(experts) < 2:
        found = f"only one expert, {experts[0].name}" if experts else "no experts"
        raise L2DError(
            f"{sheet.path}: {found}; a table needs two or more columns correct_NAME, prediction_NAME or cost_NAME, or name"
            f" the columns in dataset.experts{_meant(sheet.names)}; there are {listed(sheet.names)}"
        )
    if columns is None:
        _refuse_money(sheet, experts)
    names = [expert.name for expert in experts]
    if twice := " and ".join(expert.column for expert in experts if names.count(expert.name) > 1):
        raise L2DError(f"{sheet.path}: columns {twice}: one outcome per expert; a price is called {PRICE}NAME")
    return experts


def _meant(names: list[str]) -> str:
    """A hint at a column that is nearly called as an outcome is: Correct_gpt, gpt_correct."""
    for kind in OUTCOMES:
        for name in names:
            found = re.fullmatch(rf"{kind}_(.+)|(.+)_{kind}", name, re.IGNORECASE)
            if found and (meant := f"{kind}_{found[1] or found[2]}") != name:
                return f" (did you mean {meant} by {name}?)"
    return ""


def _refuse_money(sheet: Sheet, experts: list[Expert]) -> None:
    """cost_usd_gpt beside correct_gpt would make an expert usd_gpt, whose losses are dollars."""
    for one in experts:
        for other in experts:
            if one.outcome == "cost" and other.outcome != "cost" and one.name.endswith(f"_{other.name}"):
                raise L2DError(
                    f"{sheet.path}: column {one.column} looks like money, since {other.name} is an expert already"
                    f" ({other.column}); a price column is called {PRICE}{other.name}. If {one.name} is an expert with losses,"
                    " rename it"
                )


def _outcome_column(sheet: Sheet, name: str, outcome: Outcome) -> str:
    """A column may be named in full (correct_gpt) or by its expert (gpt)."""
    if name not in sheet.columns and f"{outcome}_{name}" in sheet.columns:
        return f"{outcome}_{name}"
    sheet.check_column("experts", name)
    return name


def answers_of(sheet: Sheet, experts: list[Expert], labels: list[str] | None) -> Answers:
    import torch

    errors = np.stack([_errors(sheet, expert, labels) for expert in experts], axis=1)
    prices = _prices(sheet, experts)
    return Answers(torch.from_numpy(errors), prices=None if prices is None else torch.from_numpy(prices))


def _errors(sheet: Sheet, expert: Expert, labels: list[str] | None) -> np.ndarray:
    """float64 [n]: 1 − correctness, 1[prediction ≠ label], or the cost as it is."""
    if expert.outcome == "cost":
        return _amounts(sheet, expert.column)
    if expert.outcome == "correct":
        values = sheet.numbers(expert.column)
        sheet.refuse(expert.column, "not between 0 (wrong) and 1 (right)", (values < 0) | (values > 1))
        return 1 - values
    if labels is None:
        raise ParameterError("label", f"missing; predictions in column {expert.column} need a column to compare with")
    predictions = sheet.words(expert.column)
    if not set(predictions) & set(labels):
        raise L2DError(
            f"{sheet.path}: column {expert.column}: no prediction is ever a label; predictions are"
            f" {listed(sorted(set(predictions)))}, labels {listed(sorted(set(labels)))}"
        )
    return np.array([said != true for said, true in zip(predictions, labels, strict=True)], dtype=np.float64)


def _prices(sheet: Sheet, experts: list[Expert]) -> np.ndarray | None:
    """float64 [n, p] if all experts have a price column, None if none has."""
    columns = [f"{PRICE}{expert.name}" for expert in experts]
    absent = [column for column in columns if column not in sheet.columns]
    if len(absent) == len(columns):
        return None
    if absent:
        raise L2DError(f"{sheet.path}: no column {listed(absent)}; give every expert a price column, or none")
    return np.stack([_amounts(sheet, column) for column in columns], axis=1)


def _amounts(sheet: Sheet, column: str) -> np.ndarray:
    """float64 [n], none negative."""
    values = sheet.numbers(column)
    sheet.refuse(column, "negative", values < 0)
    return values


def class_numbers(words: list[str] | None, n: int) -> tuple[np.ndarray, int]:
    """Labels as 0, 1, … (numbers by size, then words), int64 [n], and how many classes there are; −1 and 0 without labels."""
    if words is None:
        return np.full(n, -1), 0

    def place(word: str) -> tuple[bool, float, str]:
        value = cell_number(word)
        return (True, 0.0, word) if np.isnan(value) else (False, value, word)

    classes = {word: k for k, word in enumerate(sorted(set(words), key=place))}
    return np.array([classes[word] for word in words]), len(classes)
