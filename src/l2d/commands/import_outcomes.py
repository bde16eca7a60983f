"""l2d import: recorded outcomes of language models, as a table for dataset=table."""

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from l2d.commands.route import refuse_overwriting
from l2d.config.composing import override_text
from l2d.data.importers.harness import RecordedOutcomes, harness_outcomes, model_of_file
from l2d.data.sheet import write_sheet
from l2d.utils.files import user_path
from l2d.utils.user_errors import OneLineParser, answering

ABOUT = """Turn recorded outcomes of language models into a table for dataset=table, with the columns id, prompt, and correct_NAME
for every model; where they are known, also subject and answer.

harness: files that lm-evaluation-harness wrote with --log_samples: one JSON object per line with doc_id, arguments, target and
a metric. Two or more models are joined by doc_id. A model is called NAME; without NAME, by the folder of its
samples_TASK_TIME.jsonl, or by the file. Several files of one model are several tasks; ids are then TASK/doc_id. The
subject is the document's own, or else the task."""
EXAMPLES = """examples:
  l2d import harness small=a.jsonl large=b.jsonl --out table.csv
  l2d train dataset=table dataset.path=table.csv dataset.text=prompt method=mix"""


def main(arguments: Sequence[str]) -> None:
    with answering():
        parser = OneLineParser(prog="l2d import", description=ABOUT, epilog=EXAMPLES)
        add = parser.add_argument
        add("source", metavar="SOURCE", choices=("harness",), help="harness")
        add("files", nargs="+", metavar="[NAME=]FILE", help="a samples_*.jsonl file, and its model's name")
        add("--metric", help="which metric says right or wrong; acc or exact_match if not given")
        add("--filter", help="which filter's rows to take, if there are several")
        add("--out", required=True, type=user_path, metavar="TABLE", help="the .csv or .parquet file to write")
        options = parser.parse_args(arguments)
        files = [named_file(text) for text in options.files]
        refuse_overwriting(options.out, [file for _, file in files])
        write_outcomes(options.out, harness_outcomes(files, options.metric, options.filter))


def write_outcomes(out: Path, outcomes: RecordedOutcomes) -> None:
    """Write the table; print the notes, how often each model is right, and the command that trains a router."""
    columns, shares = outcomes.columns, list[str]()
    write_sheet(out, columns)
    print(*outcomes.notes, sep="\n", end="\n" * bool(outcomes.notes), file=sys.stderr)
    for name in (name for name in columns if name.startswith("correct_")):
        known = [cell for cell in columns[name] if cell is not None]
        shares.append(f"{name.removeprefix('correct_')} {sum(known) / max(1, len(known)):.1%}")
    words = ["l2d train dataset=table", quote(f"dataset.path={override_text(str(out))}"), "dataset.text=prompt"]
    words += [f"dataset.category={name}" for name in ("subject", "task") if name in columns]
    words += ["dataset.split=split"] if len({*columns.get("split", [])}) > 1 else []
    words.append("method=mix")  # no epochs, and prices may change after training
    print(f"{out}: {len(columns['id']):,} questions; right: {', '.join(shares)}", " ".join(words), sep="\n")


def named_file(text: str) -> tuple[str, Path]:
    """(model, file) from NAME=FILE or FILE. A file whose own name has an equals sign is a file."""
    name, equals, rest = text.partition("=")
    if equals and not Path(text).exists():
        return name, user_path(rest)
    return model_of_file(Path(text)), user_path(text)
