"""Finished pieces of a long job, each in a file that is written atomically and has its checksum in its name."""

import hashlib
import io
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically


class PartFiles:
    """folder: None to keep nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, number: int, rows: Sequence[int]) -> dict[str, np.ndarray] | None:
        """The arrays of this piece, if they are there, undamaged, and of these rows."""
        if self.folder is None:
            return None
        for file in sorted(self.folder.glob(f"{number:05d}-*.npz")):
            try:
                content = file.read_bytes()
            except OSError as error:
                raise L2DError(f"{file}: cannot be read ({error.strerror})") from error
            found = _load(content) if content_checksum(content) == file.stem.partition("-")[2] else None
            if found is not None and np.array_equal(found.pop("rows", np.empty(0)), rows):
                return found
            print(f"{file}: damaged, or of other questions; making it again", file=sys.stderr)
            file.unlink(missing_ok=True)
        return None

    def write(self, number: int, rows: Sequence[int], arrays: Mapping[str, np.ndarray]) -> None:
        if self.folder is None:
            return
        buffer = io.BytesIO()
        np.savez(buffer, rows=np.array(rows), **arrays)  # type: ignore[arg-type]
        content = buffer.getvalue()
        file = self.folder / f"{number:05d}-{content_checksum(content)}.npz"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(file, lambda temporary: temporary.write_bytes(content))
        except OSError as error:
            raise L2DError(f"{file}: cannot be written ({error.strerror}); choose another runs_dir") from error


def content_checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _load(content: bytes) -> dict[str, np.ndarray] | None:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
