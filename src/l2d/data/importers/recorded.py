"""What all importers give: the columns id, prompt, correct_NAME for every model and, where they are known, task, split and
price_NAME."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from l2d.utils.errors import L2DError
from l2d.utils.text import counted, listed

SPLITS = {"train": "train", "test": "test", "validation": "validation", "valid": "validation", "val": "validation"}
NAMED_SPLIT = re.compile(rf"(?:(?P<task>.+)[-_.])?(?P<split>{'|'.join(SPLITS)})(?:[-_.].*)?")
Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class RecordedOutcomes:
    """notes: what the user should know about how the columns were made."""

    columns: Columns
    notes: list[str]


@dataclass(frozen=True)
class Outcome:
    """How right one model was on one question, 0 to 1. key: of the question. price: in dollars."""

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
    for name in ("task", "split"):
        cells = [getattr(one, name) for one in first]
        if None not in cells:
            columns[name] = cells
    by_model = {model: [answers.get(model) for answers in by_key.values()] for model in models}
    for model, found in by_model.items():
        columns[f"correct_{model}"] = [None if one is None else one.correct for one in found]
    if all(one.price is not None for answers in by_key.values() for one in answers.values()):
        for model, found in by_model.items():
            columns[f"price_{model}"] = [None if one is None else one.price for one in found]
    return RecordedOutcomes(columns, notes)


def asked_of_some(models: Sequence[str], questions: Mapping[str, Mapping[str, object]]) -> list[str]:
    """A note on the questions that not all models were asked. questions: by key, then by model. A model that shares none with
    another is refused: it was asked something else, or its keys are of another kind."""
    for model in models:
        own = [key for key, answers in questions.items() if model in answers]
        if not any(len(questions[key]) > 1 for key in own):
            raise L2DError(f"no question of {model} was asked of another model too; its ids are {listed(own, 3)}")
    return _not_asked(sum(len(answers) < len(models) for answers in questions.values()))


def empty_outcomes(columns: Columns) -> list[str]:
    """As `asked_of_some`, of a table with a row per question."""
    outcomes = [cells for name, cells in columns.items() if name.startswith("correct_")]
    return _not_asked(sum(None in row for row in zip(*outcomes, strict=True)))


def _not_asked(some: int) -> list[str]:
    told = f"{counted(some, 'question')} not asked of all models: their cells are empty, so the table is read as a log"
    return [told] if some else []


def known_or_none(values: np.ndarray) -> list[float | None]:
    """A column of numbers with None where a cell is empty, NaN."""
    return [None if np.isnan(value) else value for value in values.tolist()]


def share_right(value: object, key: str, where: str) -> float:
    """A score as how right an answer was."""
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise L2DError(f"{where}: {key} is {str(value)[:40]}; must be between 0 (wrong) and 1 (right)")
    return float(value)


def dollars(value: object, key: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise L2DError(f"{where}: {key} is {str(value)[:40]}; must be a price, 0 or more")
    return float(value)


def wanted_text(row: dict[str, Any], key: str, where: str) -> str:
    """row[key], which must be text."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise L2DError(
            f"{where}: no {key}" if value is None else f"{where}: {key} is {str(value)[:40]!r}; must be text"
        )
    return value


def json_lines(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Pairs: file and line, for messages; the line's object. Empty lines are left out."""
    lines = [(f"{file}: line {number:,}", line) for number, line in enumerate(file.read_bytes().split(b"\n"), start=1)]
    return [(where, json_object(line, where)) for where, line in lines if line.strip()]


def json_list(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Of a file that is a JSON list of objects; pairs as in `json_lines`."""
    with suppress(ValueError):
        if isinstance(rows := json.loads(file.read_bytes()), list):
            numbered = [(f"{file}: item {number:,}", row) for number, row in enumerate(rows, start=1)]
            if odd := next((where for where, row in numbered if not isinstance(row, dict)), None):
                raise L2DError(f"{odd}: not a JSON object")
            return numbered
    raise L2DError(f"{file}: not a JSON list")


def json_object(content: bytes, where: str) -> dict[str, Any]:
    with suppress(ValueError):  # not JSON, or not UTF-8
        if isinstance(row := json.loads(content), dict):
            return row
    raise L2DError(f"{where}: not a JSON object")


def task_and_split(file: Path) -> tuple[str, str | None]:
    """The two parts of a name such as gsm8k-train.json, arc_challenge_test.json or train.json."""
    found = NAMED_SPLIT.fullmatch(file.stem)
    return (found["task"] or "", SPLITS[found["split"]]) if found else (file.stem, None)


def check_splits(files: Sequence[Path]) -> None:
    """Either all files name their split, or none does."""
    without = [file.name for file in files if task_and_split(file)[1] is None]
    if without and len(without) < len(files):
        raise L2DError(
            f"{listed(without)}: train or test is in the names of other files but not in this one; rename it"
        )
