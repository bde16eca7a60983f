"""MMLU (Hendrycks et al. 2021): multiple-choice questions by subject, from the hub or a file of one's own."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.data.sets.outcomes import OUTCOMES, Expert
from l2d.data.sets.table import Table
from l2d.data.sheet import Sheet
from l2d.data.text.pretrained import Unreachable, is_kept, unreachable
from l2d.utils.errors import L2DError
from l2d.utils.files import alone, write_atomically

LETTERS = ("A", "B", "C", "D")
HUB, HUB_FILE = "cais/mmlu", "all/test-00000-of-00001.parquet"


class MMLU(Table):
    """A table with the columns prompt, subject and answer (A to D). path null: the questions of the hub's test set, fetched once.

    Columns of outcomes, where the file has them, are named by the setup (setup=llama) or in dataset.experts; without any, the
    models of experts=llm are run on the questions.
    """

    def fingerprint(self, data_dir: Path) -> str:
        self._fetch(data_dir)
        return super().fingerprint(data_dir)

    def load(self, data_dir: Path) -> Any:
        self._fetch(data_dir)
        return super().load(data_dir)

    def _fetch(self, data_dir: Path) -> None:
        if self.path is not None:
            return
        file = data_dir / "mmlu" / "questions.parquet"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with alone(file.with_suffix(".lock"), "waiting for another process to fetch MMLU"):
                if not file.exists():
                    write_questions(hub_rows(), file)
        self.path = file

    def _experts(self, sheet: Sheet) -> list[Expert]:
        columns = [name for name in sheet.names if name.startswith(tuple(f"{kind}_" for kind in OUTCOMES))]
        experts = super()._experts(sheet) if self.experts is not None or columns else []
        if self._by_subject and (not experts or any(expert.outcome == "prediction" for expert in experts)):
            raise L2DError(
                f"dataset.label={self.label}: what models say is held against the right letters; use dataset.label=answer,"
                " or a file that says where each is right (columns correct_NAME)"
            )
        return experts

    @property
    def _by_subject(self) -> bool:
        return self.label is not None and self.label == self.category

    def _labels(self, sheet: Sheet, words: list[str] | None) -> tuple[Tensor, int]:
        """By letter, whichever letters there are: a model's answer is a letter too. Or by subject, where that is the label."""
        if self._by_subject:
            return super()._labels(sheet, words)
        if self.label is None or words is None:
            raise L2DError("dataset.label: missing; the right letters are in a column, dataset.label=answer")
        sheet.refuse(self.label, f"none of {', '.join(LETTERS)}", np.array([word not in LETTERS for word in words]))
        return torch.tensor([LETTERS.index(word) for word in words]), len(LETTERS)


def prompt(question: str, choices: list[str]) -> str:
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
        raise L2DError(
            f"dataset.path: {HUB} could not be fetched from the hub ({type(error).__name__}); give a CSV or Parquet file with"
            " the columns prompt, subject and answer, dataset.path=mmlu.csv"
        ) from error
    return [
        {
            "id": str(number),
            "subject": row["subject"],
            "prompt": prompt(row["question"], row["choices"]),
            "answer": LETTERS[row["answer"]],
        }
        for number, row in enumerate(rows)
    ]


def write_questions(rows: list[dict[str, str]], file: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    write_atomically(file, lambda path: parquet.write_table(pa.Table.from_pylist(rows), path))
