"""A dataset as arrays. Light: does not import torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from l2d.core.prices import PriceUnit
from l2d.core.replies import ByRow, Replies

if TYPE_CHECKING:
    from torch import Tensor


NO_OUTCOME = "any outcome (taken to be missing at random)"  # what rows that are left out lack
COLUMNS = 16  # moved at a time


@dataclass(frozen=True)
class Answers(ByRow):
    """Outcomes of p experts on n rows. errors: float64 [n, p], 1[g_k(x) ≠ y] or a given cost; NaN where an expert was not asked. If
    known: predictions int64 [n, p]; prices, latencies [n, p], NaN where not known; propensities [n, p], the chance of being asked
    where an expert was; confounders [n, C], which may have decided who was asked; replies: what experts said."""

    errors: Tensor
    predictions: Tensor | None = None
    prices: Tensor | None = None
    latencies: Tensor | None = None
    propensities: Tensor | None = None
    confounders: Tensor | None = None
    replies: Replies | None = None


def with_kept_propensities(answers: Answers, *, others: bool, each_asked: bool) -> tuple[Answers, str]:
    """Propensities among the rows that are kept, after rows without an outcome were left out; None and a message if these cannot
    be known. others: whether experts that are not used here were asked. each_asked: whether some expert was asked on every row. If
    one was asked on each and the chances of all are known, they are divided by their sum."""
    chances, why = answers.propensities, ""
    alone = bool(((~answers.errors.isnan()).sum(dim=1) == 1).all())
    if chances is not None and alone and not bool(chances.isnan().any()):
        return replace(answers, propensities=chances / chances.sum(dim=1, keepdim=True)), ""
    if not alone and not each_asked:
        why = "several experts were asked on one row, so on a row without an outcome perhaps none was"
    elif others:
        why = "experts that are left out were asked too, and their chances are known only where they were"
    if chances is None or not why:
        return answers, ""
    return replace(answers, propensities=None), f"propensities are estimated anew: {why}"


def same_name(name: str) -> str:
    """Equal for names that differ only in capitals or in how much space is between words, which nobody gives to two experts."""
    return " ".join(name.split()).casefold()


@dataclass(frozen=True)
class Panel:
    """The experts of a run: their names and what they did on the training and the test rows. coverage [p], knows bool
    [p, num_classes]: the share of the classes that each knows, and which ones. learned: whether they were trained on the rows of
    `train`. unit: of the prices. rows_per_day: that have an outcome. confounded: whether columns that a router does not see may
    have decided who was asked. ungraded: inputs and prices of rows without an outcome."""

    names: tuple[str, ...]
    train: Answers
    test: Answers
    coverage: tuple[float, ...] | None = None
    knows: Tensor | None = None
    learned: bool = False
    unit: PriceUnit = field(default_factory=PriceUnit)
    rows_per_day: float | None = None
    confounded: bool = False
    ungraded: tuple[Tensor, Answers] | None = None


@dataclass(frozen=True)
class Seen:
    """The inputs of a router: columns of numbers or words, then a column of text; or an image, in a table a column of paths. white:
    the pixel value of white. categories: the values of columns of words, each a number that is 0 or 1. commas: columns of numbers
    whose commas are decimal."""

    features: tuple[str, ...] = ()
    text: str | None = None
    image: str | None = None
    white: int = 255
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)  # a fingerprint has the repr
    commas: tuple[str, ...] = field(default=(), repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the numbers that the features make."""
        split = ([f"{name}={value}" for value in self.categories.get(name, ())] or [name] for name in self.features)
        return tuple(column for columns in split for column in columns)


@dataclass(frozen=True)
class Arrays:
    """Inputs (uint8 images [N, H, W, C], float32 features [N, F] or int32 tokens [N, L]) and int64 labels [N] (−1 where unknown).
    validation: training rows reserved for it. origin: for each split, its rows in the published training set. panel: what experts
    did, if that came with the data. groups: int [N], equal for rows that must stay on one side of a split. texts: the training and
    the test questions, as prompts for a language model. reading: what the encoder of texts has learned."""

    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    num_classes: int
    validation: Tensor | None = None
    origin: tuple[Tensor, Tensor] | None = None
    panel: Panel | None = None
    groups: Tensor | None = None
    test_groups: Tensor | None = None
    categories: tuple[str, ...] | None = None
    train_categories: tuple[str, ...] | None = None
    ids: np.ndarray | None = None
    train_ids: np.ndarray | None = None
    texts: tuple[list[str], list[str]] | None = None
    seen: Seen = Seen()
    reading: Mapping[str, np.ndarray] = field(default_factory=dict)


# Arrays of the training rows, and the same of the test rows.
PAIRS = (
    ("train_labels", "test_labels"),
    ("groups", "test_groups"),
    ("train_categories", "categories"),
    ("train_ids", "ids"),
)


def divided(whole: Arrays, train: Tensor, test: Tensor, validation: Tensor | None = None) -> Arrays:
    """Divide the training rows of `whole`, which has no test rows, into training and test rows, in ascending order. Its inputs are
    overwritten. validation: which of the training rows the data reserve for it."""
    import torch

    rows = torch.cat([train, test])
    train_inputs, test_inputs = moved_to_the_front(whole.train_inputs, rows).tensor_split([len(train)])
    parts = {own: taken(vars(whole)[own], train) for own, _ in PAIRS}
    parts |= {other: taken(vars(whole)[own], test) for own, other in PAIRS}
    panel = whole.panel and replace(whole.panel, train=whole.panel.train[train], test=whole.panel.train[test])
    texts = whole.texts and (taken(whole.texts[0], train), taken(whole.texts[0], test))
    parts |= {"train_inputs": train_inputs, "test_inputs": test_inputs, "validation": validation}
    return replace(whole, **parts, panel=panel, texts=texts)


def taken(values: Any, rows: Tensor) -> Any:
    """These rows of a tensor, an array, a tuple or a list; None of None."""
    if isinstance(values, tuple | list):
        return type(values)(values[row] for row in rows.tolist())
    return None if values is None else values[rows.numpy() if isinstance(values, np.ndarray) else rows]


def moved_to_the_front(inputs: Tensor, rows: Tensor) -> Tensor:
    """inputs[rows], in the memory of `inputs`: a few columns at a time, since a large table has no room for a second copy."""
    for columns in inputs.view(len(inputs), -1).split(COLUMNS, dim=1):
        columns[: len(rows)] = columns[rows]
    return inputs[: len(rows)]


def fingerprint_of(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]
