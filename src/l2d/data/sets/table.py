"""Bring your own: a file with a row per example and a column per expert, or a log with a row per answer. Light to import."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from l2d.core.prices import PriceUnit
from l2d.data.agreement import Agreement
from l2d.data.arrays import Answers, Arrays, Panel, divided, with_kept_propensities
from l2d.data.confounders import clustered, encoded, warning
from l2d.data.dataset import DatasetBase
from l2d.data.sets.large import find_files, fingerprint_of_files, is_large, layout_of, pieces_of
from l2d.data.sets.long_log import is_long
from l2d.data.sets.outcomes import OUTCOMES, PROPENSITY, Expert, class_numbers, find_experts, in_dollars
from l2d.data.sets.table_columns import Named, note_columns, with_a_row_per_query, with_roles
from l2d.data.sets.table_rows import TableRows, read_rows
from l2d.data.sheet import Sheet, faulty, file_problem, read_header, read_sheet
from l2d.data.text.encoders import Encoder
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.parameters import Annotated, Ge, Name, ProperShare
from l2d.utils.text import Z

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_ID = 100


class Table(DatasetBase):
    """The keys are explained in conf/dataset/table.yaml. An empty outcome means that the expert was not asked. A file with a column
    `expert` and its outcome is a log with a row per answer (long_log.py). Rows with the same text stay on one side of a split."""

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
        columns: dict[str, Name] | None = None,
        merge: list[list[Name]] | None = None,
        confounders: list[Name] | None = None,
        agree: str = "exact",
    ) -> None:
        self.path = None if path is None else Path(path).expanduser()
        self.files = path if path is not None and is_large(path) else None  # several, which only large/ reads
        named = {"experts": experts, "outcome": outcome, "features": features, "text": text, "image": image}
        named |= {"label": label, "category": category, "only": only, "split": split, "split_by": split_by}
        named["confounders"] = confounders
        self.named = Named.of(_words(columns or {}), _words(merge or []), **_words(named))
        self.named.check(reads_text=encoder is not None)
        self.as_text = [*self.named.texts, self.named.columns.get("id", "id")]  # ids too, or 12.1 would be 12.10
        self.encoder, self.image_size, self.test_fraction = encoder, image_size, test_fraction
        self.agreement = Agreement(agree)

    @property
    def gives(self) -> str | None:
        return "images" if self.named.image is not None else "rows" if self.named.text is None else None

    @property
    def divisible(self) -> bool:
        return self.named.split is None and self.named.split_by is None

    def fingerprint(self, data_dir: Path) -> str:
        """A hash of the file's bytes and of the encoder that reads its text. Changes to the images that it names go unnoticed."""
        if self.files is not None:
            return fingerprint_of_files(find_files(self.files))
        reads = self.encoder.identity() if self.encoder is not None and self.named.text is not None else ""
        return hashlib.sha256(self._file(data_dir).read_bytes() + reads.encode()).hexdigest()[:16]

    def expert_names(self, data_dir: Path) -> list[str]:
        """The experts, from the file's header alone unless it is a log with a row per answer."""
        if self.files is not None:
            return list(layout_of(pieces_of(find_files(self.files)[:1])[0], self.named).names)
        sheet = with_roles(read_header(self._file(data_dir)), self.named)
        if is_long(sheet.names):
            whole = read_sheet(self._file(data_dir), self.as_text)
            sheet = with_a_row_per_query(with_roles(whole, self.named), self.named)
        return [expert.name for expert in self._experts(sheet)]

    def read(self, data_dir: Path, faults: dict[tuple[str, str], str]) -> TableRows:
        """Collect the faults of all cells. What leaves nothing to read is raised."""
        sheet = replace(read_sheet(self._file(data_dir), self.as_text), faults=faults)
        return read_rows(with_roles(sheet, self.named), self.named, self._experts)

    def load(self, data_dir: Path) -> Arrays:
        import torch

        from l2d.data.inputs import sheet_inputs
        from l2d.data.splits import groups_of_equal_texts

        named, faults = self.named, dict[tuple[str, str], str]()
        try:
            read = self.read(data_dir, faults)
        except L2DError as error:
            raise error if not faults else faulty(self._file(data_dir), [*faults.values(), str(error)]) from error
        if faults:
            raise faulty(self._file(data_dir), [*faults.values()])
        sheet, experts, seen, texts = replace(read.sheet, faults=None), read.experts, read.seen, read.texts
        numbers, num_classes = self._labels(sheet, read.words)
        labels = torch.from_numpy(numbers)
        # A text that is the category repeats by its nature: its rows may be on both sides of a split.
        groups = None if texts is None or named.text == named.category else groups_of_equal_texts(texts)
        train, test, validation = _divided_rows(sheet, named, self.test_fraction, labels, groups)
        size = (self.image_size, self.image_size, 3)
        with under("encoder"):  # a table with text has one
            if self.encoder is not None and texts is not None:
                self.encoder = self.encoder.fitted([texts[row] for row in train.tolist()])
            embed = lambda texts: self.encoder.encode(texts, data_dir)  # type: ignore[union-attr]  # noqa: E731
            inputs = sheet_inputs(sheet, seen, size, embed)
            priced = None if read.priced is None else sheet_inputs(read.priced[0], seen, size, embed)
        panel = _panel(read, inputs, priced, named, self.agreement)
        if panel is not None and named.split_by is not None:
            _note_drift(sheet, panel.train.errors, train, test, experts)
        unused = note_columns(sheet, experts, named, read.roles, list(seen.features))
        asked = None if panel is None or panel.train.propensities is not None else ~panel.train.errors.isnan()
        if asked is not None and (told := warning(sheet, unused, asked.numpy(), [one.name for one in experts])):
            sheet.note(told)
        undivided = Arrays(
            inputs,
            labels,
            inputs[:0],
            labels[:0],
            num_classes,
            panel=panel,
            groups=groups,
            train_categories=None if named.category is None else tuple(sheet.words(named.category)),
            train_ids=_row_ids(sheet),
            # Only for asking language models: outcomes in the table leave nothing to ask.
            texts=None if experts or texts is None else (texts, []),
            seen=seen,
            reading=self.encoder.state if self.encoder is not None and texts is not None else {},
        )
        return divided(undivided, train, test, validation)

    def _file(self, data_dir: Path) -> Path:  # noqa: ARG002 (the path says where)
        if self.path is None:
            raise ParameterError("path", "missing; give a .csv, .parquet or .jsonl file")
        if problem := file_problem(self.path):
            raise ParameterError("path", problem, self.path)
        return self.path

    def _experts(self, sheet: Sheet) -> list[Expert]:
        return find_experts(sheet, self.named.experts, self.named.outcome)

    def _labels(self, sheet: Sheet, words: list[str] | None) -> tuple[np.ndarray, int]:
        return class_numbers(words, len(sheet))


