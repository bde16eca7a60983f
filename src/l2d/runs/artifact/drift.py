"""Drift of new inputs from the training rows: a standardised distance, and how large it is on rows that were left out."""

from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from torch import Tensor

from l2d.networks.tabular import CONSTANT

TRAINING_INPUTS = "training_inputs"  # prefix of the summary's tensors in model.safetensors
ROWS = 10_000  # at a time, to save memory
FOLDS = 5
QUANTILE = 0.99  # of the distances of training rows, each from the other folds; a row beyond it is far


@dataclass(frozen=True)
class Sums:
    """Sums over n rows: the differences from a centre and their squares [F]. A rough mean as centre, so that no digits are lost."""

    n: int
    total: Tensor
    squares: Tensor

    @classmethod
    def of(cls, source: Tensor, rows: Tensor, centre: Tensor) -> "Sums":
        found = cls(0, torch.zeros_like(centre), torch.zeros_like(centre))
        for part in rows.split(ROWS):
            differences = source[part].double() - centre
            found += cls(len(part), differences.sum(dim=0), differences.square().sum(dim=0))
        return found

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.n + other.n, self.total + other.total, self.squares + other.squares)

    def __sub__(self, other: "Sums") -> "Sums":
        return Sums(self.n - other.n, self.total - other.total, self.squares - other.squares)

    def mean_and_std(self, centre: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.total / self.n
        variance = (self.squares - self.n * mean.square()) / max(1, self.n - 1)
        return centre + mean, variance.clamp(min=0).sqrt()


@dataclass(frozen=True)
class InputSummary:
    """mean, std [F]: of the training rows. limit: a scalar, the distance that 99 % of them do not exceed, each measured by rows of
    other folds: by its own rows it would be too small for a new one, above all in few rows with many columns."""

    mean: Tensor
    std: Tensor
    limit: Tensor

    @classmethod
    def of(cls, source: Tensor, rows: Tensor | None = None) -> "InputSummary | None":
        """rows: the training rows of the source; None: all. None unless they are numbers, such as features or embeddings."""
        rows = torch.arange(len(source)) if rows is None else rows
        if not source.is_floating_point() or source.ndim != 2 or len(rows) < 2:
            return None
        folds = [rows[k::FOLDS] for k in range(min(FOLDS, len(rows)))]
        centre = source[rows[:ROWS]].double().mean(dim=0)
        sums = [Sums.of(source, fold, centre) for fold in folds]
        whole = reduce(add, sums)
        whole_mean, whole_std = (part.float() for part in whole.mean_and_std(centre))
        distances = []
        for fold, own in zip(folds, sums, strict=True):
            mean, std = (part.float() for part in (whole - own).mean_and_std(centre))
            std = torch.where(std < CONSTANT, whole_std, std)  # what only this fold has is rare, but not infinitely far
            distances += [standard_distance(source[part], mean, std) for part in fold.split(ROWS)]
        found = torch.cat(distances)
        # kthvalue, not quantile: that refuses more than 16 million values
        limit = found.kthvalue(max(1, int(QUANTILE * len(found)))).values
        return cls(whole_mean, whole_std, limit)

    def far(self, inputs: Tensor) -> Tensor:
        """bool [n]: whether each of the inputs [n, F] is further from the mean than 99 % of the training rows."""
        return standard_distance(inputs, self.mean, self.std) > self.limit


def summary_tensors(source: Tensor, rows: Tensor | None = None) -> dict[str, Tensor]:
    """The summary of training rows as tensors of model.safetensors; none if there is no summary."""
    found = InputSummary.of(source, rows)
    return {} if found is None else {f"{TRAINING_INPUTS}.{name}": value for name, value in vars(found).items()}


def standard_distance(inputs: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """d(x) = √(mean over columns of ((x_j − mean_j)/std_j)²), [n, F] -> [n]. A constant column counts in its own units."""
    spread = torch.where(std < CONSTANT, torch.ones_like(std), std)
    return ((inputs - mean) / spread).square().mean(dim=1).sqrt()
