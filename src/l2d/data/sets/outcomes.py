"""What the experts of a table did: which columns say it, as errors and prices."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from l2d.data.sheet import Sheet, listed
from l2d.utils.errors import L2DError, ParameterError

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
    by_name = [
        Expert(column.removeprefix(f"{kind}_"), column, kind)
        for column in sheet.names
        for kind in OUTCOMES
        if column.startswith(f"{kind}_")
    ]
    experts = by_name if columns is None else _named_experts(sheet, columns, outcome)
    _check_experts(sheet, experts)
    known = {expert.name for expert in (*experts, *by_name)}
    for column in sheet.names:
        if column.startswith(PRICE) and column.removeprefix(PRICE) not in known:
            raise L2DError(
                f"{sheet.path}: column {column}: the price of an unknown expert; there are {listed(sorted(known))}"
            )
    return experts


def _named_experts(sheet: Sheet, columns: list[str], outcome: Outcome) -> list[Expert]:
    """A column may be named in full (correct_gpt) or by its expert (gpt)."""
    experts = []
    for name in columns:
        full = f"{outcome}_{name}"
        column = full if name not in sheet.columns and full in sheet.columns else name
        sheet.check_column("experts", column)
        experts.append(Expert(column.removeprefix(f"{outcome}_"), column, outcome))
    return experts


def _check_experts(sheet: Sheet, experts: list[Expert]) -> None:
    if len(experts) < 2:
        found = f"only one expert, {experts[0].name}" if experts else "no experts"
        hint = "; are the cells separated by commas?" if len(sheet.names) == 1 else ""
        raise L2DError(
            f"{sheet.path}: {found}; a table needs two or more columns correct_NAME, prediction_NAME or cost_NAME, or name"
            f" the columns in `experts`; there are {listed(sheet.names)}{hint}"
        )
    columns: dict[str, str] = {}
    for expert in experts:
        if not expert.name:
            raise L2DError(f"{sheet.path}: column {expert.column}: has no expert's name after it")
        if expert.name in columns:
            raise L2DError(
                f"{sheet.path}: columns {columns[expert.name]} and {expert.column}: one outcome per expert; a price is called"
                f" {PRICE}{expert.name}"
            )
        columns[expert.name] = expert.column


def errors_of(sheet: Sheet, experts: list[Expert], labels: list[str] | None) -> np.ndarray:
    """float64 [n, p]: 1 − correctness, 1[prediction ≠ label], or the cost as it is."""
    return np.stack([_errors(sheet, expert, labels) for expert in experts], axis=1)


def _errors(sheet: Sheet, expert: Expert, labels: list[str] | None) -> np.ndarray:
    if expert.outcome == "prediction":
        return _wrong_predictions(sheet, expert, labels)
    values = sheet.numbers(expert.column)
    if expert.outcome == "cost":
        sheet.refuse(expert.column, "negative", values < 0)
        return values
    sheet.refuse(expert.column, "not between 0 (wrong) and 1 (right)", (values < 0) | (values > 1))
    return 1 - values


def _wrong_predictions(sheet: Sheet, expert: Expert, labels: list[str] | None) -> np.ndarray:
    if labels is None:
        raise ParameterError(
            "label", f"missing; the predictions in column {expert.column} need a column to compare with"
        )
    predictions = sheet.words(expert.column)
    if not set(predictions) & set(labels):
        raise L2DError(
            f"{sheet.path}: column {expert.column}: no prediction is ever a label; predictions are"
            f" {listed(sorted(set(predictions)))}, labels {listed(sorted(set(labels)))}"
        )
    return np.array([said != true for said, true in zip(predictions, labels, strict=True)], dtype=np.float64)


def prices_of(sheet: Sheet, experts: list[Expert]) -> np.ndarray | None:
    """float64 [n, p] if all experts have a price column, None if none has."""
    columns = [f"{PRICE}{expert.name}" for expert in experts]
    absent = [column for column in columns if column not in sheet.columns]
    if len(absent) == len(columns):
        return None
    if absent:
        raise L2DError(f"{sheet.path}: no column {listed(absent)}; all experts have a price column or none has")
    prices = [sheet.numbers(column) for column in columns]
    for column, values in zip(columns, prices, strict=True):
        sheet.refuse(column, "negative", values < 0)
    return np.stack(prices, axis=1)
