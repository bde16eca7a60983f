"""Parts that importers share: columns with notes, files of JSON, scores."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from l2d.utils.errors import L2DError
from l2d.utils.text import counted, listed

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class RecordedOutcomes:
    """columns: id, prompt, correct_NAME for every model, and others if known. notes: what was left out or assumed."""

    columns: Columns
    notes: list[str]


def asked_of_some(models: Sequence[str], questions: Mapping[str, Mapping[str, object]]) -> list[str]:
    """A note on the questions that not all models were asked. questions: by key, then by model. A model that shares none with
    another is refused: it was asked something else, or its keys are of another kind."""
    for model in models:
        own = [key for key, answers in questions.items() if model in answers]
        if not any(len(questions[key]) > 1 for key in own):
            raise L2DError(f"no question of {model} was asked of another model too; its ids are {listed(own, 3)}")
    return not_asked(sum(len(answers) < len(models) for answers in questions.values()))


def not_asked(some: int) -> list[str]:
    note = f"{counted(some, 'question')} not asked of all models: their cells are empty, so the table is read as a log"
    return [note] if some else []


def share_right(value: object, key: str, where: str) -> float:
    """A score from 0 to 1 as a number."""
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise L2DError(f"{where}: {key} is {str(value)[:40]}; must be between 0 (wrong) and 1 (right)")
    return float(value)


def json_lines(file: Path) -> list[tuple[str, dict[str, Any]]]:
    """Pairs: file and line, for messages; the line's object. Empty lines are left out."""
    lines = [(f"{file}: line {number:,}", line) for number, line in enumerate(file.read_bytes().split(b"\n"), start=1)]
    return [(where, json_object(line, where)) for where, line in lines if line.strip()]


def json_object(content: bytes, where: str) -> dict[str, Any]:
    with suppress(ValueError):  # not JSON, or not UTF-8
        if isinstance(row := json.loads(content), dict):
            return row
    raise L2DError(f"{where}: not a JSON object")