def _words(given: Any) -> Any:
    """Names as text: a column may be called 2024, which YAML reads as a number."""
    if isinstance(given, Mapping):
        return {key: _words(one) for key, one in given.items()}
    return [*map(_words, given)] if isinstance(given, list | tuple) else None if given is None else str(given)


def _panel(read: TableRows, inputs: Tensor, priced: Tensor | None, named: Named, agreement: Agreement) -> Panel | None:
    """All rows as training rows. Empty prices and latencies are expected ones. priced: inputs of rows that have only a price."""
    import torch

    from l2d.core.ridge import expected_by

    if read.amounts is None:
        return None
    sheet, experts = read.sheet, read.experts
    parts = {key: torch.from_numpy(values) for key, values in read.amounts.items()}
    asked = ~parts["errors"].isnan()
    for key in (key for key in ("prices", "latencies") if key in parts):
        if lacking := int((asked & parts[key].isnan()).sum()):
            sheet.note(f"{lacking:,} of {int(asked.sum()):,} {key} are empty; expected ones take their place")
            expected = expected_by(inputs, parts[key]).clamp(min=0)
            parts[key] = torch.where(asked & parts[key].isnan(), expected, parts[key])
    # A few features beside a text are among the confounders: hundreds of numbers of the text would drown them.
    deciding = [*(named.confounders or []), *(read.seen.features if named.text is not None else ())]
    deciders: list[Tensor] = []  # of the rows of the sheet, then of those that have only a price
    if deciding and not asked.all():
        deciders.append(encoded([sheet] if read.priced is None else [sheet, read.priced[0]], deciding))
    replies = None if read.said is None else read.said.replies(asked.numpy(), agreement)
    answers = Answers(**parts, replies=replies)
    if read.some_left_out:
        own = {*(f"{PROPENSITY}{expert.name}" for expert in experts), *(expert.column for expert in experts)}
        begins = (PROPENSITY, *(f"{outcome}_" for outcome in OUTCOMES))
        others = any(name.startswith(begins) and name not in own for name in sheet.made or sheet.names)
        answers, problem = with_kept_propensities(answers, others=others, each_asked=bool(sheet.made))
        if problem:
            sheet.note(problem)
    if answers.propensities is None and named.text is not None and inputs.is_floating_point() and not asked.all():
        both = inputs if priced is None else torch.cat([inputs, priced])
        deciders.append(clustered(both[:, len(read.seen.columns) :], int(asked.sum(dim=0).min())))
    graded, ungraded = torch.cat(deciders, dim=1).tensor_split([len(sheet)]) if deciders else (None, None)
    answers = replace(answers, confounders=graded)
    unit = PriceUnit.of_rows((), in_dollars(sheet, experts))
    names, told = tuple(expert.name for expert in experts), bool(named.confounders)
    whole = Panel(names, answers, answers[:0], unit=unit, rows_per_day=read.rows_per_day, confounded=told)
    if priced is None or read.priced is None:
        return whole
    more: Any = {key: torch.from_numpy(values) for key, values in read.priced[1].items() if key != "propensities"}
    unknown = torch.full_like(more["prices"], torch.nan)
    return replace(whole, ungraded=(priced, Answers(unknown, **more, confounders=ungraded)))


