"""Prepared image sets on disk: four arrays and a meta.json with their checksums, written once, then memory-mapped."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l2d.data.arrays import Arrays
from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically, write_json

if TYPE_CHECKING:
    from torch import Tensor

ARRAY_NAMES = ("train_images", "train_labels", "test_images", "test_labels")
ImageArrays = dict[str, np.ndarray]  # by the names of ARRAY_NAMES


def again(folder: Path) -> str:
    """What to do about a damaged set. Raw files may be in the same folder and must stay."""
    return f"delete the .npy files and meta.json in {folder} and prepare it again"


def is_prepared(folder: Path) -> bool:
    """meta.json is written last. Arrays without one were put there by hand; they are checked before it is written."""
    return (folder / "meta.json").exists() or all((folder / f"{name}.npy").exists() for name in ARRAY_NAMES)


def write_prepared(folder: Path, arrays: ImageArrays, num_classes: int) -> None:
    """Each array whole or absent, meta.json last: an interrupted preparation starts again."""
    check_arrays(folder, arrays, num_classes)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARRAY_NAMES:
        write_atomically(folder / f"{name}.npy", lambda path, name=name: np.save(path, arrays[name]))  # type: ignore[misc]
    write_meta(folder, arrays, num_classes)


def write_meta(folder: Path, arrays: ImageArrays, num_classes: int) -> None:
    files = {
        f"{name}.npy": {"sha256": file_sha256(folder / f"{name}.npy"), "shape": list(arrays[name].shape)}
        for name in ARRAY_NAMES
    }
    write_json(folder / "meta.json", {"num_classes": num_classes, "files": files})


def load_prepared(folder: Path, num_classes: int) -> Arrays:
    """The arrays, memory-mapped, after their checksums were compared."""
    import torch

    if (folder / "meta.json").exists():
        verify_checksums(folder)
    arrays = open_arrays(folder)
    check_arrays(folder, arrays, num_classes)
    if not (folder / "meta.json").exists():
        with suppress(OSError):  # the folder may be read-only
            write_meta(folder, arrays, num_classes)

    def labels(name: str) -> Tensor:
        return torch.from_numpy(np.asarray(arrays[name], dtype=np.int64))

    return Arrays(
        torch.from_numpy(arrays["train_images"]),
        labels("train_labels"),
        torch.from_numpy(arrays["test_images"]),
        labels("test_labels"),
        num_classes,
    )


def open_arrays(folder: Path) -> ImageArrays:
    arrays = {}
    for name in ARRAY_NAMES:
        file = folder / f"{name}.npy"
        try:
            # "c": private pages, so that torch may take them for writable; nothing reaches the file
            arrays[name] = np.load(file, mmap_mode="c" if name.endswith("images") else None, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise L2DError(f"{file}: not a readable array ({error}); {again(folder)}") from error
    return arrays


def check_arrays(folder: Path, arrays: ImageArrays, num_classes: int) -> None:
    """uint8 images [N, H, W, C] and as many labels in 0..num_classes−1."""
    for split in ("train", "test"):
        images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
        where = folder / f"{split}_images.npy"
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
            raise L2DError(f"{where}: expected uint8 images [N, H, W, C], found {images.dtype} {list(images.shape)}")
        if images.shape[1:] != arrays["train_images"].shape[1:]:
            shapes = [list(arrays[f"{name}_images"].shape[1:]) for name in ("train", "test")]
            raise L2DError(
                f"{where}: training images are {shapes[0]}, test images {shapes[1]}; they must have one shape"
            )
        where = folder / f"{split}_labels.npy"
        if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
            raise L2DError(f"{where}: expected {len(images)} integers, found {labels.dtype} {list(labels.shape)}")
        if len(labels) == 0 or labels.min() < 0 or labels.max() >= num_classes:
            raise L2DError(f"{where}: labels must lie in 0..{num_classes - 1}")


def verify_checksums(folder: Path) -> None:
    try:
        meta: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        known = {f"{name}.npy": meta["files"][f"{name}.npy"]["sha256"] for name in ARRAY_NAMES}
    except (ValueError, KeyError, TypeError) as error:
        raise L2DError(f"{folder / 'meta.json'}: damaged; {again(folder)}") from error
    for name, sha256 in known.items():
        file = folder / name
        if not file.exists():
            raise L2DError(f"{file}: missing; {again(folder)}")
        if file_sha256(file) != sha256:
            raise L2DError(f"{file}: damaged, its checksum differs from the one in meta.json; {again(folder)}")


def prepared_fingerprint(folder: Path) -> str:
    """From the checksums in meta.json; empty if there is none."""
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        sums = [meta["files"][f"{name}.npy"]["sha256"] for name in ARRAY_NAMES]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return hashlib.sha256("".join(sums).encode()).hexdigest()[:16]


def file_sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
