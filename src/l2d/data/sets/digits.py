"""scikit-learn's handwritten digits: 1,797 real 8×8 images that come with the package."""

from pathlib import Path
from typing import ClassVar

from l2d.data.arrays import Arrays, Seen
from l2d.data.dataset import DatasetBase


class Digits(DatasetBase):
    """20 % of each class are the test split, the same for every seed."""

    gives: ClassVar[str] = "images"

    def fingerprint(self, data_dir: Path) -> str:  # noqa: ARG002
        return ""  # there is only one version

    def load(self, data_dir: Path) -> Arrays:  # noqa: ARG002
        import torch
        from sklearn.datasets import load_digits

        from l2d.data.splits import stratified_split

        digits = load_digits()
        images = torch.from_numpy(digits.images).to(torch.uint8)[..., None]
        labels = torch.from_numpy(digits.target).long()
        train, test = stratified_split(labels, 0.2, seed=0)
        seen = Seen(white=16)  # the largest pixel value
        return Arrays(images[train], labels[train], images[test], labels[test], num_classes=10, seen=seen)
