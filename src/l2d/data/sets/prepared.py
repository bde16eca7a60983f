"""Prepared image sets on disk: four arrays and a meta.json with their checksums, written once, then memory-mapped."""

import hashlib
import json
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from l2d.data.arrays import Arrays
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically, write_json

ARRAY_NAMES = ("train_images", "train_labels", "test_images", "test_labels")
AGAIN = "delete meta.json and the .npy files beside it and prepare it again"  # raw files may be there too and must stay
ImageArrays = dict[str, np.ndarray]  # by the names of ARRAY_NAMES


def is_prepared(folder: Path) -> bool:
    """meta.json is written last. Arrays without one were put there by hand; they are checked before it is written."""
    return (folder / "meta.json").exists() or all((folder / f"{name}.npy").exists() for name in ARRAY_NAMES)


def write_prepared(folder: Path, arrays: ImageArrays, num_classes: int, *, there: bool = False) -> None:
    """Each array whole or absent, meta.json last: an interrupted preparation starts again. there: only meta.json is written."""
    check_arrays(folder, arrays, num_classes)
    folder.mkdir(parents=True, exist_ok=True)
    for name in () if there else ARRAY_NAMES:
        write_atomically(folder / f"{name}.npy", partial(np.save, arr=arrays[name]))
    files = {f"{name}.npy": {"sha256": file_sha256(folder / f"{name}.npy")} for name in ARRAY_NAMES}
    write_json(folder / "meta.json", {"num_classes": num_classes, "files": files})


def load_prepared(folder: Path, num_classes: int) -> Arrays:
    """The arrays, memory-mapped, after their checksums were compared."""
    import torch

    by_hand, arrays = not (folder / "meta.json").exists(), {}
    for name, sha256 in (dict.fromkeys(ARRAY_NAMES) if by_hand else checksums(folder)).items():
        file = folder / f"{name}.npy"
        if sha256 is not None and (not file.exists() or file_sha256(file) != sha256):
            raise L2DError(f"{file}: missing or damaged; {AGAIN}")
        # "c": copy-on-write, so that torch sees writable memory; the file never changes
        try:
            arrays[name] = np.load(file, mmap_mode="c" if name.endswith("images") else None, allow_pickle=False)
        except ValueError as error:
            raise L2DError(f"{file}: not a readable array ({error}); {AGAIN}") from error
    check_arrays(folder, arrays, num_classes)
    with suppress(OSError):  # the folder may be read-only
        if by_hand:
            write_prepared(folder, arrays, num_classes, there=True)
    images = [torch.from_numpy(arrays[name]) for name in ("train_images", "test_images")]
    labels = [torch.from_numpy(arrays[name].astype(np.int64)) for name in ("train_labels", "test_labels")]
    return Arrays(images[0], labels[0], images[1], labels[1], num_classes)


def check_arrays(folder: Path, arrays: ImageArrays, num_classes: int) -> None:
    """uint8 images [N, H, W, C], of one shape in both splits, and as many labels in 0..num_classes−1."""
    shape = arrays["train_images"].shape[1:]
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        found = f"{images.dtype} {list(images.shape)}"
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3) or images.shape[1:] != shape:
            raise L2DError(f"{folder}/{split}_images.npy: expected uint8 [N, H, W, C] of one shape, found {found}")
        whole = labels.shape == (len(images),) and labels.dtype.kind in "iu" and len(labels) > 0
        if not whole or labels.min() < 0 or labels.max() >= num_classes:
            raise L2DError(f"{folder}/{split}_labels.npy: expected {len(images)} integers in 0..{num_classes - 1}")


def checksums(folder: Path) -> dict[str, str]:
    try:
        files = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["files"]
        return {name: files[f"{name}.npy"]["sha256"] for name in ARRAY_NAMES}
    except (ValueError, KeyError, TypeError) as error:
        raise L2DError(f"{folder / 'meta.json'}: damaged; {AGAIN}") from error


def prepared_fingerprint(folder: Path) -> str:
    """A hash of the checksums in meta.json; empty if there is none."""
    known = "".join(checksums(folder).values()) if (folder / "meta.json").exists() else ""
    return known and hashlib.sha256(known.encode()).hexdigest()[:16]


def file_sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