def _row_ids(sheet: Sheet) -> np.ndarray:
    """The column id; without one, the numbers of the rows, from 1 for the first below the header."""
    if "id" in sheet.columns:
        found = [str(cell) for cell in sheet.columns["id"].to_pylist()]
        if max(map(len, found)) <= LONGEST_ID:  # an array gives all cells the length of the longest
            return np.array(found)
    return 1 + (np.arange(len(sheet)) if sheet.rows is None else sheet.rows)


def _divided_rows(
    sheet: Sheet, named: Named, test_fraction: float, labels: Tensor, groups: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Training and validation rows, test rows (the same for every seed), and which of the former are validation rows."""
    from l2d.data.splits import latest_rows, rows_of_split_column, stratified_split

    if named.split is not None:
        return rows_of_split_column(sheet, named.split, groups)
    if "split" in sheet.columns:
        raise ParameterError("split", "the table has a column split; say split=split, or rename the column")
    if named.split_by is not None:
        sheet.check_column("split_by", named.split_by)
        return *latest_rows(sheet.times(named.split_by), test_fraction, groups), None
    return *stratified_split(labels, test_fraction, 0, groups, parameter="test_fraction"), None


def _note_drift(sheet: Sheet, errors: Tensor, train: Tensor, test: Tensor, experts: list[Expert]) -> None:
    """Print how each expert's mean error changed from the training rows to the later test rows, where it was asked."""
    changes = []
    for k, expert in enumerate(experts):
        known = [part[~part.isnan()] for part in (errors[train, k], errors[test, k])]
        told = "unknown"
        if min(map(len, known)) > 1:
            before, after = (float(part.mean()) for part in known)
            error = sum(float(part.var()) / len(part) for part in known) ** 0.5
            told = f"{before:.4f} to {after:.4f} ({after - before:+.4f} ± {Z * error:.4f})"
        changes.append(f"{expert.name} {told}")
    rows = f"from the {len(train):,} earlier rows to the {len(test):,} later ones"
    sheet.note(f"mean error {rows}, ± 95 %: {', '.join(changes)}")
