"""l2d import: recorded outcomes of language models, as a table for dataset=table."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from l2d.data.imported import RecordedOutcomes, harness_outcomes, model_of_file, routellm_outcomes
from l2d.data.sheet import write_sheet
from l2d.utils.user_errors import answering

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
    options = import_parser().parse_args(arguments)
    with answering():
        if options.source == "harness":
            outcomes = harness_outcomes([named_file(text) for text in options.files], options.metric, options.filter)
        else:
            outcomes = routellm_outcomes([Path(text).expanduser() for text in options.files])
        out = Path(options.out).expanduser()
        write_sheet(out, outcomes.columns)
        describe_import(outcomes, out)


def import_parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="l2d import", description=ABOUT, epilog=EXAMPLES, formatter_class=plain)
    sources = parser.add_subparsers(dest="source", required=True, metavar="SOURCE")
    harness = sources.add_parser(
        "harness", help="sample files of lm-evaluation-harness", description=HARNESS, formatter_class=plain
    )
    harness.add_argument(
        "files", nargs="+", metavar="[NAME=]FILE", help="a samples_*.jsonl file, and what to call its model"
    )
    harness.add_argument("--metric", help="which metric says right or wrong; acc or exact_match if not given")
    harness.add_argument("--filter", help="which filter's rows to take, if there are several")
    routellm = sources.add_parser(
        "routellm", help="response files of RouteLLM", description=ROUTELLM, formatter_class=plain
    )
    routellm.add_argument("files", nargs="+", metavar="FILE", help="a .csv file")
    for source in (harness, routellm):
        source.add_argument("--out", required=True, metavar="TABLE", help="the .csv or .parquet file to write")
    return parser


def named_file(text: str) -> tuple[str, Path]:
    """(model, file) from NAME=FILE or FILE. A file whose own name has an equals sign is a file."""
    name, equals, rest = text.partition("=")
    if equals and not Path(text).exists():
        return name, Path(rest).expanduser()
    file = Path(text).expanduser()
    return model_of_file(file), file


def describe_import(outcomes: RecordedOutcomes, out: Path) -> None:
    for note in outcomes.notes:
        print(note, file=sys.stderr)
    right = ", ".join(f"{name} {share:.1%}" for name, share in outcomes.shares_right().items())
    print(f"{out}: {len(outcomes.columns['id']):,} questions; right: {right}")
    by_subject = " dataset.category=subject" if "subject" in outcomes.columns else ""
    print(f"l2d train dataset=table dataset.path={out} dataset.text=prompt{by_subject}")
