"""MMLU (Hendrycks et al. 2021): multiple-choice questions by subject, from the hub or from a file."""

from pathlib import Path

import numpy as np

from l2d.data.sets.outcomes import OUTCOMES, Expert
from l2d.data.sets.table import Table
from l2d.data.sheet import Sheet, write_sheet
from l2d.data.text.pretrained import Unreachable, is_kept, unreachable
from l2d.utils.errors import ParameterError
from l2d.utils.files import alone

LETTERS = ("A", "B", "C", "D")
HUB, HUB_FILE = "cais/mmlu", "all/test-00000-of-00001.parquet"


class MMLU(Table):
    """A table with prompt, subject and answer (A to D), or the hub's test set. Without outcomes, language models are asked."""

    def is_here(self, data_dir: Path) -> bool:
        return self.path is not None or fetched(data_dir).exists()

    def expert_names(self, data_dir: Path) -> list[str]:
        """Without a path as the config says, and nothing is fetched: the hub's questions have no columns of outcomes."""
        return super().expert_names(data_dir) if self.path is not None else self.named.experts or []

    def _file(self, data_dir: Path) -> Path:
        if self.path is not None:
            return super()._file(data_dir)
        file = fetched(data_dir)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            with alone(file.with_suffix(".lock"), "waiting for another process to fetch MMLU"):
                if not file.exists():
                    write_sheet(file, hub_questions())
        return file

    def _experts(self, sheet: Sheet) -> list[Expert]:
        columns = [name for name in sheet.names if name.startswith(tuple(f"{kind}_" for kind in OUTCOMES))]
        experts = super()._experts(sheet) if self.named.experts is not None or columns else []
        if self._by_subject and (not experts or any(expert.outcome == "prediction" for expert in experts)):
            problem = "models answer with letters, not with these labels; use label=answer, or a file with columns correct_NAME"
            raise ParameterError("label", problem, self.named.label)
        return experts

    @property
    def _by_subject(self) -> bool:
        return self.named.label is not None and self.named.label == self.named.category

    def _labels(self, sheet: Sheet, words: list[str] | None) -> tuple[np.ndarray, int]:
        """All four letters, even if some do not occur: a model's answer is a letter too. Or subjects, if they are the label."""
        if self._by_subject:
            return super()._labels(sheet, words)
        if self.named.label is None or words is None:
            raise ParameterError("label", "missing; name the column of the right letters, label=answer")
        wrong = np.array([word not in LETTERS for word in words])
        sheet.refuse(self.named.label, f"none of {', '.join(LETTERS)}", wrong)
        return np.array([LETTERS.index(word) for word in words]), len(LETTERS)


def fetched(data_dir: Path) -> Path:
    return data_dir / "mmlu" / "questions.parquet"


def hub_questions() -> dict[str, list[str]]:
    from huggingface_hub import hf_hub_download
    from pyarrow import parquet

    try:
        if not is_kept(HUB, HUB_FILE, repo_type="dataset") and (why := unreachable(HUB, HUB_FILE, repo_type="dataset")):
            raise Unreachable(why)
        rows = parquet.read_table(hf_hub_download(HUB, HUB_FILE, repo_type="dataset")).to_pylist()
    except Exception as error:  # the hub's client raises a dozen types
        why = str(error) if isinstance(error, Unreachable) else type(error).__name__
        problem = f"missing, and {HUB} could not be fetched: {why}; give a file with columns prompt, subject and answer"
        raise ParameterError("path", problem) from error
    return {
        "id": [str(number) for number in range(len(rows))],
        "subject": [row["subject"] for row in rows],
        "prompt": ["\n".join([row["question"], *map("{}. {}".format, LETTERS, row["choices"])]) for row in rows],
        "answer": [LETTERS[row["answer"]] for row in rows],
    }
