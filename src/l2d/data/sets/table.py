"""Bring your own: a CSV or Parquet file with a row per example and a column per expert."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from l2d.data.arrays import Arrays, Panel, Seen, alike, stratified_split, together
from l2d.data.inputs import sheet_inputs
from l2d.data.sets.outcomes import OUTCOMES, PRICE, Expert, answers_of, find_experts
from l2d.data.sheet import Sheet, check_file, listed, number, read_sheet
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import L2DError, check_choice

SPLITS = {"train": "train", "test": "test", **dict.fromkeys(("validation", "val", "valid", "dev"), "validation")}
TELLING = ("label", "target", "answer")  # columns that are hardly meant for the router


class Table:
    """Experts are the columns correct_NAME, prediction_NAME and cost_NAME; or the columns in `experts`, which all hold `outcome`.
    price_NAME is what an expert takes for each row.

    features, text, image: the columns a router sees; with none of them named, every numeric column that has no other part and is
    not called id. split: a column with train, test and perhaps validation; without it `test_fraction` of the rows are the test
    split, the same whatever the run's seed; rows with the same text are never on two sides. category: a column by which results
    are broken down; only: the categories to keep.
    """

    def __init__(
        self,
        *,
        path: str | None,
        experts: Sequence[str] | None,
        outcome: str,
        features: Sequence[str] | None,
        text: str | None,
        encoder: Encoder | None,
        image: str | None,
        image_size: int,
        label: str | None,
        category: str | None,
        only: Sequence[str] | None,
        split: str | None,
        test_fraction: float,
    ) -> None:
        check_choice("dataset.outcome", outcome, OUTCOMES)
        if experts is None and outcome != "correct":
            raise L2DError(
                f"dataset.outcome={outcome}: says what the columns in dataset.experts hold, and none are named there"
            )
        if image_size < 8:
            raise L2DError(f"dataset.image_size={image_size}: must be at least 8")
        if not 0 < test_fraction < 1:
            raise L2DError(f"dataset.test_fraction={test_fraction}: must be between 0 and 1")
        if image is not None and (features or text is not None):
            raise L2DError(f"dataset.image={image}: images go without dataset.features and dataset.text")
        self.path = None if path is None else Path(str(path)).expanduser()
        self.experts, self.features = _names("dataset.experts", experts), _names("dataset.features", features)
        self.text, self.image, self.label, self.category, self.split = (
            None if column is None else str(column) for column in (text, image, label, category, split)
        )
        if only is not None and category is None:
            raise L2DError("dataset.only: says which categories are wanted, and dataset.category names no column")
        self.only, self.encoder = _names("dataset.only", only), encoder
        self.outcome, self.image_size, self.test_fraction = outcome, image_size, test_fraction

    def fingerprint(self, data_dir: Path) -> str:  # noqa: ARG002 (the path says where)
        """Of the file's bytes, and of the encoder that reads its text. Images that it names may change unnoticed."""
        file = self._file()
        reads = self.encoder.identity() if self.encoder is not None and self.text is not None else ""
        try:
            return hashlib.sha256(file.read_bytes() + reads.encode()).hexdigest()[:16]
        except OSError as error:
            raise L2DError(f"dataset.path={file}: cannot be read ({error.strerror})") from error

    def _file(self) -> Path:
        if self.path is None:
            raise L2DError("dataset.path: missing; give a .csv or .parquet file, dataset.path=my.csv")
        check_file(self.path)
        return self.path

    def load(self, data_dir: Path) -> Arrays:
        sheet = read_sheet(self._file(), [column for column in (self.text, self.image) if column is not None])
        refuse_repeated(sheet)
        categories = self._categories(sheet)
        if self.only is not None and categories is not None:
            kept = np.array([category in self.only for category in categories])
            sheet, categories = sheet.take(kept), [category for category in categories if category in self.only]
        experts = self._experts(sheet)
        taken = self._taken(sheet, experts)
        columns = self._features(sheet, taken)
        words = sheet.words(self.label) if self.label is not None else None
        labels, num_classes = self._labels(sheet, words)
        groups = torch.arange(len(sheet)) if self.text is None else alike(sheet.texts(self.text))
        train, test, validation = self._splits(sheet, labels, groups)
        seen = Seen(tuple(columns), self.text, self.image)
        inputs = self._inputs(sheet, seen, data_dir)
        self._say(sheet, experts, columns, taken)
        texts = None if self.text is None else sheet.texts(self.text)
        return Arrays(
            inputs[train],
            labels[train],
            inputs[test],
            labels[test],
            num_classes,
            validation=validation,
            panel=self._panel(sheet, experts, words, train, test) if experts else None,
            groups=groups[train],
            categories=None if categories is None else tuple(categories[row] for row in test.tolist()),
            train_categories=None if categories is None else tuple(categories[row] for row in train.tolist()),
            texts=None
            if texts is None
            else ([texts[row] for row in train.tolist()], [texts[row] for row in test.tolist()]),
            seen=seen,
        )

    def _experts(self, sheet: Sheet) -> list[Expert]:
        return find_experts(sheet, self.experts, self.outcome)

    def _labels(self, sheet: Sheet, words: list[str] | None) -> tuple[Tensor, int]:
        return encode(words, len(sheet))

    def _panel(
        self, sheet: Sheet, experts: list[Expert], words: list[str] | None, train: Tensor, test: Tensor
    ) -> Panel:
        answers = answers_of(sheet, experts, words)
        return Panel(tuple(expert.name for expert in experts), answers[train], answers[test])

    def _categories(self, sheet: Sheet) -> list[str] | None:
        if self.category is None:
            return None
        sheet.check("dataset.category", self.category)
        found = sheet.words(self.category)
        for name in self.only or []:
            if name not in found:
                raise L2DError(
                    f"dataset.only: no row has {self.category}={name}; there are {listed(sorted(set(found)))}"
                )
        return found

    def _taken(self, sheet: Sheet, experts: list[Expert]) -> dict[str, str]:
        """{column: what it is}, of those that a router must not see."""
        taken = {expert.column: f"what {expert.name} did" for expert in experts}
        for key, column in (("label", self.label), ("category", self.category), ("split", self.split)):
            if column is None:
                continue
            sheet.check(f"dataset.{key}", column)
            if key == "category" and column == self.label:  # a method may go by what results are broken down by
                continue
            if column in taken:
                raise L2DError(f"dataset.{key}={column}: that column is {taken[column]} already")
            taken[column] = f"the {key}"
        return taken

    def _features(self, sheet: Sheet, taken: dict[str, str]) -> list[str]:
        """The columns of numbers among the input."""
        named = [("text", self.text), ("image", self.image), *(("features", name) for name in self.features or [])]
        for key, column in named:
            if column is None:
                continue
            sheet.check(f"dataset.{key}", column)
            if column in taken:
                raise L2DError(f"dataset.{key}={column}: that is {taken[column]}, which a router must not see")
        if self.features is not None or self.text is not None or self.image is not None:
            return self.features or []
        if self.experts is not None and not all(name.startswith(f"{self.outcome}_") for name in self.experts):
            raise L2DError(
                "dataset.features: missing; with experts named in dataset.experts, say which columns the router may see:"
                " what other experts did looks like any other number"
            )
        free = [name for name in sheet.names if name not in taken and may_be_input(name) and sheet.is_numeric(name)]
        if telling := [name for name in free if name.lower() in TELLING]:
            raise L2DError(
                f"dataset.features: the router would see column {telling[0]}; say dataset.label={telling[0]}, or list the"
                " columns that it may see"
            )
        return free

    def _inputs(self, sheet: Sheet, seen: Seen, data_dir: Path) -> Tensor:
        if not seen.features and seen.text is None and seen.image is None:
            raise L2DError(
                "dataset.features: no numeric column is left for a router to see; name some, or dataset.text or dataset.image"
            )

        def embed(texts: Sequence[str]) -> np.ndarray:
            if self.encoder is None:
                raise L2DError(
                    f"dataset.text={self.text}: this router does not read text; use router=mlp, or router=minilm"
                )
            return self.encoder.encode(texts, data_dir)

        return sheet_inputs(sheet, seen, (self.image_size, self.image_size, 3), embed)

    def _splits(self, sheet: Sheet, labels: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Rows of training and validation, rows of test, and which of the former are validation, where a column says so."""
        if self.split is None:
            if "split" in sheet.columns:
                raise L2DError("dataset.split: the table has a column split; say dataset.split=split, or rename it")
            fraction = self.test_fraction

            def draw(labels: Tensor) -> tuple[Tensor, Tensor]:
                return stratified_split(labels, fraction, 0, key="dataset.test_fraction", strict=False)

            return *together(draw, labels, groups), None
        words = [word.lower() for word in sheet.words(self.split)]
        unknown = np.array([word not in SPLITS for word in words])
        sheet.refuse(self.split, f"none of {', '.join(SPLITS)}", unknown)
        said = np.array([SPLITS[word] for word in words])
        for need in ("train", "test"):
            if need not in said:
                raise L2DError(
                    f"dataset.split={self.split}: no row is {need}; there are {', '.join(sorted(set(said)))}"
                )
        seen = {int(group) for group in groups[torch.from_numpy(np.flatnonzero(said == "train"))]}
        again = [int(group) in seen for group, part in zip(groups, said, strict=True) if part == "test"]
        if any(again):
            print(
                f"warning: dataset.split={self.split}: {sum(again):,} of {len(again):,} test rows have the text of a training row",
                file=sys.stderr,
            )
        rows = np.flatnonzero(said != "test")
        validation = np.flatnonzero(said[rows] == "validation")
        train, test, held_out = (torch.from_numpy(part) for part in (rows, np.flatnonzero(said == "test"), validation))
        return train, test, held_out if len(held_out) else None

    def _say(self, sheet: Sheet, experts: list[Expert], columns: list[str], taken: dict[str, str]) -> None:
        """What was taken for what: a column that gives the answer away is easily overlooked."""
        inputs = [*columns, *(column for column in (self.text, self.image) if column is not None)]
        prices = [f"{PRICE}{expert.name}" for expert in experts]
        rest = [name for name in sheet.names if name not in (*inputs, *taken, *prices)]
        kinds = ", ".join(f"{expert.name} ({expert.outcome})" for expert in experts)
        unused = f"; not used: {listed(rest)}" if rest else ""
        print(
            f"{sheet.path}: {len(sheet):,} rows; experts: {kinds}; the router sees: {listed(inputs, 60)}{unused}",
            file=sys.stderr,
        )


def _names(key: str, columns: Sequence[str] | None) -> list[str] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise L2DError(f"{key}={columns}: must be a list of columns, '{key}=[a,b]'")
    names = [str(column) for column in columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise L2DError(f"{key}: names {listed(twice)} more than once")
    return names


def may_be_input(column: str) -> bool:
    """Outcomes and prices of experts that were left out tell on the others too; so does what is known only after the answer."""
    known_later = ("answer_", "probability_", "tokens_", "seconds_")  # of experts.table, which experts=llm writes
    return column.lower() != "id" and not column.startswith(
        (PRICE, *known_later, *(f"{outcome}_" for outcome in OUTCOMES))
    )


def encode(words: list[str] | None, n: int) -> tuple[Tensor, int]:
    """Labels as 0, 1, … in the order of the numbers or words, and how many there are; −1 and 0 where there are none."""
    if words is None:
        return torch.full((n,), -1), 0
    classes = {word: k for k, word in enumerate(sorted(set(words), key=_in_order))}
    return torch.tensor([classes[word] for word in words]), len(classes)


def _in_order(word: str) -> tuple[bool, float, str]:
    """Numbers first, by size: 10 comes after 9."""
    value = number(word)
    return value != value, 0.0 if value != value else value, word


def refuse_repeated(sheet: Sheet) -> None:
    """A row that is there twice may be trained on and tested on."""
    if "id" not in sheet.columns:
        return
    ids = np.array([str(value.as_py()) for value in sheet.columns["id"]])
    repeated = np.ones(len(ids), dtype=bool)
    repeated[np.unique(ids, return_index=True)[1]] = False
    sheet.refuse("id", "one that an earlier row has (call the column otherwise if it is no id of rows)", repeated)
