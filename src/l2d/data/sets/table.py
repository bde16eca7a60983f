"""Bring your own: a file with a row per example and a column per expert, or a log with a row per answer. Light: only `load` imports
torch, so that a finished run is recognised at once."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from l2d.data.arrays import NO_OUTCOME, Arrays, Seen, divided_arrays, with_kept_propensities
from l2d.data.sets.long_log import EXPERT, answer_columns, is_long, widened
from l2d.data.sets.outcomes import (
    LATENCY,
    MONEY,
    OUTCOMES,
    PROPENSITY,
    Expert,
    answers_of,
    class_numbers,
    find_experts,
    in_dollars,
    money_columns,
)
from l2d.data.sheet import Sheet, file_problem, missing, read_header, read_sheet, release_unused
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.parameters import Annotated, Ge, Name, ProperShare
from l2d.utils.text import Z, counted, listed

if TYPE_CHECKING:
    from torch import Tensor

GIVES_AWAY = ("label", "target", "answer")  # columns that probably leak the answer
# Columns that a router sees only if they are named: outcomes and prices of experts, and what is known only after the answer.
AFTERWARDS = (
    *(*MONEY, "answer_", "probability_", "tokens_", "seconds_", LATENCY, PROPENSITY),
    *(f"{outcome}_" for outcome in OUTCOMES),
)
LONGEST_ID = 100
LONG = 300  # seconds that hardly any answer takes
ID = re.compile(r"(.+_)?(id|uuid)", re.IGNORECASE)  # names of columns whose numbers say which one, not how much


def is_id(column: str) -> bool:
    return ID.fullmatch(column) is not None


def asked_rows(sheet: Sheet, experts: list[Expert], chosen: bool) -> Sheet:
    """Without the rows on which no expert was asked. chosen: whether the user chose the experts, so others may have been."""
    if not experts:
        return sheet
    asked = ~np.logical_and.reduce([missing(sheet.columns[expert.column]) for expert in experts])
    if asked.all():
        return sheet
    if not asked.any():
        raise L2DError(f"{sheet.path}: no row has an outcome of any expert")
    said = f"an outcome of {listed([expert.name for expert in experts])}" if chosen else NO_OUTCOME
    print(f"{sheet.path}: left out {counted(int((~asked).sum()), 'row')} without {said}", file=sys.stderr)
    return sheet.take(asked)


def others_asked(sheet: Sheet, experts: list[Expert]) -> bool:
    """Whether the file has columns of experts that are left out."""
    own = {*(f"{PROPENSITY}{expert.name}" for expert in experts), *(expert.column for expert in experts)}
    begins = (PROPENSITY, *(f"{outcome}_" for outcome in OUTCOMES))
    return any(name.startswith(begins) and name not in own for name in sheet.written or sheet.names)


def row_ids(sheet: Sheet) -> np.ndarray:
    """The column id; without one, the numbers of the rows, from 1 for the first below the header."""
    if "id" in sheet.columns:
        found = [str(cell) for cell in sheet.columns["id"].to_pylist()]
        if max(map(len, found)) <= LONGEST_ID:  # an array gives all cells the length of the longest
            return np.array(found)
    return 1 + (np.arange(len(sheet)) if sheet.rows is None else sheet.rows)


def drift_line(errors: Tensor, train: Tensor, test: Tensor, names: list[str]) -> str:
    """How each expert's mean error changed from the training rows to the later test rows, where it was asked."""
    told = []
    for k, name in enumerate(names):
        known = [part[~part.isnan()] for part in (errors[train, k], errors[test, k])]
        if min(map(len, known)) < 2:
            told.append(f"{name} unknown")
            continue
        before, after = (float(part.mean()) for part in known)
        error = sum(float(part.var()) / len(part) for part in known) ** 0.5
        told.append(f"{name} {before:.4f} to {after:.4f} ({after - before:+.4f} ± {Z * error:.4f})")
    rows = f"mean error from the {len(train):,} earlier rows to the {len(test):,} later ones"
    return f"{rows}, ± 95 %: {', '.join(told)}"


