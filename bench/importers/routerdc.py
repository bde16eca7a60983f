"""RouterDC's JSON (Chen et al. 2024): a list of questions with a score per model. LLMRouter's preprocessed files are alike."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from importers.outcomes import Outcome, check_splits, json_list, outcome_table, task_and_split, wanted_text
from l2d.data.importers.recorded import RecordedOutcomes, share_right
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import listed


def routerdc_outcomes(files: Sequence[Path], probability: Collection[str] = ()) -> RecordedOutcomes:
    """A file's name is its task and its split. probability: tasks whose scores are the chance of the right answer, and 0 if
    another answer was likelier; any score above 0 is then right, as in RouterDC's evaluation."""
    check_splits(files)
    tasks = [task_and_split(file)[0] for file in files]
    if unknown := [task for task in probability if task not in tasks]:
        problem = f"no file of this task; there are {listed(sorted(set(tasks)))}"
        raise ParameterError("probability", problem, listed(unknown))
    return outcome_table(one for file in files for one in _file_outcomes(file, probability))


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
