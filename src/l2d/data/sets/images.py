"""CIFAR-10, CIFAR-100, CIFAR-100N, SVHN and Tiny ImageNet: downloaded once, verified, prepared. Light to import."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError

import numpy as np

from l2d.data.arrays import Arrays
from l2d.data.dataset import DatasetBase
from l2d.data.sets import prepared
from l2d.data.sets.prepared import ImageArrays
from l2d.utils.errors import L2DError
from l2d.utils.files import TEMPORARY, alone


class ImageSet(DatasetBase):
    """Prepared in <data_dir>/<name>. Raw files are looked for there and in <data_dir> before anything is downloaded."""

    gives: ClassVar[str] = "images"
    name: ClassVar[str]
    num_classes: ClassVar[int]

    def fingerprint(self, data_dir: Path) -> str:
        """A hash of the prepared arrays; empty before there are any."""
        return prepared.prepared_fingerprint(data_dir / self.name)

    def load(self, data_dir: Path) -> Arrays:
        folder = data_dir / self.name
        if not prepared.is_prepared(folder):
            self.prepare(data_dir)
        return prepared.load_prepared(folder, self.num_classes)

    def prepare(self, data_dir: Path) -> None:
        """One process does it; others wait and then find it done."""
        folder = data_dir / self.name
        data_dir.mkdir(parents=True, exist_ok=True)
        with alone(data_dir / f".{self.name}.lock", f"another process is preparing {self.name}; waiting for it"):
            for left in folder.glob(f".*{TEMPORARY}*"):  # left by a process that was killed while writing
                left.unlink(missing_ok=True)
            if not prepared.is_prepared(folder):
                print(f"preparing {self.name} in {folder}", file=sys.stderr)
                prepared.write_prepared(folder, self.find(data_dir), self.num_classes)

    def find(self, data_dir: Path) -> ImageArrays:
        own = data_dir / self.name
        for root in (own, data_dir):
            with suppress(RuntimeError, FileNotFoundError):  # missing or damaged
                return self.read(root, download=False)
        missing = f"raw files are missing or damaged in {own} and {data_dir}"
        print(f"{self.name}: {missing}; downloading", file=sys.stderr)
        try:
            own.mkdir(exist_ok=True)
            return self.read(own, download=True)
        except (URLError, OSError, RuntimeError) as error:
            problem = f"{missing}, and the download failed ({' '.join(str(error).split())})"
            advice = f"with network, run l2d prepare dataset={self.name} data_dir={data_dir}, or use another data_dir"
            raise L2DError(f"{self.name}: {problem}; {advice}") from error

    def read(self, root: Path, download: bool) -> ImageArrays:
        """Decode the raw files in `root`. Without `download`, RuntimeError or FileNotFoundError if they are missing or damaged."""
        raise NotImplementedError


def image_arrays(images: Sequence[Any], labels: Sequence[Any]) -> ImageArrays:
    pixels = [np.ascontiguousarray(part) for part in images]
    classes = [np.asarray(part).astype(np.uint8) for part in labels]
    return dict(zip(prepared.ARRAY_NAMES, (pixels[0], classes[0], pixels[1], classes[1]), strict=True))


class CIFAR10(ImageSet):
    """50,000 + 10,000 images, 32×32, 10 classes."""

    name, num_classes = "cifar10", 10

    def read(self, root: Path, download: bool) -> ImageArrays:
        from torchvision import datasets
        from torchvision.datasets.utils import check_integrity

        source: Any = {10: datasets.CIFAR10, 100: datasets.CIFAR100}[self.num_classes]
        # An archive that is already there is unpacked, not downloaded again.
        download = download or check_integrity(str(root / source.filename), source.tgz_md5)
        splits = [source(root, train=train, download=download) for train in (True, False)]
        return image_arrays([split.data for split in splits], [split.targets for split in splits])


class CIFAR100(CIFAR10):
    """50,000 + 10,000 images, 32×32, 100 classes."""

    name, num_classes = "cifar100", 100


class CIFAR100N(CIFAR100):
    """CIFAR-100's training images, from its folder: the others have no annotators. 20 % of each class are the test split."""

    def fingerprint(self, data_dir: Path) -> str:
        whole = super().fingerprint(data_dir)
        return f"{whole}-n" if whole else ""  # the same files, other splits

    def load(self, data_dir: Path) -> Arrays:
        from l2d.data.splits import stratified_split

        whole = super().load(data_dir)
        images, labels = whole.train_inputs, whole.train_labels
        train, test = stratified_split(labels, 0.2, seed=0)
        return Arrays(images[train], labels[train], images[test], labels[test], self.num_classes, origin=(train, test))


class SVHN(ImageSet):
    """73,257 + 26,032 house-number digits, 32×32."""

    name, num_classes = "svhn", 10

    def read(self, root: Path, download: bool) -> ImageArrays:
        from torchvision import datasets

        splits = [datasets.SVHN(str(root), split=split, download=download) for split in ("train", "test")]
        return image_arrays([split.data.transpose(0, 2, 3, 1) for split in splits], [split.labels for split in splits])


class TinyImageNet(ImageSet):
    """100,000 training images and, as the test split, the 10,000 labelled validation images; 64×64, 200 classes."""

    name, num_classes = "tiny_imagenet", 200
    url: ClassVar[str] = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    md5: ClassVar[str] = "90528d7ca1a48142e341f4ef8d21d0de"
    sizes: ClassVar[tuple[int, int]] = (100_000, 10_000)

    def read(self, root: Path, download: bool) -> ImageArrays:
        from torchvision.datasets.utils import check_integrity, download_and_extract_archive

        from l2d.data.inputs import decode_images

        archive, folder = root / "tiny-imagenet-200.zip", root / "tiny-imagenet-200"
        if not self.is_whole(folder) and (download or check_integrity(str(archive), self.md5)):
            download_and_extract_archive(self.url, str(root), md5=self.md5)  # does not fetch an archive again
        if not self.is_whole(folder):
            raise FileNotFoundError(f"{folder}: missing, or not all of the {sum(self.sizes):,} images are there")
        classes = sorted((folder / "wnids.txt").read_text().split())
        lines = (folder / "val" / "val_annotations.txt").read_text().splitlines()
        wnids = {file: file.parent.parent.name for file in sorted(folder.glob("train/*/images/*.JPEG"))}
        n = len(wnids)
        wnids |= {folder / "val" / "images" / name: wnid for name, wnid, *_ in (line.split("\t") for line in lines)}
        images, bad = decode_images([*wnids], (64, 64, 3))
        if bad.any():
            raise L2DError(f"{[*wnids][int(bad.argmax())]}: damaged; delete {folder} and prepare again")
        labels = [classes.index(wnid) for wnid in wnids.values()]
        return image_arrays([images[:n], images[n:]], [labels[:n], labels[n:]])

    def is_whole(self, folder: Path) -> bool:
        found = [len(list(folder.glob(f"{part}/*.JPEG"))) for part in ("train/*/images", "val/images")]
        return tuple(found) == self.sizes