class Table:
    """Experts are the columns correct_NAME, prediction_NAME and loss_NAME; or the columns in `experts`, which all hold `outcome`.
    An empty cell there means that the expert was not asked. price_NAME is what an expert costs on each row. A file with a column
    `expert` and its outcome is a log with a row per answer (long_log.py).

    features, text, image: the columns a router sees. If none is named, it sees every numeric column that has no other role and is
    no id. split: a column with train, test and perhaps validation; without it `test_fraction` of the rows are the test split, the
    same for every seed, and rows with the same text stay on one side. split_by: a column of times, by which the last
    `test_fraction` of the rows are the test split. category: a column by which results are broken down; only:
    the categories to keep.
    """

    def __init__(
        self,
        *,
        path: str | None,
        experts: list[Name] | None,
        outcome: Literal["correct", "prediction", "loss"],
        features: list[Name] | None,
        text: Name | None,
        encoder: Encoder | None,
        image: Name | None,
        image_size: Annotated[int, Ge(8)],
        label: Name | None,
        category: Name | None,
        only: list[Name] | None,
        split: Name | None,
        split_by: Name | None,
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
        if split is not None and split_by is not None:
            raise ParameterError("split_by", "the column in `split` says already which rows are for testing", split_by)
        self.path = None if path is None else Path(path).expanduser()
        self.experts, self.features, self.only = (
            None if names is None else [str(name) for name in names] for names in (experts, features, only)
        )
        self.text, self.image, self.label, self.category, self.split, self.split_by = (
            None if column is None else str(column) for column in (text, image, label, category, split, split_by)
        )
        self.encoder, self.outcome, self.image_size, self.test_fraction = encoder, outcome, image_size, test_fraction

    @property
    def gives(self) -> str | None:
        """The kind of a router's inputs, if the columns alone determine it."""
        return "images" if self.image is not None else "rows" if self.text is None else None

    @property
    def divisible(self) -> bool:
        """Whether the test rows are drawn, so that every row could be a test row once."""
        return self.split is None and self.split_by is None

    def fingerprint(self, data_dir: Path) -> str:
        """Of the file's bytes, and of the encoder that reads its text. Changes to the images that it names go unnoticed."""
        reads = self.encoder.identity() if self.encoder is not None and self.text is not None else ""
        return hashlib.sha256(self._file(data_dir).read_bytes() + reads.encode()).hexdigest()[:16]

    def check_file(self, data_dir: Path) -> None:
        """Raises if the file cannot be read."""
        read_sheet(self._file(data_dir), self._texts)

    def expert_names(self, data_dir: Path) -> list[str]:
        """Only from the file's header, unless it is a log with a row per answer."""
        header = read_header(self._file(data_dir))
        sheet = self._wide(read_sheet(self._file(data_dir), self._texts)) if is_long(header.names) else header
        return [expert.name for expert in self._experts(sheet)]

    def load(self, data_dir: Path) -> Arrays:
        arrays = self._load(data_dir)
        release_unused()  # of the sheet, which is gone now
        return arrays

    def _load(self, data_dir: Path) -> Arrays:
        import torch

        from l2d.data.inputs import sheet_inputs
        from l2d.data.splits import groups_of_equal_texts

        sheet = self._wide(read_sheet(self._file(data_dir), self._texts))
        experts = self._experts(sheet)  # first: a log whose outcome is misspelt is no table, and its ids may repeat
        sheet = self._rows(sheet)
        whole = len(sheet)
        sheet = asked_rows(sheet, experts, self.experts is not None)
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
        answers = answers_of(sheet, experts, words) if experts else None
        if answers is not None and len(sheet) < whole:
            answers, problem = with_kept_propensities(
                answers, others=others_asked(sheet, experts), each_asked=bool(sheet.written)
            )
            if problem:
                print(f"{sheet.path}: {problem}", file=sys.stderr)
        if answers is not None and answers.latencies is not None and float(answers.latencies.nanmedian()) > LONG:
            print(
                f"{sheet.path}: latencies: half are above {LONG}, but latencies are seconds; are these milliseconds?",
                file=sys.stderr,
            )
        if answers is not None and self.split_by is not None:
            print(drift_line(answers.errors, train, test, [expert.name for expert in experts]), file=sys.stderr)
        self._describe(sheet, experts, [*seen.features, *self._texts], roles, groups)
        found = divided_arrays(
            inputs,
            torch.from_numpy(classes),
            num_classes,
            train=train,
            test=test,
            validation=validation,
            experts=tuple(expert.name for expert in experts),
            answers=answers,
            groups=groups,
            categories=None if self.category is None else sheet.words(self.category),
            ids=row_ids(sheet),
            # Only for asking language models: outcomes in the table leave nothing to ask.
            texts=None if experts else texts,
            seen=seen,
        )
        if found.panel is None:
            return found
        return replace(found, panel=replace(found.panel, dollars=in_dollars(sheet, experts)))

    @property
    def _texts(self) -> list[str]:
        return [column for column in (self.text, self.image) if column is not None]

    def _file(self, data_dir: Path) -> Path:  # noqa: ARG002 (the path says where)
        if self.path is None:
            raise ParameterError("path", "missing; give a .csv, .parquet or .jsonl file")
        if problem := file_problem(self.path):
            raise ParameterError("path", problem, self.path)
        return self.path

    @property
    def _named(self) -> list[tuple[str, str]]:
        """(key, column) of all columns that are named and belong to a query, but the time."""
        named = {
            "text": self.text,
            "image": self.image,
            "label": self.label,
            "category": self.category,
            "split": self.split,
        }
        found = [(key, column) for key, column in named.items() if column is not None]
        return found + [("features", name) for name in self.features or []]

    def _wide(self, sheet: Sheet) -> Sheet:
        if not is_long(sheet.names):
            return sheet
        times = [] if self.split_by is None else [("split_by", self.split_by)]
        for key, column in [*self._named, *times]:
            sheet.check_column(key, column)
            if column in (EXPERT, *answer_columns(sheet)):
                raise ParameterError(key, "belongs to the answers, and a router decides before there is one", column)
        return widened(sheet, self.experts, [column for _, column in self._named], [column for _, column in times])

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
        from l2d.data.splits import draw_whole_groups, latest_rows, rows_of_split_column, stratified_split

        if self.split is not None:
            return rows_of_split_column(sheet, self.split, groups)
        if "split" in sheet.columns:
            raise ParameterError("split", "the table has a column split; say split=split, or rename the column")
        if self.split_by is not None:
            sheet.check_column("split_by", self.split_by)
            return *latest_rows(sheet.times(self.split_by), self.test_fraction, groups), None
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
        named = (("label", self.label), ("category", self.category), ("split", self.split), ("split_by", self.split_by))
        for role, column in named:
            if column is None or (role == "category" and column == self.label):  # both at once is fine
                continue
            sheet.check_column(role, column)
            if column in roles:
                raise ParameterError(role, f"that column is {roles[column]} already", column)
            roles[column] = "the time" if role == "split_by" else f"the {role}"
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
        others = [name for name in sheet.names if name not in roles and not is_id(name)]
        free = [name for name in others if not name.lower().startswith(AFTERWARDS) and sheet.is_numeric(name)]
        if telling := [name for name in free if name.lower() in GIVES_AWAY]:
            problem = f"the router would see column {telling[0]}; say label={telling[0]}, or list the features"
            raise ParameterError("features", problem)
        return free

    def _describe(
        self, sheet: Sheet, experts: list[Expert], inputs: list[str], roles: dict[str, str], groups: Tensor | None
    ) -> None:
        """Print how each column is used: one that leaks the answer is easily overlooked. groups: of equal texts."""
        prices = list(money_columns(sheet, experts).values())
        beside = [name for name in sheet.names if name.startswith((LATENCY, PROPENSITY))]
        paid, others = (list(dict.fromkeys(map(sheet.in_file, names))) for names in (prices, beside))
        rest = [name for name in sheet.names if name not in (*inputs, *roles, *prices, *beside, *sheet.written)]
        kinds = ", ".join(f"{expert.name} ({expert.outcome})" for expert in experts)
        seen = listed(inputs, 60) + (f"; not used: {listed(rest)}" if rest else "")
        seen += f"; prices: {listed(paid)} (they count with cost=columns)" if paid else ""
        seen += f"; beside the outcomes: {listed(others)}" if others else ""
        if self.split is None and groups is not None and (again := len(groups) - len(groups.unique())):
            seen += f"; {counted(again, 'row')} with the text of an earlier row, on the same side of the split"
        rows = counted(len(sheet), "row")
        print(f"{sheet.path}: {rows}; experts: {kinds}; the router sees: {seen}", file=sys.stderr)
        if not self._texts and self.features is None:
            for line in self._overlooked(sheet, [name for name in rest if not name.lower().startswith(AFTERWARDS)]):
                print(f"{sheet.path}: {line}", file=sys.stderr)

    def _overlooked(self, sheet: Sheet, unused: list[str]) -> list[str]:
        """How to use columns that the router does not see if none is named: ids that are numbers, and a text."""
        ids = [name for name in unused if is_id(name) and name.lower() != "id" and sheet.looks_numeric(name)]
        prose = [name for name in unused if self.encoder is not None and sheet.is_prose(name)]
        said = [f"the router does not see {listed(ids)}, by name an id; to use one, list it in dataset.features"][
            : len(ids)
        ]
        return said + [
            f"the router does not see {name}, which looks like text; read it with dataset.text={name}"
            for name in prose[:1]
        ]
