"""CIFAR-10, CIFAR-100, CIFAR-100N, SVHN and Tiny ImageNet: downloaded once, verified, prepared."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar
from urllib.error import URLError

import numpy as np
from PIL import Image
from torchvision import datasets
from torchvision.datasets.utils import check_integrity, download_and_extract_archive, extract_archive
from tqdm import tqdm

from l2d.data.arrays import Arrays, stratified_split
from l2d.data.sets.prepared import NAMES, fingerprint, is_prepared, load_prepared, write_prepared
from l2d.utils.errors import L2DError
from l2d.utils.files import TEMPORARY, alone

Raw = dict[str, np.ndarray]
ARRAYS = tuple(f"{name}.npy" for name in NAMES)


class ImageSet:
    """Prepared in <data_dir>/<name>. Raw files are looked for there and in <data_dir> before anything is downloaded."""

    name: ClassVar[str]
    num_classes: ClassVar[int]
    raw: ClassVar[tuple[str, ...]]  # what the original files are called

    def fingerprint(self, data_dir: Path) -> str:
        return fingerprint(data_dir / self.name)

    def load(self, data_dir: Path) -> Arrays:
        """The prepared arrays, made first where they are not there yet."""
        folder = data_dir / self.name
        if not is_prepared(folder):
            self.prepare(data_dir)
        return load_prepared(folder, self.num_classes)

    def prepare(self, data_dir: Path) -> None:
        """One process does it; others wait for it and then find it done."""
        folder = data_dir / self.name
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            with alone(data_dir / f".{self.name}.lock", f"another process is preparing {self.name}; waiting for it"):
                for left in folder.glob(f".*{TEMPORARY}*"):  # by a process that was killed while it wrote
                    left.unlink(missing_ok=True)
                if not is_prepared(folder):
                    print(f"preparing {self.name} in {folder}", file=sys.stderr)
                    write_prepared(folder, self.find(data_dir), self.num_classes)
        except OSError as error:
            raise L2DError(f"data_dir={data_dir}: cannot be written to ({error.strerror})") from error

    def find(self, data_dir: Path) -> Raw:
        """The raw arrays: from files that are there, or from the network."""
        for root in (data_dir / self.name, data_dir):
            try:
                return self.read(root, download=False)
            except (RuntimeError, FileNotFoundError):
                continue  # not there, or not whole
        places = [root / name for root in (data_dir / self.name, data_dir) for name in (*self.raw, *ARRAYS)]
        broken = ", ".join(str(place) for place in places if place.exists())
        if broken:
            print(f"damaged or not complete: {broken}; downloading", file=sys.stderr)
        try:
            (data_dir / self.name).mkdir(exist_ok=True)
            return self.read(data_dir / self.name, download=True)
        except (URLError, OSError, RuntimeError) as error:
            found = f"damaged or not complete: {broken}" if broken else "neither prepared arrays nor raw files"
            raise L2DError(
                f"dataset={self.name}: {found} in {data_dir / self.name} or {data_dir}, and"
                f" the download failed ({' '.join(str(error).split())}); with network, run"
                f" l2d prepare dataset={self.name} data_dir={data_dir}, or set data_dir to a folder that has them"
            ) from error

    def read(self, root: Path, download: bool) -> Raw:
        """Decode the raw files in `root`. Without `download`, RuntimeError or FileNotFoundError if they are not there or broken."""
        raise NotImplementedError


def _joined(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> Raw:
    return {
        "train_images": np.ascontiguousarray(train[0]),
        "train_labels": np.asarray(train[1]).astype(np.uint8),
        "test_images": np.ascontiguousarray(test[0]),
        "test_labels": np.asarray(test[1]).astype(np.uint8),
    }


class CIFAR10(ImageSet):
    """50,000 + 10,000 images, 32×32, 10 classes."""

    name, num_classes = "cifar10", 10
    raw = ("cifar-10-python.tar.gz", "cifar-10-batches-py")
    source: ClassVar[type[datasets.CIFAR10]] = datasets.CIFAR10

    def read(self, root: Path, download: bool) -> Raw:
        # An archive that is there already is unpacked, and nothing is fetched.
        download = download or check_integrity(str(root / self.source.filename), self.source.tgz_md5)
        splits = [self.source(root, train=train, download=download) for train in (True, False)]
        return _joined(*((np.asarray(split.data), np.asarray(split.targets)) for split in splits))


class CIFAR100(CIFAR10):
    """50,000 + 10,000 images, 32×32, 100 classes."""

    name, num_classes = "cifar100", 100
    raw = ("cifar-100-python.tar.gz", "cifar-100-python")
    source = datasets.CIFAR100


class CIFAR100N(CIFAR100):
    """The training images of CIFAR-100, in whose folder it lies: 20 % of each class are the test split, whatever the run's seed.

    CIFAR-100N's annotators labelled these 50,000 and none of CIFAR-100's test images.
    """

    test_fraction: ClassVar[float] = 0.2

    def fingerprint(self, data_dir: Path) -> str:
        whole = super().fingerprint(data_dir)
        return f"{whole}-n" if whole else ""  # the same files, other splits

    def load(self, data_dir: Path) -> Arrays:
        whole = super().load(data_dir)
        images, labels = whole.train_inputs, whole.train_labels
        train, test = stratified_split(labels, self.test_fraction, seed=0)
        return Arrays(images[train], labels[train], images[test], labels[test], self.num_classes, origin=(train, test))


class SVHN(ImageSet):
    """73,257 + 26,032 house-number digits, 32×32."""

    name, num_classes = "svhn", 10
    raw = ("train_32x32.mat", "test_32x32.mat")

    def read(self, root: Path, download: bool) -> Raw:
        splits = [datasets.SVHN(str(root), split=split, download=download) for split in ("train", "test")]
        return _joined(*((split.data.transpose(0, 2, 3, 1), split.labels) for split in splits))


class TinyImageNet(ImageSet):
    """100,000 training images and, as the test split, the 10,000 labelled validation images; 64×64, 200 classes."""

    name, num_classes = "tiny_imagenet", 200
    raw = ("tiny-imagenet-200.zip", "tiny-imagenet-200")
    url: ClassVar[str] = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    md5: ClassVar[str] = "90528d7ca1a48142e341f4ef8d21d0de"
    sizes: ClassVar[tuple[int, int]] = (100_000, 10_000)

    def read(self, root: Path, download: bool) -> Raw:
        archive, folder = root / "tiny-imagenet-200.zip", root / "tiny-imagenet-200"
        if not self._whole(folder):
            if check_integrity(str(archive), self.md5):
                extract_archive(str(archive), str(root))
            elif download:
                download_and_extract_archive(self.url, str(root), md5=self.md5)
        if not self._whole(folder):
            raise FileNotFoundError(f"{folder}: not there, or not all of {sum(self.sizes):,} images")
        classes = {wnid: label for label, wnid in enumerate(sorted((folder / "wnids.txt").read_text().split()))}
        train = [(file, classes[file.parent.parent.name]) for file in self._train(folder)]
        lines = (folder / "val" / "val_annotations.txt").read_text().splitlines()
        test = [
            (folder / "val" / "images" / file, classes[wnid]) for file, wnid, *_ in (line.split("\t") for line in lines)
        ]
        return _joined(_decode(train, "training images"), _decode(test, "test images"))

    def _train(self, folder: Path) -> list[Path]:
        return sorted(folder.glob("train/*/images/*.JPEG"))

    def _whole(self, folder: Path) -> bool:
        return (len(self._train(folder)), len(list(folder.glob("val/images/*.JPEG")))) == self.sizes


def _decode(files: list[tuple[Path, int]], what: str) -> tuple[np.ndarray, np.ndarray]:
    def pixels(file: Path) -> np.ndarray:
        try:
            with Image.open(file) as image:
                return np.asarray(image.convert("RGB"))  # some are grey
        except OSError as error:
            raise L2DError(f"{file}: damaged ({error}); delete it, or {file.parents[2]}, and prepare again") from error

    with ThreadPoolExecutor() as pool:
        decoded = pool.map(pixels, (file for file, _ in files))
        images = list(tqdm(decoded, desc=f"decoding {what}", total=len(files), disable=None))  # no bars in a log
    return np.stack(images), np.array([label for _, label in files])
