"""RouterDC's JSON (Chen et al. 2024): a list of questions with a score per model. LLMRouter's preprocessed files are alike."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from importers.outcomes import Outcome, check_splits, json_list, outcome_table, task_and_split, wanted_text
from l2d.data.importers.recorded import RecordedOutcomes, share_right
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import listed

TRIES = 10  # RouterDC's scores of generated answers are shares of ten tries


def routerdc_outcomes(files: Sequence[Path], probability: Collection[str] = ()) -> RecordedOutcomes:
    """A file's name is its task and its split. probability: tasks whose scores are the chance of the right answer, and 0 if
    another answer was likelier; any score above 0 is then right, as in RouterDC's evaluation."""
    check_splits(files)
    tasks = [task_and_split(file)[0] for file in files]
    if unknown := [task for task in probability if task not in tasks]:
        raise ParameterError(
            "probability", f"no file of this task; there are {listed(sorted(set(tasks)))}", listed(unknown)
        )
    found = outcome_table(one for file in files for one in _file_outcomes(file, probability))
    return RecordedOutcomes(found.columns, [*found.notes, *_graded(found)])


def _file_outcomes(file: Path, probability: Collection[str]) -> Iterator[Outcome]:
    task, split = task_and_split(file)
    for number, (where, row) in enumerate(json_list(file)):
        prompt = wanted_text(row, "question", where)
        for model, score in _scores(row, where).items():
            value = share_right(score, f"scores of {model}", where)
            correct = float(value > 0) if task in probability else value
            yield Outcome(f"{file.stem}/{number}", prompt, model, correct, task=task or None, split=split)


def _scores(row: dict[str, Any], where: str) -> dict[str, Any]:
    scores = row.get("scores")
    if not isinstance(scores, dict) or not scores:
        raise L2DError(f"{where}: no scores; is it a file of RouterDC?")
    return scores


def _graded(found: RecordedOutcomes) -> list[str]:
    """A note on tasks whose scores are not shares of a few tries."""
    tasks = found.columns.get("task", [])
    scores = [cells for name, cells in found.columns.items() if name.startswith("correct_")]
    graded = [
        task
        for cells in scores
        for task, cell in zip(tasks, cells, strict=False)
        if cell is not None and abs(TRIES * cell - round(TRIES * cell)) >= 1e-6
    ]
    named = " ".join(sorted(set(graded)))
    note = f"scores are not shares of {TRIES} tries in {named}: if any above 0 is right, --probability {named}"
    return [note] if named else []
