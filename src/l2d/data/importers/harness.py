"""lm-evaluation-harness: sample files of several models, joined by question. Columns also have subject and answer, if known."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from l2d.data.sheet_files import json_lines
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import counted, listed

METRICS = ("acc", "exact_match")  # tried in this order, if none is named
# ORG__MODEL/samples_TASK_TIME.jsonl is how lm-evaluation-harness names its files.
SAMPLES_FILE = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?")
Columns = dict[str, list[Any]]


class RecordedOutcomes(NamedTuple):
    """columns: id, prompt, correct_NAME for every model, and others if known. notes: what was left out or assumed."""

    columns: Columns
    notes: list[str]


class HarnessSample(NamedTuple):
    """A model's answer to one question. doc: the document that the prompt was made from."""

    prompt: str
    subject: str | None
    answer: str | None
    correct: float
    doc: Any


def harness_outcomes(
    files: Sequence[tuple[str, Path]], metric: str | None = None, filter: str | None = None
) -> RecordedOutcomes:
    """Sample files (model, file), joined by id; if a model has several tasks, ids are TASK/doc_id."""
    several_tasks = len({_task(file) for _, file in files}) > 1
    models: dict[str, dict[str, HarnessSample]] = {}
    for model, file in files:
        samples, whole = models.setdefault(model, {}), json_lines(file)
        filters = sorted({str(row.get("filter")) for _, row in whole})
        if filter not in filters and (filter is not None or len(filters) != 1):
            known = listed(filters) or "it has no rows"
            raise ParameterError("filter", f"choose one of those in {file}: {known}", filter)
        for where, row in (one for one in whole if filter is None or one[1].get("filter") == filter):
            key = f"{_task(file)}/{row.get('doc_id')}" if several_tasks else str(row.get("doc_id"))
            if key in samples:
                raise L2DError(f"{where}: a second row of {model} with id {key}; name models with NAME=FILE")
            samples[key] = _sample(row, _task(file), metric, where)
    if len(models) < 2:
        raise L2DError(f"all files are of one model, {', '.join(models)}; name models with NAME=FILE")
    return _joined(models)


def _sample(row: dict[str, Any], task: str, metric: str | None, where: str) -> HarnessSample:
    arguments, doc, target = row.get("arguments"), row.get("doc"), row.get("target")
    try:  # of the first request, if each choice is a request of its own; older versions wrote lists
        prompt = arguments["gen_args_0"]["arg_0"] if isinstance(arguments, dict) else arguments[0][0]  # type: ignore[index]
    except (LookupError, TypeError):
        prompt = None
    if "doc_id" not in row or not isinstance(prompt, str) or not prompt.strip():
        problem = "no doc_id, or no prompt in arguments; is it a samples_*.jsonl of lm-evaluation-harness?"
        raise L2DError(f"{where}: {problem}")
    # Keys in the documents of MMLU and of MMLU-Pro.
    named = [doc.get(key) for key in ("subject", "category")] if isinstance(doc, dict) else []
    subject = next((name for name in (*named, task) if isinstance(name, str) and name.strip()), None)
    answer = target if target is None or isinstance(target, str) else json.dumps(target)
    names = METRICS if metric is None else (metric,)
    found = next((name for name in names if name in row), None)
    if found is None:
        there = listed(row.get("metrics") or list(row))
        raise ParameterError("metric", f"{where} has no {' or '.join(names)}; choose one of {there}")
    return HarnessSample(prompt, subject, answer, share_right(row[found], found, where), doc)


def share_right(value: object, key: str, where: str) -> float:
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise L2DError(f"{where}: {key} is {str(value)[:40]}; must be between 0 (wrong) and 1 (right)")
    return float(value)


def _joined(models: Mapping[str, Mapping[str, HarnessSample]]) -> RecordedOutcomes:
    """The questions in the order in which they first come; None where a model was not asked. models: samples by id, by model."""
    asked: dict[str, dict[str, HarnessSample]] = {}
    for model, samples in models.items():
        for key, sample in samples.items():
            asked.setdefault(key, {})[model] = sample
    for model, samples in models.items():  # one that shares no question was asked something else
        if not any(len(asked[key]) > 1 for key in samples):
            raise L2DError(f"no question of {model} was asked of another model; its ids are {listed([*samples], 3)}")
    notes = not_asked(sum(len(answers) < len(models) for answers in asked.values()))
    first = [first_sample(key, answers) for key, answers in asked.items()]
    columns: Columns = {"id": list(asked), "prompt": [one.prompt for one in first]}
    for part in ("subject", "answer"):
        cells = [getattr(one, part) for one in first]
        if None not in cells:
            columns[part] = cells
    for model in models:
        columns[f"correct_{model}"] = [one[model].correct if model in one else None for one in asked.values()]
    return RecordedOutcomes(columns, notes)


def not_asked(some: int) -> list[str]:
    note = f"{counted(some, 'question')} not asked of all models: their cells are empty, so the table is read as a log"
    return [note] if some else []


def first_sample(key: str, answers: Mapping[str, HarnessSample]) -> HarnessSample:
    """What the first model was asked. Others may have another prompt (chat templates), but not another document."""
    (name, first), *others = answers.items()
    for other, sample in others:
        if sample.prompt != first.prompt and (first.doc is None or sample.doc != first.doc):
            raise L2DError(f"id {key}: {name} and {other} were asked different questions")
    return first


def model_of_file(file: Path) -> str:
    """The folder of a samples_TASK_TIME.jsonl, without its ORG__; else the file's name."""
    return file.resolve().parent.name.rpartition("__")[2] if SAMPLES_FILE.fullmatch(file.stem) else file.stem


def _task(file: Path) -> str:
    found = SAMPLES_FILE.fullmatch(file.stem)
    return found[1] if found else ""
