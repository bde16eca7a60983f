"""Drift of new inputs from the training rows: a standardised distance, and how large it is on rows that were left out."""

from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.networks.tabular import CONSTANT

TRAINING_INPUTS = "training_inputs"  # prefix of the summary's tensors in model.safetensors
ROWS = 10_000  # at a time, to save memory
FOLDS = 5
QUANTILE = 0.99  # of the distances of training rows, each from the other folds; a row beyond it is far


def sums_of(source: Tensor, rows: Tensor, centre: Tensor) -> Tensor:
    """[3, F]: the number of rows, the sum of their differences from a centre, and of the squares of these. A rough mean as centre,
    so that no digits are lost."""
    found = centre.new_zeros(3, len(centre))
    for part in rows.split(ROWS):
        differences = source[part].double() - centre
        count = torch.full_like(centre, len(part))
        found += torch.stack([count, differences.sum(dim=0), differences.square().sum(dim=0)])
    return found


def mean_and_std(sums: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    n, total, squares = sums
    variance = (squares - n * (total / n).square()) / (n - 1).clamp(min=1)
    return (centre + total / n).float(), variance.clamp(min=0).sqrt().float()


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
        sums = torch.stack([sums_of(source, fold, centre) for fold in folds])
        whole = sums.sum(dim=0)
        whole_mean, whole_std = mean_and_std(whole, centre)
        distances = []
        for fold, own in zip(folds, sums, strict=True):
            mean, std = mean_and_std(whole - own, centre)
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
