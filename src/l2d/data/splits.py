"""The rows of a run: for training, validation and test; over- and undersampling of the training rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.off_policy import Logged
from l2d.core.replies import joined
from l2d.data.arrays import PAIRS, Answers, Arrays, divided
from l2d.data.sheet import Sheet
from l2d.utils.errors import ParameterError

Sides = tuple[Tensor, Tensor]  # rows that are kept, and rows that are held out
SPLIT_WORDS = {"train": "train", "test": "test", **dict.fromkeys(("validation", "val", "valid", "dev"), "validation")}


@dataclass(frozen=True)
class Split:
    """One split of n rows. source: inputs, in which `rows` [n] are the split's. answers, costs [n, p], labels [n]: of these rows.
    prices: the price part of the costs, [p] or [n, p]. logged: how a log knows the costs of rows that judge a router.
    without_prices: the costs are errors alone, for methods that add the prices of rows only to decide."""

    source: Tensor
    rows: Tensor
    answers: Answers
    costs: Tensor
    prices: Tensor
    labels: Tensor
    logged: Logged | None = None
    without_prices: bool = False

    @property
    def whole_costs(self) -> Tensor:
        """With prices."""
        return self.costs + self.prices if self.without_prices else self.costs

    @property
    def inputs(self) -> Tensor:
        return self.source[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Tensor) -> "Split":
        """The rows at these positions, in this order; positions may repeat, or be a mask."""
        taken: dict[str, Any] = {name: vars(self)[name][positions] for name in ("rows", "answers", "costs", "labels")}
        prices = self.prices if self.prices.ndim == 1 else self.prices[positions]
        return replace(self, **taken, prices=prices, logged=None if self.logged is None else self.logged[positions])


def groups_of_equal_texts(texts: list[str]) -> Tensor:
    """int [n]: equal numbers for texts that are equal up to white space."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(" ".join(text.split()), len(numbers)) for text in texts], dtype=torch.int64)


def draw_whole_groups(draw: Callable[[Tensor], Sides], labels: Tensor, groups: Tensor | None) -> Sides:
    """Sorted rows (kept, held out) such that no group is on both sides: whole groups are drawn, by the label of their first row."""
    if groups is None:
        return draw(labels)
    first = torch.from_numpy(np.sort(np.unique(groups.numpy(), return_index=True)[1]))
    _, held_out = draw(labels[first])  # groups in the order of their rows: if each is one row, this is draw(labels)
    return _sides(torch.isin(groups, groups[first[held_out]]))


