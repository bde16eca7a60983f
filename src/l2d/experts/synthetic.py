"""Simulated experts: right on their own classes, guessing elsewhere (Appendix, "Image Classification Setup Details")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from l2d.data.arrays import Panel
from l2d.experts.partition import class_owners, class_panel
from l2d.experts.request import ExpertRequest, Experts
from l2d.utils.parameters import Seed
from l2d.utils.seeding import stream

if TYPE_CHECKING:
    from torch import Tensor


def synthetic_predictions(labels: Tensor, owners: Tensor, rng: np.random.Generator) -> Tensor:
    """int64 [N, p]: g_k(x) = y where expert k owns class y, else uniform over all classes. owners int [num_classes]."""
    import torch

    p = int(owners.max()) + 1
    guesses = torch.from_numpy(rng.integers(0, len(owners), size=(len(labels), p)))
    return torch.where(owners[labels][:, None] == torch.arange(p), labels[:, None], guesses)


class SyntheticExperts(Experts):
    """Drawn once per seed, training and test from independent streams. Not cached: drawing is faster than reading."""

    def __init__(self, *, seed: Seed | None = None) -> None:
        self.seed = seed

    def panel(self, request: ExpertRequest) -> Panel:
        arrays = request.arrays
        owners = class_owners(request.coverage, arrays.num_classes)
        train = synthetic_predictions(arrays.train_labels, owners, stream(request.seed, "experts", "train"))
        test = synthetic_predictions(arrays.test_labels, owners, stream(request.seed, "experts", "test"))
        return class_panel(arrays, request.coverage, train, test)
