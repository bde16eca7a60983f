"""MMLU (Hendrycks et al. 2021): multiple-choice questions by subject, from the hub or from a file."""

from pathlib import Path

import numpy as np

from l2d.data.sets.outcomes import OUTCOMES, Expert
from l2d.data.sets.table import Table
from l2d.data.sheet import Sheet
from l2d.data.text.pretrained import Unreachable, is_kept, unreachable
from l2d.utils.errors import ParameterError
from l2d.utils.files import alone, write_atomically

LETTERS = ("A", "B", "C", "D")
HUB, HUB_FILE = "cais/mmlu", "all/test-00000-of-00001.parquet"


class MMLU(Table):
    """A table with the columns prompt, subject and answer (A to D). Without a path: the hub's test set, fetched once.

    Columns of outcomes are named in `experts`, or are called correct_NAME, prediction_NAME or cost_NAME. Without any, there are no
    answers yet: language models are asked.
    """

    def _file(self, data_dir: Path) -> Path:
        if self.path is not None:
            return super()._file(data_dir)
        file = data_dir / "mmlu" / "questions.parquet"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with alone(file.with_suffix(".lock"), "waiting for another process to fetch MMLU"):
                if not file.exists():
                    write_questions(hub_rows(), file)
        return file

    def _experts(self, sheet: Sheet) -> list[Expert]:
        columns = [name for name in sheet.names if name.startswith(tuple(f"{kind}_" for kind in OUTCOMES))]
        experts = super()._experts(sheet) if self.experts is not None or columns else []
        if self._by_subject and (not experts or any(expert.outcome == "prediction" for expert in experts)):
            raise ParameterError(
                "label",
                "models answer with letters, which cannot be compared with it; use label=answer, or a file that says where"
                " each model is right (columns correct_NAME)",
                self.label,
            )
        return experts

    @property
    def _by_subject(self) -> bool:
        return self.label is not None and self.label == self.category

    def _labels(self, sheet: Sheet, words: list[str] | None) -> tuple[np.ndarray, int]:
        """All four letters, even if some do not occur: a model's answer is a letter too. Or subjects, if they are the label."""
        if self._by_subject:
            return super()._labels(sheet, words)
        if self.label is None or words is None:
            raise ParameterError("label", "missing; name the column of the right letters, label=answer")
        sheet.refuse(self.label, f"none of {', '.join(LETTERS)}", np.array([word not in LETTERS for word in words]))
        return np.array([LETTERS.index(word) for word in words]), len(LETTERS)


def multiple_choice_prompt(question: str, choices: list[str]) -> str:
    return "\n".join([question, *(f"{letter}. {choice}" for letter, choice in zip(LETTERS, choices, strict=True))])


def hub_rows() -> list[dict[str, str]]:
    """The hub's test set as id, subject, prompt and answer."""
    from huggingface_hub import hf_hub_download
    from pyarrow import parquet

    try:
        if not is_kept(HUB, HUB_FILE, repo_type="dataset") and (why := unreachable(HUB, HUB_FILE, repo_type="dataset")):
            raise Unreachable(why)
        rows = parquet.read_table(hf_hub_download(HUB, HUB_FILE, repo_type="dataset")).to_pylist()
    except Exception as error:  # the hub's client has a dozen kinds
        why = str(error) if isinstance(error, Unreachable) else type(error).__name__
        raise ParameterError(
            "path",
            f"missing, and {HUB} could not be fetched: {why}; give a CSV or Parquet file with the columns prompt, subject"
            " and answer",
        ) from error
    return [
        {
            "id": str(number),
            "subject": row["subject"],
            "prompt": multiple_choice_prompt(row["question"], row["choices"]),
            "answer": LETTERS[row["answer"]],
        }
        for number, row in enumerate(rows)
    ]


def write_questions(rows: list[dict[str, str]], file: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    write_atomically(file, lambda path: parquet.write_table(pa.Table.from_pylist(rows), path))
