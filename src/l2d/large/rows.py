"""The rows of a block as tensors, each in a fold and with a number of its own, which follow from its place alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from l2d.data.arrays import Seen
from l2d.data.inputs import sheet_inputs
from l2d.data.sets.large import Layout, Piece
from l2d.data.sets.outcomes import amounts_beside, errors_of
from l2d.data.sets.table_columns import MOST_CATEGORIES
from l2d.data.sheet import Sheet
from l2d.large.passes import Sums
from l2d.utils.errors import L2DError
from l2d.utils.seeding import derive_seed

FOLDS = 5
SAMPLE = 50_000  # rows, about, that guards are fitted to: all rows of a table that has no more


@dataclass(frozen=True)
class Rows:
    """inputs float32 [n, F]. errors float64 [n, p], NaN where an expert was not asked. folds int64 [n]. drawn [n]: from 0 to 1.
    chances [n, p]: propensities, if the files have them."""

    inputs: Tensor
    errors: Tensor
    folds: Tensor
    drawn: Tensor
    chances: Tensor | None

    def __len__(self) -> int:
        return len(self.inputs)

    def sample(self, share: float) -> Sums:
        kept = self.drawn < share
        return {f"rows_{name}": part[kept].numpy() for name, part in vars(self).items() if part is not None}

    @classmethod
    def of_sample(cls, found: Sums) -> Rows:
        own = (found.get(f"rows_{field.name}") for field in fields(cls))
        return cls(*(None if part is None else torch.from_numpy(part) for part in own))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Reader:
    """seen: with the values of the features that are words. seed: of the folds."""

    layout: Layout
    seen: Seen
    seed: int

    def rows(self, piece: Piece, sheet: Sheet) -> Rows:
        assert sheet.rows is not None
        experts = list(self.layout.experts)
        errors = np.stack([errors_of(sheet, expert, None) for expert in experts], axis=1)
        sheet.refuse(experts[0].column, "empty, as all other outcomes are,", np.isnan(errors).all(axis=1))
        chances = amounts_beside(sheet, experts).get("propensities")
        if chances is not None:
            unknown = np.isnan(chances) & ~np.isnan(errors)
            for k, expert in enumerate(experts):
                sheet.refuse(expert.column, "with an outcome but no propensity", unknown[:, k])
        mixed = mix(sheet.rows.astype(np.uint64) + np.uint64(piece.file << 40), derive_seed(self.seed, "test folds"))
        return Rows(
            sheet_inputs(sheet, self.seen, (), lambda _: np.zeros(0)),
            torch.from_numpy(errors),
            torch.from_numpy((mixed >> np.uint64(32)).astype(np.int64) % FOLDS),
            torch.from_numpy((mixed & np.uint64(0xFFFFFFFF)).astype(np.float64) / 2**32),
            None if chances is None else torch.from_numpy(chances),
        )

    def on(self, of_rows: Callable[[Rows], Sums], piece: Piece, sheet: Sheet) -> Sums:
        return of_rows(self.rows(piece, sheet))

    def with_words(self, found: Sums) -> Reader:
        values: Mapping[str, tuple[str, ...]] = {name: tuple(filter(None, words)) for name, words in found.items()}
        return replace(self, seen=replace(self.seen, categories=values))


def mix(numbers: np.ndarray, seed: int) -> np.ndarray:
    """SplitMix64: 64 bits that look random, of each number uint64 [n]."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def words_of(layout: Layout, _: Piece, sheet: Sheet) -> Sums:
    return {name: np.unique(sheet.words(name, gaps=True)) for name in layout.words}


def more_words(one: Sums, two: Sums) -> Sums:
    found = {name: np.union1d(values, two[name]) for name, values in one.items()}
    for name in (name for name, words in found.items() if len(words) > MOST_CATEGORIES):
        raise L2DError(f"column {name}: more than {MOST_CATEGORIES} different words, which no feature may have")
    return found
