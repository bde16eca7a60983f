"""l2d import: recorded outcomes of language models, as a table for dataset=table."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from l2d.commands.route import refuse_overwriting, user_path
from l2d.config.identity import quoted
from l2d.data.importers.harness import harness_outcomes, model_of_file
from l2d.data.importers.llmrouter import llmrouter_outcomes
from l2d.data.importers.llmrouterbench import llmrouterbench_outcomes
from l2d.data.importers.recorded import Columns, RecordedOutcomes
from l2d.data.importers.routellm import routellm_outcomes
from l2d.data.importers.routerbench import routerbench_outcomes
from l2d.data.importers.routerdc import routerdc_outcomes
from l2d.data.sheet import write_sheet
from l2d.utils.user_errors import OneLineParser, answering

ABOUT = """Turn recorded outcomes of language models into a table for dataset=table.

The table has the columns id, prompt, and correct_NAME for every model. Where they are known, it also has subject or task,
answer, split, and price_NAME in dollars."""
EXAMPLES = """examples:
  l2d import harness small=a.jsonl large=b.jsonl --out table.csv
  l2d import harness out/*/samples_mmlu_high_school_*.jsonl --out table.parquet
  l2d import routellm mmlu_high_school_mathematics.csv mmlu_high_school_world_history.csv --out table.csv
  l2d import routerdc gsm8k-train.json gsm8k-test.json mmlu_train.json mmlu_test.json --probability mmlu --out table.parquet
  l2d import llmrouter default_routing_train_data.jsonl default_routing_test_data.jsonl --models default_llm.json --out table.csv
  l2d import routerbench routerbench_0shot.parquet --out table.parquet
  l2d import llmrouterbench results/bench --out table.parquet
  l2d train dataset=table dataset.path=table.csv dataset.text=prompt method=mix"""
HARNESS = """Files that lm-evaluation-harness wrote with --log_samples: one JSON object per line with doc_id, arguments, target and
a metric. Two or more models are joined by doc_id. A model is called NAME; without NAME, by the folder of its
samples_TASK_TIME.jsonl, or by the file. Several files of one model are several tasks; ids are then TASK/doc_id. The
subject is the document's own, or else the task."""
ROUTELLM = """CSV files of RouteLLM's evaluations: a column prompt, and one of True or False per model. Columns called
MODEL_response are left out. If there are several files, each is a subject."""
ROUTERDC = """JSON files of RouterDC (shuhao02/RouterDC, datasets/split2_model7): a list of objects with question and scores, one
score per model. A file's name gives its task and split: gsm8k-train.json, mmlu_test.json. LLMRouter's train.json and
test.json of dcrouter_preprocessed can be read too."""
LLMROUTER = """JSON lines of LLMRouter (ulab-uiuc/LLMRouter, default_routing_train_data.jsonl): query, task_name, model_name and
performance. A name with train or test in it gives the split. With --models, tokens times prices become price_NAME."""
ROUTERBENCH = """A CSV or Parquet file with RouterBench's columns: sample_id, prompt, eval_name, MODEL and MODEL|total_cost.
RouterBench comes as pickles, which can run code when they are read. If you trust them, export them first:
python -c "import pandas; pandas.read_pickle('routerbench_0shot.pkl').to_parquet('routerbench_0shot.parquet')\""""
LLMROUTERBENCH = """Result files of LLMRouterBench, DATASET-SPLIT-MODEL-TIME.json, or folders of them (results/bench). Each has
dataset_name, split, model_name and records with index, prompt, score and cost. The latest file of a model and dataset
counts."""


def main(arguments: Sequence[str]) -> None:
    with answering():
        options = import_parser().parse_args(arguments)
        refuse_overwriting(options.out, files_read(options))
        outcomes = imported_outcomes(options)
        write_sheet(options.out, outcomes.columns)
        for note in outcomes.notes:
            print(note, file=sys.stderr)
        print(summary_of(options.out, outcomes.columns))


def files_read(options: argparse.Namespace) -> list[Path]:
    files = [named_file(text)[1] if options.source == "harness" else user_path(text) for text in options.files]
    models = getattr(options, "models", None)
    return files if models is None else [*files, models]


def imported_outcomes(options: argparse.Namespace) -> RecordedOutcomes:
    if options.source == "harness":
        return harness_outcomes([named_file(text) for text in options.files], options.metric, options.filter)
    files = [user_path(text) for text in options.files]
    if options.source == "routerdc":
        return routerdc_outcomes(files, options.probability)
    if options.source == "llmrouter":
        return llmrouter_outcomes(files, options.models)
    if options.source == "routerbench":
        return routerbench_outcomes(files)
    return llmrouterbench_outcomes(files) if options.source == "llmrouterbench" else routellm_outcomes(files)


def summary_of(out: Path, columns: Columns) -> str:
    """How often each model is right, and the command that trains a router."""
    known = {
        name: [cell for cell in cells if cell is not None]
        for name, cells in columns.items()
        if name.startswith("correct_")
    }
    shares = {name.removeprefix("correct_"): sum(cells) / max(1, len(cells)) for name, cells in known.items()}
    right = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    words = ["l2d train dataset=table", quote(f"dataset.path={given_to_hydra(str(out))}"), "dataset.text=prompt"]
    words += [f"dataset.category={name}" for name in ("subject", "task") if name in columns]
    words += ["dataset.split=split"] if len({*columns.get("split", [])}) > 1 else []
    words.append("method=mix")  # no epochs, and prices may change after training
    lines = [f"{out}: {len(columns['id']):,} questions; right: {right}"]
    if any(name.startswith("price_") for name in columns):
        words.append("cost=columns cost.error_price=1")
        lines.append(
            "prices are in dollars: cost.error_price=1 says that a wrong answer costs $1; put in what it costs you"
        )
    return "\n".join([*lines, " ".join(words)])


def import_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="l2d import", description=ABOUT, epilog=EXAMPLES)
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    harness = sources.add_parser("harness", help="sample files of lm-evaluation-harness", description=HARNESS)
    harness.add_argument("files", nargs="+", metavar="[NAME=]FILE", help="a samples_*.jsonl file, and its model's name")
    harness.add_argument("--metric", help="which metric says right or wrong; acc or exact_match if not given")
    harness.add_argument("--filter", help="which filter's rows to take, if there are several")
    routellm = sources.add_parser("routellm", help="response files of RouteLLM", description=ROUTELLM)
    routellm.add_argument("files", nargs="+", metavar="FILE", help="a .csv file")
    routerdc = sources.add_parser("routerdc", help="JSON files of RouterDC", description=ROUTERDC)
    routerdc.add_argument("files", nargs="+", metavar="FILE", help="a .json file, TASK-train.json or TASK_test.json")
    routerdc.add_argument(
        "--probability", nargs="+", default=[], metavar="TASK", help="tasks in which any score above 0 is right"
    )
    llmrouter = sources.add_parser("llmrouter", help="routing data of LLMRouter", description=LLMROUTER)
    llmrouter.add_argument("files", nargs="+", metavar="FILE", help="a .jsonl file")
    llmrouter.add_argument("--models", type=user_path, metavar="FILE", help="default_llm.json, for prices")
    routerbench = sources.add_parser("routerbench", help="exported tables of RouterBench", description=ROUTERBENCH)
    routerbench.add_argument("files", nargs="+", metavar="FILE", help="a .csv or .parquet file")
    results = sources.add_parser("llmrouterbench", help="results of LLMRouterBench", description=LLMROUTERBENCH)
    results.add_argument("files", nargs="+", metavar="PATH", help="a .json file, or a folder of them")
    for source in (harness, routellm, routerdc, llmrouter, routerbench, results):
        source.add_argument(
            "--out", required=True, type=user_path, metavar="TABLE", help="the .csv or .parquet file to write"
        )
    return parser


def given_to_hydra(path: str) -> str:
    """Quoted, if it has characters that mean something to Hydra."""
    return path if re.fullmatch(r"[\w ./~+-]+", path) else quoted(path)


def named_file(text: str) -> tuple[str, Path]:
    """(model, file) from NAME=FILE or FILE. A file whose own name has an equals sign is a file."""
    name, equals, rest = text.partition("=")
    if equals and not Path(text).exists():
        return name, user_path(rest)
    return model_of_file(Path(text)), user_path(text)
