"""Simulated experts: right on their own classes, guessing elsewhere (Appendix, "Image Classification Setup Details")."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from l2d.data.arrays import Arrays
from l2d.experts.partition import class_owners
from l2d.seeding import stream


def synthetic_predictions(labels: Tensor, owners: Tensor, rng: np.random.Generator) -> Tensor:
    """g_k(x) = y where expert k owns class y, else uniform over all classes (so sometimes right by luck).

    labels int [N], owners int [num_classes] -> int64 [N, p].
    """
    p = int(owners.max()) + 1
    guesses = torch.from_numpy(rng.integers(0, len(owners), size=(len(labels), p)))
    knows = owners[labels][:, None] == torch.arange(p)
    return torch.where(knows, labels[:, None], guesses)


class SyntheticExperts:
    """Drawn once per seed; the training and test draws are independent streams."""

    def predict(self, arrays: Arrays, coverage: Sequence[float], seed: int) -> tuple[Tensor, Tensor]:
        """Predictions [N, p] on the training rows and on the test rows."""
        owners = class_owners(coverage, arrays.num_classes)
        return (
            synthetic_predictions(arrays.train_labels, owners, stream(seed, "experts", "train")),
            synthetic_predictions(arrays.test_labels, owners, stream(seed, "experts", "test")),
        )
