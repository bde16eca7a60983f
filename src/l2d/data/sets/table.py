"""Bring your own: a CSV or Parquet file with a row per example and a column per expert. Light: only `load`
imports torch, so that a finished run is recognised at once."""

from __future__ import annotations

import hashlib
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from l2d.data.arrays import Arrays, Seen, divided_arrays
from l2d.data.sets.outcomes import OUTCOMES, PRICE, Expert, answers_of, class_numbers, find_experts
from l2d.data.sheet import Sheet, file_problem, read_header, read_sheet, release_unused
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import ParameterError, under
from l2d.utils.parameters import Annotated, Ge, Name, ProperShare
from l2d.utils.text import counted, listed

if TYPE_CHECKING:
    from torch import Tensor

GIVES_AWAY = ("label", "target", "answer")  # columns that probably leak the answer
# Columns that a router sees only if they are named: outcomes and prices of experts, and what is known only after the answer.
AFTERWARDS = (
    *(PRICE, "answer_", "probability_", "tokens_", "seconds_", "latency_"),
    *(f"{outcome}_" for outcome in OUTCOMES),
)
ID = re.compile(r".+_id|(.+_)?uuid", re.IGNORECASE)  # names of columns that may only number the rows


def is_id(sheet: Sheet, column: str) -> bool:
    """Whether it is called request_id or the like, and differs in every row. (A column called id is one, whatever it holds.)"""
    return ID.fullmatch(column) is not None and sheet.all_differ(column)


