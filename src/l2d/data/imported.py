"""Outcomes of language models that others recorded, as the columns of a table: id, prompt, subject and answer where they are known,
and correct_NAME for every model."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from l2d.data.sheet import listed, read_sheet
from l2d.utils.errors import L2DError, ParameterError

METRICS = ("acc", "exact_match")  # in this order, if none is named
NOT_METRICS = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics")
# ORG__MODEL/samples_TASK_TIME.jsonl is how lm-evaluation-harness names its files.
SAMPLES_FILE = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?")

Columns = dict[str, Sequence[Any]]


@dataclass(frozen=True)
class RecordedOutcomes:
    """notes: what the user should know about how the columns were made."""

    columns: Columns
    notes: list[str] = field(default_factory=list)

    def shares_right(self) -> dict[str, float]:
        """By model."""
        models = [name.removeprefix("correct_") for name in self.columns if name.startswith("correct_")]
        return {name: sum(self.columns[f"correct_{name}"]) / len(self.columns["id"]) for name in models}


@dataclass(frozen=True)
class HarnessSample:
    """A model's answer to one question. doc: the document that the prompt was made from, as JSON."""

    prompt: str
    subject: str | None
    answer: str | None
    correct: float
    doc: str


Samples = Mapping[str, HarnessSample]  # by id


def harness_outcomes(
    files: Sequence[tuple[str, Path]], metric: str | None = None, filter: str | None = None
) -> RecordedOutcomes:
    """Sample files of lm-evaluation-harness (--log_samples), joined by id. files: (model, file). Several files of one model are
    several tasks; ids are then TASK/doc_id."""
    several_tasks = len({_task(file) for _, file in files}) > 1
    models: dict[str, dict[str, HarnessSample]] = {}
    for model, file in files:
        samples = models.setdefault(model, {})
        for doc_id, sample in read_samples(file, metric, filter).items():
            key = f"{_task(file)}/{doc_id}" if several_tasks else doc_id
            if key in samples:
                raise L2DError(f"{file}: a second row of {model} with id {key}; name models with NAME=FILE")
            samples[key] = sample
    if len(models) < 2:
        raise L2DError(f"all files are of one model, {', '.join(models)}; name models with NAME=FILE")
    return _joined(models)


def read_samples(file: Path, metric: str | None, filter: str | None) -> dict[str, HarnessSample]:
    """By doc_id."""
    samples: dict[str, HarnessSample] = {}
    for number, row in _rows_of_filter(file, filter):
        where = f"{file}: line {number:,}"
        if "doc_id" not in row:
            raise L2DError(f"{where}: no doc_id; is it a samples_*.jsonl of lm-evaluation-harness?")
        key = str(row["doc_id"])
        if key in samples:
            raise L2DError(f"{where}: a second row with doc_id {key}")
        target = row.get("target")
        samples[key] = HarnessSample(
            prompt=_prompt(row, where),
            subject=_subject(row) or _task(file) or None,
            answer=target if target is None or isinstance(target, str) else json.dumps(target),
            correct=_correctness(row, metric, where),
            doc=json.dumps(row.get("doc"), sort_keys=True),
        )
    return samples


def _rows_of_filter(file: Path, filter: str | None) -> list[tuple[int, dict[str, Any]]]:
    rows = [(number, row) for number, row in _json_lines(file) if filter is None or row.get("filter") == filter]
    if not rows:
        raise L2DError(f"{file}: no rows{'' if filter is None else f' of filter {filter}'}")
    if len(filters := sorted({str(row.get("filter")) for _, row in rows})) > 1:
        raise ParameterError("filter", f"missing; {file} has rows of several filters, choose one of {listed(filters)}")
    return rows


def _json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number of the line, its object), of the lines that are not blank."""
    _check_is_file(file)
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise L2DError(f"{file}: not UTF-8 ({error.reason})") from error
    except OSError as error:
        raise L2DError(f"{file}: cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise L2DError(f"{file}: line {number:,}: not JSON ({error.msg})") from error
        if not isinstance(row, dict):
            raise L2DError(f"{file}: line {number:,}: not a JSON object")
        yield number, row


def _prompt(row: dict[str, Any], where: str) -> str:
    """What the model read before its answer. If every choice is a request of its own, the first one's."""
    arguments = row.get("arguments")
    if isinstance(arguments, dict) and isinstance(arguments.get("gen_args_0"), dict):
        prompt = arguments["gen_args_0"].get("arg_0")
    elif isinstance(arguments, list) and arguments and isinstance(arguments[0], list) and arguments[0]:
        prompt = arguments[0][0]  # as older versions wrote it
    else:
        prompt = None
    if not isinstance(prompt, str) or not prompt.strip():
        raise L2DError(f"{where}: no prompt in arguments")
    return prompt


def _subject(row: dict[str, Any]) -> str | None:
    """As the documents of MMLU have it, or those of MMLU-Pro."""
    doc = row.get("doc")
    named = [doc.get(key) for key in ("subject", "category")] if isinstance(doc, dict) else []
    return next((name for name in named if isinstance(name, str) and name.strip()), None)


