"""l2d import: recorded outcomes of language models, as a table for dataset=table."""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from l2d.config.identity import quoted
from l2d.data.imported import harness_outcomes, model_of_file, routellm_outcomes
from l2d.data.sheet import write_sheet
from l2d.utils.user_errors import OneLineParser, answering

ABOUT = """Turn recorded outcomes of language models into a table for dataset=table.

The table has the columns id, prompt, subject and answer (where they are known), and correct_NAME for every model."""
EXAMPLES = """examples:
  l2d import harness small=a.jsonl large=b.jsonl --out table.csv
  l2d import harness out/*/samples_mmlu_high_school_*.jsonl --out table.parquet
  l2d import routellm mmlu_high_school_mathematics.csv mmlu_high_school_world_history.csv --out table.csv
  l2d train dataset=table dataset.path=table.csv dataset.text=prompt"""
HARNESS = """Files that lm-evaluation-harness wrote with --log_samples: one JSON object per line with doc_id, arguments, target and
a metric. Two or more models are joined by doc_id. A model is called NAME; without NAME, by the folder of its
samples_TASK_TIME.jsonl, or by the file. Several files of one model are several tasks; ids are then TASK/doc_id. The
subject is the document's own, or else the task."""
ROUTELLM = """CSV files of RouteLLM's evaluations: a column prompt, and one of True or False per model. Columns called
MODEL_response are left out. If there are several files, each is a subject."""


def main(arguments: Sequence[str]) -> None:
    with answering():
        options = import_parser().parse_args(arguments)
        if options.source == "harness":
            outcomes = harness_outcomes([named_file(text) for text in options.files], options.metric, options.filter)
        else:
            outcomes = routellm_outcomes([Path(text) for text in options.files])
        columns = outcomes.columns
        write_sheet(options.out, columns)
        for note in outcomes.notes:
            print(note, file=sys.stderr)
        shares = {name: sum(cells) / len(cells) for name, cells in columns.items() if name.startswith("correct_")}
        right = ", ".join(f"{name.removeprefix('correct_')} {share:.1%}" for name, share in shares.items())
        print(f"{options.out}: {len(columns['id']):,} questions; right: {right}")
        by_subject = " dataset.category=subject" if "subject" in columns else ""
        path = f"dataset.path={given_to_hydra(str(options.out))}"
        print(f"l2d train dataset=table {quote(path)} dataset.text=prompt{by_subject}")


def import_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="l2d import", description=ABOUT, epilog=EXAMPLES)
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    harness = sources.add_parser("harness", help="sample files of lm-evaluation-harness", description=HARNESS)
    harness.add_argument("files", nargs="+", metavar="[NAME=]FILE", help="a samples_*.jsonl file, and its model's name")
    harness.add_argument("--metric", help="which metric says right or wrong; acc or exact_match if not given")
    harness.add_argument("--filter", help="which filter's rows to take, if there are several")
    routellm = sources.add_parser("routellm", help="response files of RouteLLM", description=ROUTELLM)
    routellm.add_argument("files", nargs="+", metavar="FILE", help="a .csv file")
    for source in (harness, routellm):
        source.add_argument(
            "--out", required=True, type=Path, metavar="TABLE", help="the .csv or .parquet file to write"
        )
    return parser


def given_to_hydra(path: str) -> str:
    """Quoted, if it has characters that mean something to Hydra."""
    return path if re.fullmatch(r"[\w ./~+-]+", path) else quoted(path)


def named_file(text: str) -> tuple[str, Path]:
    """(model, file) from NAME=FILE or FILE. A file whose own name has an equals sign is a file."""
    name, equals, rest = text.partition("=")
    if equals and not Path(text).exists():
        return name, Path(rest).expanduser()
    return model_of_file(Path(text)), Path(text)