class Table:
    """Experts are the columns correct_NAME, prediction_NAME and cost_NAME; or the columns in `experts`, which all hold `outcome`.
    price_NAME is what an expert costs on each row.

    features, text, image: the columns a router sees. If none is named, it sees every numeric column that has no other role and is
    no id. split: a column with train, test and perhaps validation; without it `test_fraction` of the rows are the test split, the
    same for every seed, and rows with the same text stay on one side. category: a column by which results are broken down; only:
    the categories to keep.
    """

    def __init__(
        self,
        *,
        path: str | None,
        experts: list[Name] | None,
        outcome: Literal["correct", "prediction", "cost"],
        features: list[Name] | None,
        text: Name | None,
        encoder: Encoder | None,
        image: Name | None,
        image_size: Annotated[int, Ge(8)],
        label: Name | None,
        category: Name | None,
        only: list[Name] | None,
        split: Name | None,
        test_fraction: ProperShare,
    ) -> None:
        if experts is None and outcome != "correct":
            raise ParameterError("outcome", "says what the columns in `experts` hold; name them there", outcome)
        if image is not None and (features or text is not None):
            raise ParameterError("image", "a router sees images, or features and text; name only one of them", image)
        if text is not None and encoder is None:
            raise ParameterError("text", "this router does not read text; choose a router that does", text)
        if only is not None and category is None:
            raise ParameterError("only", "needs a column of categories; name it in `category`", only)
        self.path = None if path is None else Path(path).expanduser()
        self.experts, self.features, self.only = (
            None if names is None else [str(name) for name in names] for names in (experts, features, only)
        )
        self.text, self.image, self.label, self.category, self.split = (
            None if column is None else str(column) for column in (text, image, label, category, split)
        )
        self.encoder, self.outcome, self.image_size, self.test_fraction = encoder, outcome, image_size, test_fraction

    @property
    def gives(self) -> str | None:
        """The kind of a router's inputs, if the columns alone determine it."""
        return "images" if self.image is not None else "rows" if self.text is None else None

    @property
    def divisible(self) -> bool:
        """Whether the test rows are drawn, so that every row could be a test row once."""
        return self.split is None

    def fingerprint(self, data_dir: Path) -> str:
        """Of the file's bytes, and of the encoder that reads its text. Changes to the images that it names go unnoticed."""
        reads = self.encoder.identity() if self.encoder is not None and self.text is not None else ""
        return hashlib.sha256(self._file(data_dir).read_bytes() + reads.encode()).hexdigest()[:16]

    def expert_names(self, data_dir: Path) -> list[str]:
        """Only from the file's header."""
        return [expert.name for expert in self._experts(read_header(self._file(data_dir)))]

    def load(self, data_dir: Path) -> Arrays:
        arrays = self._load(data_dir)
        release_unused()  # of the sheet, which is gone now
        return arrays

    def _load(self, data_dir: Path) -> Arrays:
        import torch

        from l2d.data.inputs import sheet_inputs
        from l2d.data.splits import groups_of_equal_texts

        sheet = self._rows(read_sheet(self._file(data_dir), self._texts))
        experts = self._experts(sheet)
        roles = self._roles(sheet, experts)
        seen = Seen(tuple(self._features(sheet, roles)), self.text, self.image)
        words = None if self.label is None else sheet.words(self.label)
        classes, num_classes = self._labels(sheet, words)
        texts = None if self.text is None else sheet.texts(self.text)
        # A text that is the category repeats by its nature: its rows may be on both sides of a split.
        groups = None if texts is None or self.text == self.category else groups_of_equal_texts(texts)
        train, test, validation = self._divided(sheet, torch.from_numpy(classes), groups)
        size = (self.image_size, self.image_size, 3)
        with under("encoder"):  # a table with text has one
            inputs = sheet_inputs(sheet, seen, size, lambda texts: self.encoder.encode(texts, data_dir))  # type: ignore[union-attr]
        self._describe(sheet, experts, [*seen.features, *self._texts], roles, groups)
        return divided_arrays(
            inputs,
            torch.from_numpy(classes),
            num_classes,
            train=train,
            test=test,
            validation=validation,
            experts=tuple(expert.name for expert in experts),
            answers=answers_of(sheet, experts, words) if experts else None,
            groups=groups,
            categories=None if self.category is None else sheet.words(self.category),
            # Only for asking language models: outcomes in the table leave nothing to ask.
            texts=None if experts else texts,
            seen=seen,
        )

    @property
    def _texts(self) -> list[str]:
        return [column for column in (self.text, self.image) if column is not None]

    def _file(self, data_dir: Path) -> Path:  # noqa: ARG002 (the path says where)
        if self.path is None:
            raise ParameterError("path", "missing; give a .csv or .parquet file")
        if problem := file_problem(self.path):
            raise ParameterError("path", problem, self.path)
        return self.path

    def _rows(self, sheet: Sheet) -> Sheet:
        """The rows of the categories to keep. Duplicate ids are refused: a row could be in both the training and the test split."""
        if "id" in sheet.columns:
            ids = [str(value) for value in sheet.columns["id"].to_pylist()]
            repeated = ~np.isin(np.arange(len(ids)), np.unique(ids, return_index=True)[1])
            sheet.refuse("id", "an id that an earlier row has (rename the column if it is not an id)", repeated)
        if self.category is None or self.only is None:
            return sheet
        sheet.check_column("category", self.category)
        found = sheet.words(self.category)
        if unknown := [name for name in self.only if name not in found]:
            problem = f"no row has {self.category}={unknown[0]}; there are {listed(sorted(set(found)))}"
            raise ParameterError("only", problem, unknown[0])
        return sheet.take(np.array([category in self.only for category in found]))

    def _divided(self, sheet: Sheet, labels: Tensor, groups: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Training and validation rows, test rows (the same for every seed), and which of the former are validation rows."""
        from l2d.data.splits import draw_whole_groups, rows_of_split_column, stratified_split

        if self.split is not None:
            return rows_of_split_column(sheet, self.split, groups)
        if "split" in sheet.columns:
            raise ParameterError("split", "the table has a column split; say split=split, or rename the column")
        draw = partial(stratified_split, fraction=self.test_fraction, seed=0, parameter="test_fraction", strict=False)
        return *draw_whole_groups(draw, labels, groups), None

    def _experts(self, sheet: Sheet) -> list[Expert]:
        return find_experts(sheet, self.experts, self.outcome)

    def _labels(self, sheet: Sheet, words: list[str] | None) -> tuple[np.ndarray, int]:
        """int64 [n] and how many classes there are."""
        return class_numbers(words, len(sheet))

    def _roles(self, sheet: Sheet, experts: list[Expert]) -> dict[str, str]:
        """{column: its role}, for columns that a router must not see."""
        roles = {expert.column: f"what {expert.name} did" for expert in experts}
        for role, column in (("label", self.label), ("category", self.category), ("split", self.split)):
            if column is None or (role == "category" and column == self.label):  # both at once is fine
                continue
            sheet.check_column(role, column)
            if column in roles:
                raise ParameterError(role, f"that column is {roles[column]} already", column)
            roles[column] = f"the {role}"
        return roles

    def _features(self, sheet: Sheet, roles: dict[str, str]) -> list[str]:
        """The columns of numbers that a router sees."""
        named = [("text", self.text), ("image", self.image), *(("features", name) for name in self.features or [])]
        for parameter, column in named:
            if column is not None:
                sheet.check_column(parameter, column)
                if column in roles and not (parameter == "text" and roles[column] == "the category"):
                    raise ParameterError(parameter, f"that is {roles[column]}, which a router must not see", column)
        by_name = self.features is not None or self._texts
        found = self.features or [] if by_name else self._free_features(sheet, roles)
        if not found and not self._texts:
            raise ParameterError("features", "no numeric column is left for the router; name some, or text or image")
        return found

    def _free_features(self, sheet: Sheet, roles: dict[str, str]) -> list[str]:
        if self.experts is not None and not all(name.startswith(f"{self.outcome}_") for name in self.experts):
            problem = "missing; name them, since outcomes of experts that are not listed would count as features"
            raise ParameterError("features", problem)
        others = [name for name in sheet.names if name not in roles and name.lower() != "id"]
        free = [name for name in others if not name.lower().startswith(AFTERWARDS) and sheet.is_numeric(name)]
        free = [name for name in free if not is_id(sheet, name)]
        if telling := [name for name in free if name.lower() in GIVES_AWAY]:
            problem = f"the router would see column {telling[0]}; say label={telling[0]}, or list the features"
            raise ParameterError("features", problem)
        return free

    def _describe(
        self, sheet: Sheet, experts: list[Expert], inputs: list[str], roles: dict[str, str], groups: Tensor | None
    ) -> None:
        """Print how each column is used: one that leaks the answer is easily overlooked. groups: of equal texts."""
        prices = [f"{PRICE}{expert.name}" for expert in experts]
        rest = [name for name in sheet.names if name not in (*inputs, *roles, *prices)]
        kinds = ", ".join(f"{expert.name} ({expert.outcome})" for expert in experts)
        seen = listed(inputs, 60) + (f"; not used: {listed(rest)}" if rest else "")
        priced = [name for name in prices if name in sheet.names]
        seen += f"; prices: {listed(priced)} (they count with cost=columns)" if priced else ""
        if not self._texts and self.features is None:
            seen += self._overlooked(sheet, [name for name in rest if not name.lower().startswith(AFTERWARDS)])
        if self.split is None and groups is not None and (again := len(groups) - len(groups.unique())):
            seen += f"; {counted(again, 'row')} with the text of an earlier row, on the same side of the split"
        rows = counted(len(sheet), "row")
        print(f"{sheet.path}: {rows}; experts: {kinds}; the router sees: {seen}", file=sys.stderr)

    def _overlooked(self, sheet: Sheet, unused: list[str]) -> str:
        """How to use columns that the router does not see if none is named: ids that are numbers, and a text."""
        ids = [name for name in unused if is_id(sheet, name) and sheet.is_numeric(name)]
        said = "".join(
            f"; {name} differs in every row, like an id: to use it, list it in dataset.features" for name in ids
        )
        prose = [name for name in unused if self.encoder is not None and sheet.is_prose(name)]
        return said + "".join(f"; {name} looks like text: read it with dataset.text={name}" for name in prose[:1])
