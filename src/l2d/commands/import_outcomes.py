"""What language models did elsewhere, as a table for dataset=table: l2d import --help."""

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from l2d.data.sheet import listed, read_sheet, write_sheet
from l2d.utils.errors import L2DError
from l2d.utils.user_errors import answering

HELP = """Outcomes of language models that exist already, as a table for dataset=table.

usage: l2d import harness [NAME=]SAMPLES.jsonl ... out=TABLE [metric=acc] [filter=NAME]
       l2d import routellm RESPONSES.csv ... out=TABLE

harness   files that lm-evaluation-harness wrote with --log_samples: one JSON object a line with doc_id, arguments, target
          and a metric. Two or more models, joined by doc_id. A model is called NAME, or else by the folder of its
          samples_TASK_TIME.jsonl, or by the file. Several files of one model are several tasks; ids are then TASK/doc_id.
          metric: which one says right or wrong (acc or exact_match if not said).
          filter: which filter's rows, where there are several
routellm  the CSV files of RouteLLM's evaluations: a column prompt, and one of True or False per model. Columns called
          MODEL_response are left out.
out       a .csv or .parquet file with the columns id, prompt, subject and answer (where they are known) and correct_NAME
          for every model. subject: the doc's own, or else the task; of several files of RouteLLM's, the file

examples:
  l2d import harness small=a.jsonl large=b.jsonl out=table.csv
  l2d import harness out/*/samples_mmlu_high_school_*.jsonl out=table.parquet
  l2d import routellm mmlu_high_school_mathematics.csv mmlu_high_school_world_history.csv out=table.csv
  l2d train dataset=table dataset.path=table.csv dataset.text=prompt"""
METRICS = ("acc", "exact_match")  # in this order, where none is named
KNOWN = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics")
SAMPLES = re.compile(r"samples_(.+?)(_\d{4}-\d\d-\d\dT[\d.:-]+)?")

Columns = dict[str, Sequence[Any]]


@dataclass(frozen=True)
class Sample:
    """A model's answer to one question. subject: what it is about. doc: what it was made of, however it was put to the model."""

    prompt: str
    subject: str | None
    answer: str | None
    correct: float
    doc: str


def harness(files: Sequence[tuple[str, Path]], metric: str | None = None, chosen: str | None = None) -> Columns:
    """Sample files of lm-evaluation-harness as columns. files: (model, file); chosen: the filter."""
    tasks = {_task(file) for _, file in files}
    models: dict[str, dict[str, Sample]] = {}
    for name, file in files:
        samples = models.setdefault(name, {})
        for key, sample in read_samples(file, metric, chosen, f"{_task(file)}/" if len(tasks) > 1 else "").items():
            if key in samples:
                raise L2DError(f"{file}: a second row of {name} with id {key}; name models with NAME=FILE")
            samples[key] = sample
    if len(models) < 2:
        raise L2DError(f"harness: all files are of one model, {', '.join(models)}; name models with NAME=FILE")
    return join(models)


def read_samples(file: Path, metric: str | None, chosen: str | None, before: str) -> dict[str, Sample]:
    """{id: sample}; `before` comes before every id."""
    rows = [(number, row) for number, row in read_lines(file) if chosen is None or row.get("filter") == chosen]
    if not rows:
        raise L2DError(f"{file}: no rows{'' if chosen is None else f' of filter={chosen}'}")
    if len(filters := sorted({str(row.get("filter")) for _, row in rows})) > 1:
        raise L2DError(f"{file}: rows of several filters; choose one with filter=, of {listed(filters)}")
    samples: dict[str, Sample] = {}
    for number, row in rows:
        if "doc_id" not in row:
            raise L2DError(f"{file}: line {number:,}: no doc_id; is it a samples_*.jsonl of lm-evaluation-harness?")
        key = f"{before}{row['doc_id']}"
        if key in samples:
            raise L2DError(f"{file}: line {number:,}: a second row with doc_id {row['doc_id']}")
        samples[key] = Sample(
            prompt=prompt_of(row, f"{file}: line {number:,}"),
            subject=subject_of(row) or _task(file) or None,
            answer=_word(row.get("target")),
            correct=correctness(row, metric, f"{file}: line {number:,}"),
            doc=json.dumps(row.get("doc"), sort_keys=True),
        )
    return samples


