"""Published image sets in their original files, read with torchvision and Pillow."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torchvision import datasets
from torchvision.datasets.utils import check_integrity, download_and_extract_archive, extract_archive
from tqdm import tqdm

from l2d.data.sets.prepared import ImageArrays
from l2d.utils.errors import L2DError

CIFAR = {10: datasets.CIFAR10, 100: datasets.CIFAR100}  # by the number of classes
# Every reader raises RuntimeError or FileNotFoundError if the files are missing or damaged and `download` is false.


def read_cifar(root: Path, num_classes: int, download: bool) -> ImageArrays:
    source: Any = CIFAR[num_classes]
    # An archive that is there already is unpacked, and nothing is fetched.
    download = download or check_integrity(str(root / source.filename), source.tgz_md5)
    splits = [source(root, train=train, download=download) for train in (True, False)]
    return _image_arrays(*((np.asarray(split.data), np.asarray(split.targets)) for split in splits))


def read_svhn(root: Path, download: bool) -> ImageArrays:
    splits = [datasets.SVHN(str(root), split=split, download=download) for split in ("train", "test")]
    return _image_arrays(*((split.data.transpose(0, 2, 3, 1), split.labels) for split in splits))


def read_tiny_imagenet(root: Path, url: str, md5: str, sizes: tuple[int, int], download: bool) -> ImageArrays:
    """sizes: how many training and test images there must be."""
    archive, folder = root / "tiny-imagenet-200.zip", root / "tiny-imagenet-200"
    if not _is_whole(folder, sizes):
        if check_integrity(str(archive), md5):
            extract_archive(str(archive), str(root))
        elif download:
            download_and_extract_archive(url, str(root), md5=md5)
    if not _is_whole(folder, sizes):
        raise FileNotFoundError(f"{folder}: missing, or not all of the {sum(sizes):,} images are there")
    classes = {wnid: label for label, wnid in enumerate(sorted((folder / "wnids.txt").read_text().split()))}
    train = [(file, classes[file.parent.parent.name]) for file in _training_files(folder)]
    lines = (folder / "val" / "val_annotations.txt").read_text().splitlines()
    named = (line.split("\t") for line in lines)
    test = [(folder / "val" / "images" / file, classes[wnid]) for file, wnid, *_ in named]
    return _image_arrays(_decode(train, "training images"), _decode(test, "test images"))


def _training_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("train/*/images/*.JPEG"))


def _is_whole(folder: Path, sizes: tuple[int, int]) -> bool:
    return (len(_training_files(folder)), len(list(folder.glob("val/images/*.JPEG")))) == sizes


def _image_arrays(train: tuple[np.ndarray, np.ndarray], test: tuple[np.ndarray, np.ndarray]) -> ImageArrays:
    return {
        "train_images": np.ascontiguousarray(train[0]),
        "train_labels": np.asarray(train[1]).astype(np.uint8),
        "test_images": np.ascontiguousarray(test[0]),
        "test_labels": np.asarray(test[1]).astype(np.uint8),
    }


def _decode(files: list[tuple[Path, int]], what: str) -> tuple[np.ndarray, np.ndarray]:
    with ThreadPoolExecutor() as pool:
        decoded = pool.map(_pixels, (file for file, _ in files))
        images = list(tqdm(decoded, desc=f"decoding {what}", total=len(files), disable=None))  # no bars in a log
    return np.stack(images), np.array([label for _, label in files])


def _pixels(file: Path) -> np.ndarray:
    try:
        with Image.open(file) as image:
            return np.asarray(image.convert("RGB"))  # some are grey
    except OSError as error:
        raise L2DError(f"{file}: damaged ({error}); delete it, or {file.parents[2]}, and prepare again") from error
