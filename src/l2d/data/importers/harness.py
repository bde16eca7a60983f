"""lm-evaluation-harness: sample files of several models, joined by question. Columns also have subject and answer, if known."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from l2d.data.importers.recorded import Columns, RecordedOutcomes, asked_of_some, json_lines, share_right
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import listed

METRICS = ("acc", "exact_match")  # tried in this order, if none is named
# ORG__MODEL/samples_TASK_TIME.jsonl is how lm-evaluation-harness names its files.
SAMPLES_FILE = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?")


@dataclass(frozen=True)
class HarnessSample:
    """A model's answer to one question. doc: the document that the prompt was made from."""

    prompt: str
    subject: str | None
    answer: str | None
    correct: float
    doc: Any


def harness_outcomes(
    files: Sequence[tuple[str, Path]], metric: str | None = None, filter: str | None = None
) -> RecordedOutcomes:
    """Sample files of lm-evaluation-harness (--log_samples), joined by id. files: (model, file). Several files of one model are
    several tasks; ids are then TASK/doc_id."""
    several_tasks = len({_task(file) for _, file in files}) > 1
    models: dict[str, dict[str, HarnessSample]] = {}
    for model, file in files:
        samples = models.setdefault(model, {})
        for where, row in _rows_of_filter(file, filter):
            key = f"{_task(file)}/{row.get('doc_id')}" if several_tasks else str(row.get("doc_id"))
            if key in samples:
                raise L2DError(f"{where}: a second row of {model} with id {key}; name models with NAME=FILE")
            samples[key] = _sample(row, _task(file), metric, where)
    if len(models) < 2:
        raise L2DError(f"all files are of one model, {', '.join(models)}; name models with NAME=FILE")
    return _joined(models)


def _rows_of_filter(file: Path, filter: str | None) -> list[tuple[str, dict[str, Any]]]:
    """Pairs: file and line, for messages; the line's object."""
    whole = json_lines(file)
    filters = sorted({str(row.get("filter")) for _, row in whole})
    if filter not in filters and (filter is not None or len(filters) != 1):
        raise ParameterError("filter", f"choose one of those in {file}: {listed(filters) or 'it has no rows'}", filter)
    return [(where, row) for where, row in whole if filter is None or row.get("filter") == filter]


def _sample(row: dict[str, Any], task: str, metric: str | None, where: str) -> HarnessSample:
    arguments, doc, target = row.get("arguments"), row.get("doc"), row.get("target")
    try:  # of the first request, if each choice is a request of its own; older versions wrote lists
        prompt = arguments["gen_args_0"]["arg_0"] if isinstance(arguments, dict) else arguments[0][0]  # type: ignore[index]
    except (LookupError, TypeError):
        prompt = None
    if "doc_id" not in row or not isinstance(prompt, str) or not prompt.strip():
        raise L2DError(
            f"{where}: no doc_id, or no prompt in arguments; is it a samples_*.jsonl of lm-evaluation-harness?"
        )
    # Keys in the documents of MMLU and of MMLU-Pro.
    named = [doc.get(key) for key in ("subject", "category")] if isinstance(doc, dict) else []
    subject = next((name for name in (*named, task) if isinstance(name, str) and name.strip()), None)
    answer = target if target is None or isinstance(target, str) else json.dumps(target)
    return HarnessSample(prompt, subject, answer, _correctness(row, metric, where), doc)


def _correctness(row: dict[str, Any], metric: str | None, where: str) -> float:
    names = METRICS if metric is None else (metric,)
    found = next((name for name in names if name in row), None)
    if found is None:
        there = listed(row.get("metrics") or list(row))
        raise ParameterError("metric", f"{where} has no {' or '.join(names)}; choose one of {there}")
    return share_right(row[found], found, where)


def _joined(models: Mapping[str, Mapping[str, HarnessSample]]) -> RecordedOutcomes:
    """The questions in the order in which they first come; None where a model was not asked. models: samples by id, by model."""
    asked: dict[str, dict[str, HarnessSample]] = {}
    for model, samples in models.items():
        for key, sample in samples.items():
            asked.setdefault(key, {})[model] = sample
    notes = asked_of_some(list(models), asked)
    if reworded := sum(_reworded(key, answers) for key, answers in asked.items()):
        notes.append(f"{reworded:,} prompts differ between models (chat templates?); those of the first model are kept")
    first = [next(iter(answers.values())) for answers in asked.values()]
    columns: Columns = {"id": list(asked), "prompt": [one.prompt for one in first]}
    for part in ("subject", "answer"):
        cells = [getattr(one, part) for one in first]
        if None not in cells:
            columns[part] = cells
    for model in models:
        columns[f"correct_{model}"] = [one[model].correct if model in one else None for one in asked.values()]
    return RecordedOutcomes(columns, notes)


def _reworded(key: str, answers: Mapping[str, HarnessSample]) -> int:
    """The number of models that were asked in other words than the first. Another document under the same id is refused."""
    (name, first), *others = answers.items()
    found = [(other, sample) for other, sample in others if sample.prompt != first.prompt]
    for other, sample in found:
        if first.doc is None or sample.doc != first.doc:
            raise L2DError(f"id {key}: {name} and {other} were asked different questions")
    return len(found)


def model_of_file(file: Path) -> str:
    """The folder of a samples_TASK_TIME.jsonl, without its ORG__; else the file's name."""
    return file.resolve().parent.name.rpartition("__")[2] if SAMPLES_FILE.fullmatch(file.stem) else file.stem


def _task(file: Path) -> str:
    found = SAMPLES_FILE.fullmatch(file.stem)
    return found[1] if found else ""
