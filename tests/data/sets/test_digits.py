"""scikit-learn's digits."""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from l2d.data.sets.digits import Digits


def test_all_of_scikit_learns_digits_once() -> None:
    arrays = Digits().load(Path())
    assert arrays.train_inputs.shape == (1437, 8, 8, 1)
    assert arrays.test_inputs.shape == (360, 8, 8, 1)
    assert arrays.train_inputs.dtype == torch.uint8

    def rows(images: np.ndarray, labels: np.ndarray) -> list[bytes]:
        return sorted(
            image.astype(np.uint8).tobytes() + bytes([label]) for image, label in zip(images, labels, strict=True)
        )

    both = torch.cat([arrays.train_inputs, arrays.test_inputs])[..., 0].numpy()
    labels = torch.cat([arrays.train_labels, arrays.test_labels]).numpy()
    source = load_digits()
    assert rows(both, labels) == rows(source.images, source.target)


def test_test_split_is_fixed_and_stratified() -> None:
    first, second = Digits().load(Path()), Digits().load(Path())
    assert torch.equal(first.test_inputs, second.test_inputs)
    source = load_digits()
    _, rows = train_test_split(np.arange(1797), test_size=0.2, stratify=source.target, random_state=0)
    assert torch.equal(first.test_inputs[..., 0], torch.tensor(source.images[np.sort(rows)]).to(torch.uint8))
    assert first.seen.white == source.images.max() == 16
    total = torch.bincount(torch.cat([first.train_labels, first.test_labels]))
    assert ((torch.bincount(first.test_labels) - 0.2 * total).abs() < 1).all()
