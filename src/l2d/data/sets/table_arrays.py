"""The rows of a table as tensors: inputs, answers of the experts, and splits."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from l2d.data.arrays import Answers, Seen
from l2d.data.inputs import sheet_inputs
from l2d.data.sets.outcomes import Expert, errors_of, prices_of
from l2d.data.sheet import Sheet
from l2d.data.splits import draw_whole_groups, groups_of_equal_texts, stratified_split
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import ParameterError, under

SPLIT_WORDS = {"train": "train", "test": "test", **dict.fromkeys(("validation", "val", "valid", "dev"), "validation")}


def table_inputs(sheet: Sheet, seen: Seen, image_size: int, encoder: Encoder | None, data_dir: Path) -> Tensor:
    """As sheet_inputs. The encoder may keep in data_dir what takes long."""

    def embed(texts: Sequence[str]) -> np.ndarray:
        assert encoder is not None  # a table with text has one
        with under("encoder"):
            return encoder.encode(texts, data_dir)

    return sheet_inputs(sheet, seen, (image_size, image_size, 3), embed)


def table_answers(sheet: Sheet, experts: list[Expert], labels: list[str] | None) -> Answers:
    prices = prices_of(sheet, experts)
    errors = torch.from_numpy(errors_of(sheet, experts, labels))
    return Answers(errors, None, None if prices is None else torch.from_numpy(prices))


def row_groups(texts: list[str] | None, n: int) -> Tensor:
    """Rows with the same text are one group; without texts every row is its own."""
    return torch.arange(n) if texts is None else groups_of_equal_texts(texts)


def drawn_test_rows(sheet: Sheet, labels: Tensor, groups: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Rows (training, test), the same for every seed."""
    if "split" in sheet.columns:
        raise ParameterError("split", "the table has a column split; say split=split, or rename the column")

    def draw(labels: Tensor) -> tuple[Tensor, Tensor]:
        return stratified_split(labels, fraction, seed=0, parameter="test_fraction", strict=False)

    return draw_whole_groups(draw, labels, groups)


def rows_of_split_column(sheet: Sheet, column: str, groups: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Rows of training and validation, rows of test, and which of the former are validation, if any."""
    words = [word.lower() for word in sheet.words(column)]
    sheet.refuse(column, f"none of {', '.join(SPLIT_WORDS)}", np.array([word not in SPLIT_WORDS for word in words]))
    said = np.array([SPLIT_WORDS[word] for word in words])
    for need in ("train", "test"):
        if need not in said:
            raise ParameterError("split", f"no row is {need}; there are {', '.join(sorted(set(said)))}", column)
    _warn_of_repeats(column, groups, said)
    rows, test = np.flatnonzero(said != "test"), np.flatnonzero(said == "test")
    validation = torch.from_numpy(np.flatnonzero(said[rows] == "validation"))
    return torch.from_numpy(rows), torch.from_numpy(test), validation if len(validation) else None


def _warn_of_repeats(column: str, groups: Tensor, said: np.ndarray) -> None:
    trained = {int(group) for group in groups[torch.from_numpy(np.flatnonzero(said == "train"))]}
    again = [int(group) in trained for group, part in zip(groups, said, strict=True) if part == "test"]
    if any(again):
        print(
            f"warning: split={column}: {sum(again):,} of {len(again):,} test rows have the text of a training row",
            file=sys.stderr,
        )
