"""Whether new inputs look like the training rows: a standardised distance, and how large it is on the training rows themselves."""

from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.networks.tabular import CONSTANT

TRAINING_INPUTS = "training_inputs"  # prefix of the summary's tensors in model.safetensors
ROWS = 10_000  # at a time, to save memory
QUANTILE = 0.99  # of the distances of training rows; a row beyond it is far


@dataclass(frozen=True)
class InputSummary:
    """mean, std [F]: of the training rows. limit: a scalar, the distance that 99 % of them do not exceed."""

    mean: Tensor
    std: Tensor
    limit: Tensor

    @classmethod
    def of(cls, inputs: Tensor) -> "InputSummary | None":
        """inputs: of the training rows. None unless they are rows of numbers, such as features or embeddings."""
        if not inputs.is_floating_point() or inputs.ndim != 2 or len(inputs) < 2:
            return None
        mean, std = inputs.mean(dim=0), inputs.std(dim=0)
        distances = torch.cat([standard_distance(part, mean, std) for part in inputs.split(ROWS)])
        # kthvalue, not quantile: that refuses more than 16 million values
        limit = distances.kthvalue(max(1, int(QUANTILE * len(distances)))).values
        return cls(mean, std, limit)

    def far(self, inputs: Tensor) -> Tensor:
        """bool [n]: whether each of the inputs [n, F] is further from the mean than 99 % of the training rows."""
        return standard_distance(inputs, self.mean, self.std) > self.limit


def summary_tensors(inputs: Tensor) -> dict[str, Tensor]:
    """The summary of training rows as tensors of model.safetensors; none if there is no summary."""
    found = InputSummary.of(inputs)
    return {} if found is None else {f"{TRAINING_INPUTS}.{name}": value for name, value in vars(found).items()}


def standard_distance(inputs: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """d(x) = √(mean over columns of ((x_j − mean_j)/std_j)²), [n, F] -> [n]. A constant column counts in its own units."""
    spread = torch.where(std < CONSTANT, torch.ones_like(std), std)
    return ((inputs - mean) / spread).square().mean(dim=1).sqrt()
