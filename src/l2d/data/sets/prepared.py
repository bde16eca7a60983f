"""Prepared image sets on disk: four arrays and a meta.json with their checksums, written once, then memory-mapped."""

import hashlib
import json
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
    """meta.json is written last."""
    return (folder / "meta.json").exists()


def write_prepared(folder: Path, arrays: ImageArrays, num_classes: int) -> None:
    """Each array whole or absent, meta.json last: an interrupted preparation starts again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ARRAY_NAMES:
        write_atomically(folder / f"{name}.npy", partial(np.save, arr=arrays[name]))
    files = {f"{name}.npy": {"sha256": file_sha256(folder / f"{name}.npy")} for name in ARRAY_NAMES}
    write_json(folder / "meta.json", {"num_classes": num_classes, "files": files})


def load_prepared(folder: Path, num_classes: int) -> Arrays:
    """The arrays, memory-mapped, after their checksums were compared."""
    import torch

    arrays = {}
    for name, sha256 in checksums(folder).items():
        file = folder / f"{name}.npy"
        if not file.exists() or file_sha256(file) != sha256:
            raise L2DError(f"{file}: missing or damaged; {AGAIN}")
        # "c": copy-on-write, so that torch sees writable memory; the file never changes
        arrays[name] = np.load(file, mmap_mode="c" if name.endswith("images") else None, allow_pickle=False)
    images = [torch.from_numpy(arrays[name]) for name in ("train_images", "test_images")]
    labels = [torch.from_numpy(arrays[name].astype(np.int64)) for name in ("train_labels", "test_labels")]
    return Arrays(images[0], labels[0], images[1], labels[1], num_classes)


def checksums(folder: Path) -> dict[str, str]:
    try:
        files = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["files"]
        return {name: files[f"{name}.npy"]["sha256"] for name in ARRAY_NAMES}
    except (ValueError, KeyError, TypeError) as error:
        raise L2DError(f"{folder / 'meta.json'}: damaged; {AGAIN}") from error


def prepared_fingerprint(folder: Path) -> str:
    """A hash of the checksums in meta.json; empty if there is none."""
    known = "".join(checksums(folder).values()) if is_prepared(folder) else ""
    return known and hashlib.sha256(known.encode()).hexdigest()[:16]


def file_sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