def _correctness(row: dict[str, Any], metric: str | None, where: str) -> float:
    names = METRICS if metric is None else (metric,)
    found = next((name for name in names if name in row), None)
    if found is None:
        there = [key for key in row if key not in NOT_METRICS and not key.endswith("_hash")]
        raise ParameterError("metric", f"{where} has no {' or '.join(names)}; choose one of {listed(there) or 'none'}")
    value = row[found]
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise L2DError(f"{where}: {found} is {str(value)[:40]}; must be between 0 (wrong) and 1 (right)")
    return float(value)


def _joined(models: Mapping[str, Samples]) -> RecordedOutcomes:
    """The questions that all models were asked, in the first model's order."""
    first = next(iter(models.values()))
    keys = [key for key in first if all(key in samples for samples in models.values())]
    if not keys:
        ids = "; ".join(f"{name}: {listed(list(samples), 3)}" for name, samples in models.items())
        raise L2DError(f"no id is common to all models ({ids})")
    columns: Columns = {"id": keys, "prompt": [first[key].prompt for key in keys]}
    for name in ("subject", "answer"):
        cells = [getattr(first[key], name) for key in keys]
        if None not in cells:
            columns[name] = cells
    for name, samples in models.items():
        columns[f"correct_{name}"] = _whole([samples[key].correct for key in keys])
    return RecordedOutcomes(columns, _notes(models, keys))


def _notes(models: Mapping[str, Samples], keys: Sequence[str]) -> list[str]:
    notes = []
    if left_out := len(set().union(*models.values())) - len(keys):
        notes.append(f"{left_out:,} questions are left out: not all models were asked them")
    if reworded := sum(_reworded(models, key) for key in keys):
        kept = next(iter(models))
        notes.append(f"{reworded:,} prompts differ from model to model (chat templates?); those of {kept} are kept")
    return notes


def _reworded(models: Mapping[str, Samples], key: str) -> int:
    """How many models read another prompt than the first. Their documents must be the same."""
    (first, samples), *others = models.items()
    differ = [name for name, other in others if other[key].prompt != samples[key].prompt]
    for name in differ:
        if samples[key].doc == "null" or models[name][key].doc != samples[key].doc:
            raise L2DError(f"id {key}: {first} and {name} were asked different questions")
    return len(differ)


def routellm_outcomes(files: Sequence[Path]) -> RecordedOutcomes:
    """CSV files of RouteLLM's evaluations: a column prompt, and one of True and False per model. Of several files each is a
    subject."""
    columns: dict[str, list[Any]] = {}
    for file in files:
        part = _responses(file, one_of_several=len(files) > 1)
        if columns and list(part) != list(columns):
            raise L2DError(f"{file}: other models than in {files[0]}: {listed([n for n in part if n not in columns])}")
        for name, cells in part.items():
            columns.setdefault(name, []).extend(cells)
    ids = columns["id"]
    if len(set(ids)) < len(ids):
        raise L2DError(f"two rows with one id; are two of the files called {listed(sorted({f.stem for f in files}))}?")
    return RecordedOutcomes(dict(columns))


def _responses(file: Path, one_of_several: bool) -> Columns:
    """Columns called MODEL_response are left out."""
    _check_is_file(file)
    sheet = read_sheet(file, ["prompt"])
    if "prompt" not in sheet.columns:
        raise L2DError(f"{file}: no column prompt; there are {listed(sheet.names)}")
    names = [name for name in sheet.names if name != "prompt" and not name.endswith("_response")]
    if len(names) < 2:
        raise L2DError(
            f"{file}: needs two or more columns of True and False beside prompt, has {listed(names) or 'none'}"
        )
    part: Columns = {"id": list(range(len(sheet))), "prompt": sheet.texts("prompt")}
    if one_of_several:
        part["id"] = [f"{file.stem}/{row}" for row in part["id"]]
        part["subject"] = [file.stem] * len(sheet)
    for name in names:
        values = sheet.numbers(name)
        sheet.refuse(name, "neither True nor False", (values != 0) & (values != 1))
        part[f"correct_{name}"] = _whole(values.tolist())
    return part


def model_of_file(file: Path) -> str:
    """The folder of a samples_TASK_TIME.jsonl, without its ORG__; else the file's name."""
    return file.resolve().parent.name.rpartition("__")[2] if SAMPLES_FILE.fullmatch(file.stem) else file.stem


def _task(file: Path) -> str:
    found = SAMPLES_FILE.fullmatch(file.stem)
    return found[1] if found else ""


def _check_is_file(file: Path) -> None:
    if not file.is_file():
        raise L2DError(f"{file}: no such file (looked for in {Path.cwd()})")


def _whole(values: list[float]) -> list[float] | list[int]:
    """0 and 1 instead of 0.0 and 1.0, if there is nothing else."""
    return [int(value) for value in values] if all(value in (0, 1) for value in values) else values
