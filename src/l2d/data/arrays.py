"""A dataset as arrays, and the split of its rows."""

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from l2d.utils.errors import L2DError

STATISTICS_ROWS = 10_000


@dataclass(frozen=True)
class Answers:
    """What p experts did on n rows: errors float64 [n, p] (1[g_k(x) ≠ y], or a cost that came with the data) and, where known,
    predictions int64 [n, p] and prices of these very rows [n, p]."""

    errors: Tensor
    predictions: Tensor | None = None
    prices: Tensor | None = None

    def __getitem__(self, rows: Tensor) -> "Answers":
        predictions, prices = (None if part is None else part[rows] for part in (self.predictions, self.prices))
        return Answers(self.errors[rows], predictions, prices)


@dataclass(frozen=True)
class Panel:
    """The experts of a run: what they are called, what they did and, where experts have classes of their own, the share of the
    classes that each knows [p] and which those are, bool [p, num_classes]. learned: whether some of them were trained on the very
    training rows that `train` has their answers to, which are then better than on others."""

    names: tuple[str, ...]
    train: Answers
    test: Answers
    coverage: tuple[float, ...] | None = None
    knows: Tensor | None = None
    learned: bool = False


@dataclass(frozen=True)
class Seen:
    """What a router is shown of a query: the columns of numbers, in order, and after them a column of text; or an image, for which
    a table has a column of paths. white: the pixel value of white."""

    features: tuple[str, ...] = ()
    text: str | None = None
    image: str | None = None
    white: int = 255


@dataclass(frozen=True)
class Arrays:
    """Inputs (uint8 images [N, H, W, C] or float32 features [N, F]) and int64 labels [N] (−1 where unknown) of both splits; large
    sets are memory-mapped.

    validation: the training rows that the data themselves set aside, if they do. origin: the rows of the published training set
    that both splits were taken from, where they were. panel: what experts did, where that came with the data. groups: int [N],
    equal for training rows that must stay on one side of a split. categories: of the test rows, for a breakdown of the results;
    train_categories: of the others.
    texts: the questions as a language model is asked them, of the training and of the test rows. seen: what inputs are made from.
    """

    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    num_classes: int
    validation: Tensor | None = None
    origin: tuple[Tensor, Tensor] | None = None
    panel: Panel | None = None
    groups: Tensor | None = None
    categories: tuple[str, ...] | None = None
    train_categories: tuple[str, ...] | None = None
    texts: tuple[list[str], list[str]] | None = None
    seen: Seen = Seen()


def alike(texts: list[str]) -> Tensor:
    """int [n]: equal numbers for equal texts, whatever the space around them."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(" ".join(text.split()), len(numbers)) for text in texts])


def together(
    draw: Callable[[Tensor], tuple[Tensor, Tensor]], labels: Tensor, groups: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Sorted rows (kept, held out), drawn over groups by the label of each one's first row, so that no group is on both sides."""
    if groups is None:
        return draw(labels)
    _, number = groups.unique(return_inverse=True)
    first = torch.full((int(number.max()) + 1,), len(number)).scatter_reduce(
        0, number, torch.arange(len(number)), "amin"
    )
    order = (
        first.argsort()
    )  # groups as they come: without groups of several rows, the very draw that rows alone would have
    _, held_out = draw(labels[first[order]])
    out = torch.zeros(len(first), dtype=torch.bool).index_fill(0, order[held_out], True)[number]
    return torch.nonzero(~out)[:, 0], torch.nonzero(out)[:, 0]


def split(arrays: Arrays, fraction: float, seed: int, fold: str | None = None) -> tuple[Tensor, Tensor]:
    """Sorted training rows (kept, held out for validation): as the data say, else a share of each class, drawn by seed; or, of the
    folds that a seed deals the rows into, the one that `fold` names: "2/5" is the second of five."""
    if fold is not None:
        return cross_validation_fold(arrays, fold, seed)
    if arrays.validation is None:
        own = arrays.panel is not None  # a table of somebody's own: its labels may be of any kind

        def draw(labels: Tensor) -> tuple[Tensor, Tensor]:
            return stratified_split(labels, fraction, seed, strict=not own)

        return together(draw, arrays.train_labels, arrays.groups)
    held_out = torch.zeros(len(arrays.train_labels), dtype=torch.bool).index_fill(0, arrays.validation, True)
    return torch.nonzero(~held_out)[:, 0], torch.nonzero(held_out)[:, 0]


def cross_validation_fold(arrays: Arrays, fold: str, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted training rows (kept, held out): every row is held out in exactly one of the folds, each class in proportion."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", str(fold))
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of or of < 2:
        raise L2DError(f"fold={fold}: must be such as 2/5, the second of five folds")
    if arrays.validation is not None:
        raise L2DError(f"fold={fold}: these data say themselves which rows are for validation")

    def deal(labels: Tensor) -> tuple[Tensor, Tensor]:
        if of > len(labels):
            raise L2DError(f"fold={fold}: there are {len(labels):,} rows")
        order = np.random.default_rng(seed).permutation(len(labels))
        order = order[np.argsort(labels.numpy()[order], kind="stable")]  # class by class, then dealt out like cards
        held_out = torch.zeros(len(labels), dtype=torch.bool)
        held_out[torch.from_numpy(order[number - 1 :: of].copy())] = True
        return torch.nonzero(~held_out)[:, 0], torch.nonzero(held_out)[:, 0]

    return together(deal, arrays.train_labels, arrays.groups)


def stratified_split(
    labels: Tensor, fraction: float, seed: int, *, key: str = "validation_fraction", strict: bool = True
) -> tuple[Tensor, Tensor]:
    """Sorted row numbers (kept, held out), each class held out in proportion. key: what the fraction is called. Not strict: where
    there are too many classes for that, or classes of one row, from all rows alike."""
    rows = np.arange(len(labels))
    by_class = strict or _can_stratify(labels, fraction)
    try:
        kept, held_out = train_test_split(
            rows, test_size=fraction, stratify=labels.numpy() if by_class else None, random_state=seed
        )
    except ValueError as error:
        raise L2DError(f"{key}={fraction}: {error}") from error
    return torch.from_numpy(np.sort(kept)), torch.from_numpy(np.sort(held_out))


def _can_stratify(labels: Tensor, fraction: float) -> bool:
    """Whether each class has two rows, and either side at least a row for each."""
    sizes = labels.unique(return_counts=True)[1]
    held_out = math.ceil(fraction * len(labels))
    return int(sizes.min()) >= 2 and len(sizes) <= min(held_out, len(labels) - held_out)


def fingerprint_of(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().data)
    return digest.hexdigest()[:16]


def content_of(arrays: Arrays) -> str:
    """A fingerprint of inputs and labels, where the dataset has none."""
    return fingerprint_of(arrays.train_inputs, arrays.train_labels, arrays.test_inputs, arrays.test_labels)


def channel_statistics(source: Tensor, rows: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel of some images or per feature of some rows (of 10,000 evenly spaced ones where there
    are more)."""
    rows = rows[:: max(1, len(rows) // STATISTICS_ROWS)]
    values = source[rows].double().flatten(0, -2)
    return values.mean(dim=0).tolist(), values.std(dim=0, correction=0).clamp(min=1e-6).tolist()