def _sides(held_out: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (kept, held out) of a mask [n]."""
    return torch.nonzero(~held_out)[:, 0], torch.nonzero(held_out)[:, 0]


def split(arrays: Arrays, fraction: float, seed: int, fold: str | None = None) -> tuple[Tensor, Tensor]:
    """Sorted training rows (kept, held out for validation): as the data say, a fold ("2/5"), or a share of each class, by seed."""
    if fold is not None:
        return cross_validation_fold(arrays, fold, seed)
    if arrays.validation is not None:
        return _sides(torch.zeros(len(arrays.train_labels), dtype=torch.bool).index_fill(0, arrays.validation, True))
    n, classes = len(arrays.train_labels), len(arrays.train_labels.unique())
    if arrays.panel is None and math.ceil(fraction * n) < classes:  # a user's table may have many labels
        raise ParameterError("validation_fraction", f"is too small: each of {classes:,} classes needs a row", fraction)
    return stratified_split(arrays.train_labels, fraction, seed, arrays.groups)


def cross_validation_fold(arrays: Arrays, fold: str, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted training rows (kept, held out): every row is held out in exactly one of the folds, each class in proportion."""
    number, of = map(int, fold.split("/"))
    if arrays.validation is not None:
        raise ParameterError("fold", "the data already say which rows are for validation; remove it", fold)

    def deal(labels: Tensor) -> tuple[Tensor, Tensor]:
        if of > len(labels):
            raise ParameterError("fold", f"more folds than the {len(labels):,} rows to divide; use fewer", fold)
        order = np.random.default_rng(seed).permutation(len(labels))
        order = order[np.argsort(labels.numpy()[order], kind="stable")]  # class by class, then dealt like cards
        return _sides(torch.from_numpy(np.isin(np.arange(len(order)), order[number - 1 :: of])))

    return draw_whole_groups(deal, arrays.train_labels, arrays.groups)


def pooled(arrays: Arrays) -> Arrays:
    panel, parts = arrays.panel, dict[str, Any]()
    if panel is not None:
        answers = panel.train.followed_by(panel.test)
        panel = replace(panel, train=answers, test=answers[:0])
    for train, test in (("train_inputs", "test_inputs"), *PAIRS):
        first, second = vars(arrays)[train], vars(arrays)[test]
        parts |= {train: joined(first, second), test: None if second is None else second[:0]}
    texts = arrays.texts and (joined(*arrays.texts), [])
    return replace(arrays, **parts, validation=None, origin=None, panel=panel, texts=texts)


def with_test_fold(whole: Arrays, fold: str, seed: int) -> tuple[Arrays, Tensor]:
    """The rows of `pooled`, one of the folds held out as test rows; and which rows these are. fold: "2/5" is the second of five."""
    train, test = cross_validation_fold(whole, fold, seed)
    return divided(replace(whole, train_inputs=whole.train_inputs.clone()), train, test), test


def rows_of_split_column(sheet: Sheet, column: str, groups: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Training and validation rows, test rows, and which of the former are validation rows, or None."""
    words = [word.lower() for word in sheet.words(column)]
    sheet.refuse(column, f"none of {', '.join(SPLIT_WORDS)}", np.array([word not in SPLIT_WORDS for word in words]))
    part = np.array([SPLIT_WORDS[word] for word in words])
    for need in ("train", "test"):
        if need not in part:
            raise ParameterError("split", f"no row is {need}; there are {', '.join(sorted(set(part)))}", column)
    rows, test = (torch.from_numpy(np.flatnonzero(side)) for side in (part != "test", part == "test"))
    if groups is not None and (again := int(torch.isin(groups[test], groups[part == "train"]).sum())):
        sheet.note(f"WARNING: split={column}: {again:,} of {len(test):,} test rows have the text of a training row")
    validation = torch.from_numpy(np.flatnonzero(part[rows] == "validation"))
    return rows, test, validation if len(validation) else None


def latest_rows(times: np.ndarray, fraction: float, groups: Tensor | None) -> tuple[Tensor, Tensor]:
    """Sorted rows (kept, held out): those of the latest times are held out. A group has the time of its first row in time."""
    n = len(times)
    own = np.arange(n) if groups is None else np.unique(groups.numpy(), return_inverse=True)[1]
    begun = np.full(own.max() + 1, np.inf)
    np.minimum.at(begun, own, times)
    order = np.argsort(begun[own], kind="stable")
    held = math.ceil(fraction * n)
    if held >= n:
        raise ParameterError("test_fraction", f"leaves none of {n:,} rows for training", fraction)
    latest = np.zeros(n, dtype=bool)
    latest[order[n - held :]] = True
    held_out = np.isin(own, own[latest])
    if held_out.all():
        raise ParameterError("test_fraction", "leaves no row for training, since equal texts stay together", fraction)
    return _sides(torch.from_numpy(held_out))


def stratified_split(
    labels: Tensor, fraction: float, seed: int, groups: Tensor | None = None, *, parameter: str = "validation_fraction"
) -> Sides:
    """Sorted rows (kept, held out in proportion to the classes, unless these are too many or too small)."""
    from sklearn.model_selection import train_test_split

    def draw(labels: Tensor) -> Sides:
        n, sizes = len(labels), np.unique(labels.numpy(), return_counts=True)[1]
        held = math.ceil(fraction * n)
        if held >= n:
            raise ParameterError(parameter, f"leaves none of {n:,} rows for training", fraction)
        by_class = len(sizes) <= min(n - held, held) and int(sizes.min()) >= 2
        classes = labels.numpy() if by_class else None
        held_out = train_test_split(np.arange(n), test_size=fraction, random_state=seed, stratify=classes)[1]
        return _sides(torch.from_numpy(np.isin(np.arange(n), held_out)))

    return draw_whole_groups(draw, labels, groups)


def resample(groups: Tensor, sampling: str, rng: np.random.Generator) -> Tensor:
    """Sorted positions that make all groups equally large. groups int [n] -> int [m]. over: as large as the largest; every row is
    kept, and rows of smaller groups are drawn again, with replacement. under: as small as the smallest, without replacement."""
    members = [np.flatnonzero(groups.numpy() == group) for group in np.unique(groups.numpy())]
    sizes = [len(rows) for rows in members]
    if sampling == "over":
        members = [np.append(rows, rng.choice(rows, max(sizes) - len(rows))) for rows in members]
    else:
        members = [rng.choice(rows, min(sizes), replace=False) for rows in members]
    return torch.from_numpy(np.sort(np.concatenate(members)))
