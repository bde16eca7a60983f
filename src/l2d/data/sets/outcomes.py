"""What the experts of a table did: which columns say it, and as errors and prices."""

from dataclasses import dataclass

import numpy as np
import torch

from l2d.data.arrays import Answers
from l2d.data.sheet import Sheet, listed
from l2d.utils.errors import L2DError

OUTCOMES = ("correct", "prediction", "cost")
PRICE = "price_"


@dataclass(frozen=True)
class Expert:
    """outcome: what its column holds."""

    name: str
    column: str
    outcome: str


def find_experts(sheet: Sheet, columns: list[str] | None, outcome: str) -> list[Expert]:
    """In the order of `columns`, or of the file."""
    named = [
        Expert(column.removeprefix(f"{kind}_"), column, kind)
        for column in sheet.names
        for kind in OUTCOMES
        if column.startswith(f"{kind}_")
    ]
    experts = named
    if columns is not None:
        full = {column: f"{outcome}_{column}" for column in columns}
        columns = [full[c] if c not in sheet.columns and full[c] in sheet.columns else c for c in columns]
        for column in columns:
            sheet.check("dataset.experts", column)
        experts = [Expert(column.removeprefix(f"{outcome}_"), column, outcome) for column in columns]
    _check_experts(sheet, experts)
    known = {expert.name for expert in (*experts, *named)}
    for column in sheet.names:
        if column.startswith(PRICE) and column.removeprefix(PRICE) not in known:
            raise L2DError(
                f"dataset.path={sheet.path}: column {column}: the price of an unknown expert; there are {listed(sorted(known))}"
            )
    return experts


def _check_experts(sheet: Sheet, experts: list[Expert]) -> None:
    where = f"dataset.path={sheet.path}"
    if len(experts) < 2:
        found = f"only one expert, {experts[0].name}" if experts else "no experts"
        hint = "; are the cells separated by commas?" if len(sheet.names) == 1 else ""
        raise L2DError(
            f"{where}: {found}; there must be two or more columns correct_NAME, prediction_NAME or cost_NAME, or name them"
            f" in dataset.experts; there are {listed(sheet.names)}{hint}"
        )
    columns: dict[str, str] = {}
    for expert in experts:
        if not expert.name:
            raise L2DError(f"{where}: column {expert.column}: has no expert's name after it")
        if expert.name in columns:
            raise L2DError(
                f"{where}: columns {columns[expert.name]} and {expert.column}: one outcome per expert; a price is called"
                f" {PRICE}{expert.name}"
            )
        columns[expert.name] = expert.column


def answers_of(sheet: Sheet, experts: list[Expert], labels: list[str] | None) -> Answers:
    """errors: 1 − correctness, 1[prediction ≠ label], or the cost as it is."""
    errors = np.stack([errors_of(sheet, expert, labels) for expert in experts], axis=1)
    prices = prices_of(sheet, experts)
    return Answers(torch.from_numpy(errors), None, None if prices is None else torch.from_numpy(prices))


def errors_of(sheet: Sheet, expert: Expert, labels: list[str] | None) -> np.ndarray:
    if expert.outcome == "prediction":
        return _wrong(sheet, expert, labels)
    values = sheet.numbers(expert.column)
    if expert.outcome == "cost":
        sheet.refuse(expert.column, "negative", values < 0)
        return values
    sheet.refuse(expert.column, "not between 0 (wrong) and 1 (right)", (values < 0) | (values > 1))
    return 1 - values


def _wrong(sheet: Sheet, expert: Expert, labels: list[str] | None) -> np.ndarray:
    if labels is None:
        raise L2DError(
            f"dataset.label: missing; the predictions in column {expert.column} are compared with a label column"
        )
    predictions = sheet.words(expert.column)
    if not set(predictions) & set(labels):
        raise L2DError(
            f"dataset.path={sheet.path}: column {expert.column}: no prediction is ever a label; predictions are"
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
        raise L2DError(
            f"dataset.path={sheet.path}: no column {listed(absent)}; all experts have a price column or none"
        )
    prices = [sheet.numbers(column) for column in columns]
    for column, values in zip(columns, prices, strict=True):
        sheet.refuse(column, "negative", values < 0)
    return np.stack(prices, axis=1)