def read_lines(file: Path) -> list[tuple[int, dict[str, Any]]]:
    """(number of the line, its object), of the lines that are not blank."""
    _check_there(file)
    rows = []
    with file.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise L2DError(f"{file}: line {number:,}: not JSON ({error.msg})") from error
                if not isinstance(row, dict):
                    raise L2DError(f"{file}: line {number:,}: not a JSON object")
                rows.append((number, row))
        except UnicodeDecodeError as error:
            raise L2DError(f"{file}: not UTF-8 ({error.reason})") from error
    return rows


def prompt_of(row: dict[str, Any], where: str) -> str:
    """What the model read before its answer; the first request's, where every choice is a request."""
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


def subject_of(row: dict[str, Any]) -> str | None:
    """As MMLU's documents have it, or MMLU-Pro's."""
    doc = row.get("doc")
    named = [doc.get(key) for key in ("subject", "category")] if isinstance(doc, dict) else []
    return next((name for name in named if isinstance(name, str) and name.strip()), None)


def correctness(row: dict[str, Any], metric: str | None, where: str) -> float:
    names = METRICS if metric is None else (metric,)
    found = next((name for name in names if name in row), None)
    if found is None:
        there = [key for key in row if key not in KNOWN and not key.endswith("_hash")]
        raise L2DError(f"{where}: no {' or '.join(names)}; choose with metric=, of {listed(there) or 'none'}")
    value = row[found]
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
        raise L2DError(f"{where}: {found} is {str(value)[:40]}; must be between 0 (wrong) and 1 (right)")
    return float(value)


def join(models: dict[str, dict[str, Sample]]) -> Columns:
    """The questions that all models were asked, in the first one's order."""
    first = next(iter(models))
    keys = [key for key in models[first] if all(key in samples for samples in models.values())]
    if not keys:
        ids = "; ".join(f"{name}: {listed(list(samples), 3)}" for name, samples in models.items())
        raise L2DError(f"no id is common to all models ({ids})")
    reworded = 0
    for key in keys:
        one = models[first][key]
        for name, samples in models.items():
            if samples[key].prompt == one.prompt:
                continue
            if one.doc == "null" or samples[key].doc != one.doc:
                raise L2DError(f"id {key}: {first} and {name} were asked different questions")
            reworded += 1
    if everything := len(set().union(*models.values())) - len(keys):
        _say(f"{everything:,} questions are left out: not all models were asked them")
    if reworded:
        _say(
            f"{reworded:,} prompts are worded differently from model to model (chat templates?); those of {first} are kept"
        )
    columns: Columns = {"id": keys, "prompt": [models[first][key].prompt for key in keys]}
    for name in ("subject", "answer"):
        cells = [getattr(models[first][key], name) for key in keys]
        if None not in cells:
            columns[name] = cells
    return columns | {
        f"correct_{name}": _plain([samples[key].correct for key in keys]) for name, samples in models.items()
    }


def routellm(files: Sequence[Path]) -> Columns:
    """RouteLLM's responses as columns: every column of True and False beside `prompt` is a model."""
    columns: dict[str, list[Any]] = {}
    for file in files:
        _check_there(file)
        try:
            part = _responses(file, file.stem if len(files) > 1 else None)
        except L2DError as error:
            raise L2DError(str(error).replace("dataset.path=", "")) from error
        if columns and list(part) != list(columns):
            raise L2DError(f"{file}: other models than in {files[0]}: {listed([n for n in part if n not in columns])}")
        if len(files) > 1:
            part["id"] = [f"{file.stem}/{row}" for row in part["id"]]
        for name, cells in part.items():
            columns.setdefault(name, []).extend(cells)
    ids = columns["id"]
    if len(set(ids)) < len(ids):
        raise L2DError(f"two rows with one id; are two of the files called {listed(sorted({f.stem for f in files}))}?")
    return dict(columns)


