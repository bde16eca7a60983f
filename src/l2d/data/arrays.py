"""A dataset as arrays, and the split of its rows."""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from l2d.errors import L2DError


@dataclass(frozen=True)
class Arrays:
    """Inputs (uint8 images [N, H, W, C]) and int64 labels [N] of both splits; large sets are memory-mapped."""

    train_inputs: Tensor
    train_labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    num_classes: int


def stratified_split(labels: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Sorted row numbers (kept, held out), each class held out in proportion."""
    rows = np.arange(len(labels))
    try:
        kept, held_out = train_test_split(rows, test_size=fraction, stratify=labels.numpy(), random_state=seed)
    except ValueError as error:
        raise L2DError(f"validation_fraction={fraction}: {error}") from error
    return torch.from_numpy(np.sort(kept)), torch.from_numpy(np.sort(held_out))
