"""Bring your own: a CSV or Parquet file with a row per example and a column per expert.

Light: torch is imported by `load` alone, so that a finished run is recognised at once.
"""

import hashlib
import sys
from pathlib import Path
from typing import Literal

import numpy as np

from l2d.data.arrays import Arrays, Seen, divided_arrays
from l2d.data.sets.outcomes import OUTCOMES, PRICE, Expert, find_experts
from l2d.data.sheet import Sheet, cell_number, file_problem, listed, read_header, read_sheet
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Annotated, Ge, Name, ProperShare

GIVES_AWAY = ("label", "target", "answer")  # columns that are hardly meant for the router


class Table:
    """Experts are the columns correct_NAME, prediction_NAME and cost_NAME; or the columns in `experts`, which all hold `outcome`.
    price_NAME is what an expert costs on each row.

    features, text, image: the columns a router sees. If none is named, it sees every numeric column that has no other role and is
    not called id. split: a column with train, test and perhaps validation; without it `test_fraction` of the rows are the test
    split, the same for every seed, and rows with the same text stay on one side. category: a column by which results are broken
    down; only: the categories to keep.
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
        self.experts, self.features = _column_names("experts", experts), _column_names("features", features)
        self.only = _column_names("only", only)
        self.text, self.image, self.label, self.category, self.split = (
            None if column is None else str(column) for column in (text, image, label, category, split)
        )
        self.encoder, self.outcome, self.image_size, self.test_fraction = encoder, outcome, image_size, test_fraction

    def fingerprint(self, data_dir: Path) -> str:
        """Of the file's bytes, and of the encoder that reads its text. Images that it names may change unnoticed."""
        file = self._file(data_dir)
        reads = self.encoder.identity() if self.encoder is not None and self.text is not None else ""
        try:
            return hashlib.sha256(file.read_bytes() + reads.encode()).hexdigest()[:16]
        except OSError as error:
            raise ParameterError("path", f"cannot be read ({error.strerror})", file) from error

    def expert_names(self, data_dir: Path) -> list[str]:
        """Off the file's header alone."""
        return [expert.name for expert in self._experts(read_header(self._file(data_dir)))]

    def load(self, data_dir: Path) -> Arrays:
        import torch

        from l2d.data.sets import table_arrays

        sheet = self._rows(read_sheet(self._file(data_dir), self._texts))
        experts = self._experts(sheet)
        roles = self._roles(sheet, experts)
        seen = Seen(tuple(self._features(sheet, roles)), self.text, self.image)
        words = None if self.label is None else sheet.words(self.label)
        numbers, num_classes = self._labels(sheet, words)
        labels = torch.from_numpy(numbers)
        texts = None if self.text is None else sheet.texts(self.text)
        groups = table_arrays.row_groups(texts, len(sheet))
        validation = None
        if self.split is None:
            train, test = table_arrays.drawn_test_rows(sheet, labels, groups, self.test_fraction)
        else:
            train, test, validation = table_arrays.rows_of_split_column(sheet, self.split, groups)
        inputs = table_arrays.table_inputs(sheet, seen, self.image_size, self.encoder, data_dir)
        self._describe(sheet, experts, [*seen.features, *self._texts], roles)
        return divided_arrays(
            inputs,
            labels,
            num_classes,
            train=train,
            test=test,
            validation=validation,
            experts=tuple(expert.name for expert in experts),
            answers=table_arrays.table_answers(sheet, experts, words) if experts else None,
            groups=groups,
            categories=None if self.category is None else sheet.words(self.category),
            texts=texts,
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
        """Those of the categories to keep."""
        refuse_repeated_ids(sheet)
        if self.category is None:
            return sheet
        sheet.check_column("category", self.category)
        if self.only is None:
            return sheet
        found = sheet.words(self.category)
        if unknown := [name for name in self.only if name not in found]:
            raise ParameterError(
                "only", f"no row has {self.category}={unknown[0]}; there are {listed(sorted(set(found)))}", unknown[0]
            )
        return sheet.take(np.array([category in self.only for category in found]))

    def _experts(self, sheet: Sheet) -> list[Expert]:
        return find_experts(sheet, self.experts, self.outcome)

    def _labels(self, sheet: Sheet, words: list[str] | None) -> tuple[np.ndarray, int]:
        """int64 [n] and how many classes there are."""
        return class_numbers(words, len(sheet))

    def _roles(self, sheet: Sheet, experts: list[Expert]) -> dict[str, str]:
        """{column: what it is}, of those that a router must not see."""
        roles = {expert.column: f"what {expert.name} did" for expert in experts}
        for role, column in (("label", self.label), ("category", self.category), ("split", self.split)):
            if column is None:
                continue
            sheet.check_column(role, column)
            if role == "category" and column == self.label:  # results may be broken down by the label
                continue
            if column in roles:
                raise ParameterError(role, f"that column is {roles[column]} already", column)
            roles[column] = f"the {role}"
        return roles

    def _features(self, sheet: Sheet, roles: dict[str, str]) -> list[str]:
        """The columns of numbers that a router sees."""
        named = [("text", self.text), ("image", self.image), *(("features", name) for name in self.features or [])]
        for parameter, column in named:
            if column is None:
                continue
            sheet.check_column(parameter, column)
            if column in roles:
                raise ParameterError(parameter, f"that is {roles[column]}, which a router must not see", column)
        found = self.features or []
        if self.features is None and not self._texts:
            found = self._free_features(sheet, roles)
        if not found and not self._texts:
            raise ParameterError(
                "features", "no numeric column is left for a router to see; name some, or text or image"
            )
        return found

    def _free_features(self, sheet: Sheet, roles: dict[str, str]) -> list[str]:
        if self.experts is not None and not all(name.startswith(f"{self.outcome}_") for name in self.experts):
            raise ParameterError(
                "features",
                "missing; say which columns the router may see, since the outcomes of experts that are not in `experts` look"
                " like any other number",
            )
        free = [name for name in sheet.names if name not in roles and may_be_input(name) and sheet.is_numeric(name)]
        if telling := [name for name in free if name.lower() in GIVES_AWAY]:
            raise ParameterError(
                "features", f"the router would see column {telling[0]}; say label={telling[0]}, or list the features"
            )
        return free

    def _describe(self, sheet: Sheet, experts: list[Expert], inputs: list[str], roles: dict[str, str]) -> None:
        """Print what each column was taken for: one that gives the answer away is easily overlooked."""
        prices = [f"{PRICE}{expert.name}" for expert in experts]
        rest = [name for name in sheet.names if name not in (*inputs, *roles, *prices)]
        kinds = ", ".join(f"{expert.name} ({expert.outcome})" for expert in experts)
        unused = f"; not used: {listed(rest)}" if rest else ""
        print(
            f"{sheet.path}: {len(sheet):,} rows; experts: {kinds}; the router sees: {listed(inputs, 60)}{unused}",
            file=sys.stderr,
        )


def _column_names(parameter: str, columns: list[str | int] | None) -> list[str] | None:
    if columns is None:
        return None
    names = [str(column) for column in columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ParameterError(parameter, f"names {listed(twice)} more than once")
    return names


def may_be_input(column: str) -> bool:
    """Not ids, nor outcomes and prices of experts that were left out, nor what is known only after the answer."""
    known_later = (
        "answer_",
        "probability_",
        "tokens_",
        "seconds_",
    )  # in the tables that language models' answers are kept in
    return column.lower() != "id" and not column.startswith(
        (PRICE, *known_later, *(f"{outcome}_" for outcome in OUTCOMES))
    )


def class_numbers(words: list[str] | None, n: int) -> tuple[np.ndarray, int]:
    """Labels as 0, 1, … (numbers by size, then words), int64 [n], and how many classes there are; −1 and 0 without labels."""
    if words is None:
        return np.full(n, -1), 0
    classes = {word: k for k, word in enumerate(sorted(set(words), key=_in_order))}
    return np.array([classes[word] for word in words]), len(classes)


def _in_order(word: str) -> tuple[bool, float, str]:
    """Numbers first, by size: 10 comes after 9."""
    value = cell_number(word)
    return value != value, 0.0 if value != value else value, word


def refuse_repeated_ids(sheet: Sheet) -> None:
    """A row that is there twice might be trained on and tested on."""
    if "id" not in sheet.columns:
        return
    ids = np.array([str(value.as_py()) for value in sheet.columns["id"]])
    repeated = np.ones(len(ids), dtype=bool)
    repeated[np.unique(ids, return_index=True)[1]] = False
    sheet.refuse("id", "an id that an earlier row has (rename the column if it does not identify rows)", repeated)