def _responses(file: Path, subject: str | None) -> Columns:
    sheet = read_sheet(file, ["prompt"])
    if "prompt" not in sheet.columns:
        raise L2DError(f"{file}: no column prompt; there are {listed(sheet.names)}")
    names = [name for name in sheet.names if name != "prompt" and not name.endswith("_response")]
    if len(names) < 2:
        raise L2DError(
            f"{file}: needs two or more columns of True and False beside prompt, has {listed(names) or 'none'}"
        )
    part: Columns = {"id": list(range(len(sheet))), "prompt": sheet.texts("prompt")}
    if subject is not None:
        part["subject"] = [subject] * len(sheet)
    for name in names:
        values = sheet.numbers(name)
        sheet.refuse(name, "neither True nor False", (values != 0) & (values != 1))
        part[f"correct_{name}"] = _plain(values.tolist())
    return part


def _check_there(file: Path) -> None:
    if not file.is_file():
        raise L2DError(f"{file}: no such file (looked for in {Path.cwd()})")


def _plain(values: list[float]) -> list[float] | list[int]:
    """0 and 1 rather than 0.0 and 1.0, where that is all there is."""
    return [int(value) for value in values] if all(value in (0, 1) for value in values) else values


def _word(target: object) -> str | None:
    return target if target is None or isinstance(target, str) else json.dumps(target)


def _task(file: Path) -> str:
    found = SAMPLES.fullmatch(file.stem)
    return found[1] if found else ""


def _name(file: Path) -> str:
    """As lm-evaluation-harness lays files out: ORG__MODEL/samples_TASK_TIME.jsonl."""
    return file.resolve().parent.name.rpartition("__")[2] if SAMPLES.fullmatch(file.stem) else file.stem


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def parse(arguments: Sequence[str]) -> tuple[str, list[tuple[str, str]], dict[str, str]]:
    """(kind, [(name or "", file)], options)."""
    kinds: dict[str, tuple[str, ...]] = {"harness": ("out", "metric", "filter"), "routellm": ("out",)}
    if not arguments or arguments[0] not in kinds:
        given = arguments[0] if arguments else "nothing"
        raise L2DError(f"{given}: must be harness or routellm; see l2d import --help")
    files, options = [], {}
    for argument in arguments[1:]:
        key, equals, value = argument.partition("=")
        if equals and key in kinds[arguments[0]]:
            options[key] = value
        elif argument.startswith("-"):
            raise L2DError(f"{argument}: unknown flag; see l2d import --help")
        else:
            named = equals and not Path(argument).exists()
            files.append((key, value) if named else ("", argument))
    if not files:
        raise L2DError(f"{arguments[0]}: no files; see l2d import --help")
    if not options.get("out"):
        raise L2DError("out: missing; say where the table goes, out=table.csv")
    return arguments[0], files, options


def import_table(arguments: Sequence[str]) -> None:
    kind, named, options = parse(arguments)
    out = Path(options["out"]).expanduser()
    files = [(name or _name(Path(file)), Path(file).expanduser()) for name, file in named]
    read: dict[str, Callable[[], Columns]] = {
        "harness": lambda: harness(files, options.get("metric"), options.get("filter")),
        "routellm": lambda: routellm([file for _, file in files]),
    }
    columns = read[kind]()
    write_sheet(out, columns)
    models = [name.removeprefix("correct_") for name in columns if name.startswith("correct_")]
    right = {name: sum(columns[f"correct_{name}"]) / len(columns["id"]) for name in models}
    share = ", ".join(f"{name} {value:.1%}" for name, value in right.items())
    print(f"{out}: {len(columns['id']):,} questions; right: {share}")
    by_subject = " dataset.category=subject" if "subject" in columns else ""
    print(f"l2d train dataset=table dataset.path={out} dataset.text=prompt{by_subject}")


def main(arguments: Sequence[str]) -> None:
    with answering():
        if {"-h", "--help"} & set(arguments):
            print(HELP)
        else:
            import_table(arguments)
