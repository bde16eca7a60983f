"""Files of people's labels as they were published, for 60 training and 40 test images."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.data.arrays import Arrays

TRAIN, TEST = 60, 40
TEN, HUNDRED, VOTES = "CIFAR-10_human.pt", "CIFAR-100_human.pt", "cifar10h-counts.npy"
PEOPLE = ("random_label1", "random_label2", "random_label3")
RNG = np.random.default_rng(0)
LABELS = (RNG.integers(0, 10, TRAIN), RNG.integers(0, 10, TEST))


def ten(**changes: Any) -> dict[str, Any]:
    """CIFAR-10N's file, of 60 images; people are wrong about every second time."""
    guesses = {name: np.where(RNG.random(TRAIN) < 0.5, LABELS[0], RNG.integers(0, 10, TRAIN)) for name in PEOPLE}
    others = {"clean_label": LABELS[0], "aggre_label": LABELS[0], "worse_label": guesses[PEOPLE[2]]}
    return {**others, **guesses, **changes}


def hundred() -> dict[str, np.ndarray]:
    """CIFAR-100N's, of 100 images in 10 classes."""
    clean = np.arange(100) % 10
    return {"clean_label": clean, "noisy_label": np.where(RNG.random(100) < 0.6, clean, RNG.integers(0, 10, 100))}


def counts(labels: np.ndarray = LABELS[1]) -> np.ndarray:
    """CIFAR-10H's: 7 of 10 votes for the label, 3 for the next two classes."""
    table = np.zeros((len(labels), 10), np.int64)
    for row, label in enumerate(labels):
        table[row, label], table[row, (label + 1) % 10], table[row, (label + 2) % 10] = 7, 2, 1
    return table


def arrays(origin: tuple[Tensor, Tensor] | None = None, num_classes: int = 10) -> Arrays:
    """Images that tell their row by their pixel: the row of the published set where they were taken from one."""
    train, test = origin or (torch.arange(TRAIN), torch.arange(TEST))
    labels = (train % 10, test % 10) if origin else tuple(torch.from_numpy(part) for part in LABELS)
    return Arrays(train, labels[0], test, labels[1], num_classes, origin=origin)


def carved() -> Arrays:
    order = torch.from_numpy(np.random.default_rng(5).permutation(100))
    return arrays((order[:70], order[70:]))  # not even sorted


def load(data_dir: Path, name: str) -> dict[str, np.ndarray]:
    """As the authors read it."""
    content: dict[str, np.ndarray] = torch.load(data_dir / "human" / name, weights_only=False)
    return content
