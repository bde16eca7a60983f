"""scikit-learn's digits."""

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from l2d.data.sets.digits import Digits


def test_all_of_scikit_learns_digits_in_its_stratified_split() -> None:
    arrays, source = Digits().load(Path()), load_digits()
    train, test = train_test_split(np.arange(1797), test_size=0.2, stratify=source.target, random_state=0)
    sides = (train, arrays.train_inputs, arrays.train_labels), (test, arrays.test_inputs, arrays.test_labels)
    for rows, images, labels in sides:
        assert images.dtype == torch.uint8
        assert torch.equal(images[..., 0], torch.tensor(source.images[np.sort(rows)]).to(torch.uint8))
        assert labels.tolist() == source.target[np.sort(rows)].tolist()
    assert arrays.seen.white == source.images.max() == 16
