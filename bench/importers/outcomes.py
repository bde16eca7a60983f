"""Outcomes of several models and files as columns: id, prompt, correct_NAME, and task, split and price_NAME if known."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from l2d.data.importers.recorded import Columns, RecordedOutcomes, asked_of_some, not_asked
from l2d.utils.errors import L2DError
from l2d.utils.text import listed

SPLITS = {"train": "train", "test": "test", "validation": "validation", "valid": "validation", "val": "validation"}
NAMED_SPLIT = re.compile(rf"(?:(?P<task>.+)[-_.])?(?P<split>{'|'.join(SPLITS)})(?:[-_.].*)?")


@dataclass(frozen=True)
class Outcome:
    """A model's score on one question. correct: 0 to 1. key: of the question. price: in dollars."""

    key: str
    prompt: str
    model: str
    correct: float
    price: float | None = None
    task: str | None = None
    split: str | None = None


def outcome_table(outcomes: Iterable[Outcome]) -> RecordedOutcomes:
    """The questions in the order of their first outcome; None where a model was not asked. Prices, tasks and splits are columns if
    every outcome has one."""
    by_key: dict[str, dict[str, Outcome]] = {}
    models: dict[str, None] = {}  # in the order in which they come
    repeated = 0
    for one in outcomes:
        models[one.model] = None
        known = by_key.setdefault(one.key, {})
        repeated += one.model in known
        known.setdefault(one.model, one)
    if len(models) < 2:
        raise L2DError(f"needs the outcomes of two models or more; there are {listed(list(models)) or 'none'}")
    notes = [f"{repeated:,} outcomes are left out: a question and a model that came before"] if repeated else []
    notes += asked_of_some(list(models), by_key)
    first = [next(iter(answers.values())) for answers in by_key.values()]
    columns: Columns = {"id": list(by_key), "prompt": [one.prompt for one in first]}
    for name, cells in (("task", [one.task for one in first]), ("split", [one.split for one in first])):
        if None not in cells:
            columns[name] = cells
    by_model = {model: [answers.get(model) for answers in by_key.values()] for model in models}
    for model, found in by_model.items():
        columns[f"correct_{model}"] = [None if one is None else one.correct for one in found]
    if all(one.price is not None for answers in by_key.values() for one in answers.values()):
        for model, found in by_model.items():
            columns[f"price_{model}"] = [None if one is None else one.price for one in found]
    return RecordedOutcomes(columns, notes)


def stacked(parts: Mapping[Path, Columns]) -> RecordedOutcomes:
    """Tables of one row per question, by file, below each other. All must have the same columns."""
    columns: Columns = {}
    for file, part in parts.items():
        if columns and list(part) != list(columns):
            raise L2DError(f"{file}: other columns than in {next(iter(parts))}: {listed(sorted({*part} ^ {*columns}))}")
        for name, cells in part.items():
            columns.setdefault(name, []).extend(cells)
    outcomes = [cells for name, cells in columns.items() if name.startswith("correct_")]
    return RecordedOutcomes(columns, not_asked(sum(None in row for row in zip(*outcomes, strict=True))))


def known_or_none(values: np.ndarray) -> list[float | None]:
    """A column of numbers with None where a cell is empty, NaN."""
    return [None if np.isnan(value) else value for value in values.tolist()]


def dollars(value: object, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise L2DError(f"{where}: {key} is {str(value)[:40]}; must be a price, 0 or more")
    return float(value)


def wanted_text(row: dict[str, Any], key: str, where: str) -> str:
    """row[key], which must be text."""
    value = row.get(key)
    if isinstance(value, str) and value.strip():
        return value
    raise L2DError(f"{where}: no {key}" if value is None else f"{where}: {key} is {str(value)[:40]!r}; must be text")


def json_list(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a file that is a JSON list, each after its file and number, for messages."""
    with suppress(ValueError):
        if isinstance(rows := json.loads(file.read_bytes()), list):
            numbered = [(f"{file}: item {number:,}", row) for number, row in enumerate(rows, start=1)]
            if odd := next((where for where, row in numbered if not isinstance(row, dict)), None):
                raise L2DError(f"{odd}: not a JSON object")
            return numbered
    raise L2DError(f"{file}: not a JSON list")


def task_and_split(file: Path) -> tuple[str, str | None]:
    """The two parts of a name such as gsm8k-train.json, arc_challenge_test.json or train.json."""
    found = NAMED_SPLIT.fullmatch(file.stem)
    return (found["task"] or "", SPLITS[found["split"]]) if found else (file.stem, None)


def check_splits(files: Sequence[Path]) -> None:
    """Either all files name their split, or none does."""
    without = [file.name for file in files if task_and_split(file)[1] is None]
    if without and len(without) < len(files):
        raise L2DError(f"{listed(without)}: no train or test in the name, unlike other files; rename it")
