"""Turn the files of a public benchmark into a table for dataset=table.

python bench/import_benchmark.py routerdc gsm8k-train.json gsm8k-test.json mmlu_train.json mmlu_test.json --probability mmlu --out table.parquet
python bench/import_benchmark.py openl2d openl2d/OpenL2D_Use_Example --out adult.parquet
python bench/import_benchmark.py keswani all_results.csv --out tweets.parquet

routerdc: JSON files of RouterDC (shuhao02/RouterDC, datasets/split2_model7): a list of objects with question and scores, one score
per model. A file's name gives its task and split: gsm8k-train.json, mmlu_test.json. LLMRouter's train.json and test.json of
dcrouter_preprocessed can be read too. openl2d: the folder OpenL2D_Use_Example of feedzai/openl2d: people of the Adult census, and
whether each of 25 synthetic experts says rightly that a person earns more than 50,000 dollars. keswani: all_results.csv of
vijaykeswani/Deferral-To-Multiple-Experts: tweets, and whether each annotator labelled them rightly; most cells are empty.
"""  # noqa: E501

import csv
import json
import re
from argparse import RawDescriptionHelpFormatter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from l2d.commands.import_outcomes import write_outcomes
from l2d.commands.route import refuse_overwriting
from l2d.data.importers.harness import Columns, RecordedOutcomes, not_asked, share_right
from l2d.data.sheet import read_sheet
from l2d.utils.errors import L2DError
from l2d.utils.files import user_path
from l2d.utils.user_errors import OneLineParser, answering

SPLITS = {"valid": "validation", "val": "validation"}
NAMED_SPLIT = re.compile(r"(?:(.+)[-_.])?(train|test|validation|valid|val)(?:[-_.].*)?")


def task_and_split(file: Path) -> tuple[str, str | None]:
    """The two parts of a name such as gsm8k-train.json, arc_challenge_test.json or train.json."""
    found = NAMED_SPLIT.fullmatch(file.stem)
    return (found[1] or "", SPLITS.get(found[2], found[2])) if found else (file.stem, None)


def routerdc_outcomes(files: Sequence[Path], probability: Collection[str] = ()) -> RecordedOutcomes:
    """probability: tasks whose scores are the chance of the right answer, and 0 if another was likelier: any above 0 is right."""
    columns: Columns = {name: [] for name in ("id", "prompt", "task", "split")}
    answers: list[dict[str, float]] = []
    for file in files:
        task, split = task_and_split(file)
        for number, (prompt, scores) in enumerate(read_questions(file)):
            for name, cell in zip(columns, (f"{file.stem}/{number}", prompt, task, split), strict=True):
                columns[name].append(cell)
            answers.append({m: float(score > 0) if task in probability else score for m, score in scores.items()})
    columns = {name: cells for name, cells in columns.items() if all(cells)}
    models = dict.fromkeys(model for scores in answers for model in scores)
    columns |= {f"correct_{model}": [scores.get(model) for scores in answers] for model in models}
    return RecordedOutcomes(columns, not_asked(sum(len(scores) < len(models) for scores in answers)))


def read_questions(file: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Each question, and its scores by model."""
    try:
        for row in json.loads(file.read_bytes()):
            yield row["question"], {model: share_right(one, model, str(file)) for model, one in row["scores"].items()}
    except (ValueError, TypeError, KeyError) as error:
        raise L2DError(f"{file}: not a file of RouterDC ({type(error).__name__}: {error})") from error


def openl2d_outcomes(files: Sequence[Path]) -> RecordedOutcomes:
    """The prompt lists what is known of the person; the same are columns of their own."""
    [folder] = files
    people = read_sheet(folder / "data/preprocessed.parquet")
    said = read_sheet(folder / "synthetic_experts/expert_team/expert_predictions.parquet")
    truth = people.numbers("income")
    known = {name: cells.to_pylist() for name, cells in people.columns.items() if name != "income"}
    each = (zip(known, row, strict=True) for row in zip(*known.values(), strict=True))
    told = ["; ".join(f"{name}: {cell}" for name, cell in person) for person in each]
    columns: Columns = {"id": list(range(len(people))), "prompt": told, **known}
    columns |= {f"correct_{name}": (said.numbers(name) == truth).astype(float).tolist() for name in said.names}
    return RecordedOutcomes(columns, [])


def keswani_outcomes(files: Sequence[Path]) -> RecordedOutcomes:
    """Annotators without any answer are left out."""
    [file] = files
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))  # its first column has no name
    columns: Columns = {"id": list(range(len(rows))), "prompt": [row["Tweet"] for row in rows]}
    for name in (name for name in rows[0] if name.startswith("Expert ")):
        right = [None if row[name] == "-" else float(row[name] == row["True Label"]) for row in rows]
        if any(cell is not None for cell in right):
            columns[f"correct_{name}"] = right
    return RecordedOutcomes(columns, not_asked(len(rows)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = OneLineParser(prog="import_benchmark.py", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=("routerdc", "openl2d", "keswani"))
    parser.add_argument("files", nargs="+", type=user_path, metavar="FILE")
    parser.add_argument("--out", required=True, type=user_path, metavar="TABLE", help="a new .csv or .parquet file")
    parser.add_argument("--probability", nargs="+", default=[], metavar="TASK", help="RouterDC: any score > 0 is right")
    with answering():
        options = parser.parse_args(arguments)
        refuse_overwriting(options.out, options.files)
        if options.source == "routerdc":
            found = routerdc_outcomes(options.files, options.probability)
        else:
            found = (openl2d_outcomes if options.source == "openl2d" else keswani_outcomes)(options.files)
        write_outcomes(options.out, found)


if __name__ == "__main__":
    main()
