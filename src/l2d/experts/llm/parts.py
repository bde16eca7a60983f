"""Finished pieces of a long job, each in a file that is written atomically."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from l2d.utils.files import write_atomically


class PartFiles:
    """folder: None to keep nothing."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, number: int, rows: Sequence[int]) -> dict[str, np.ndarray] | None:
        """The arrays of this piece, if they are there, undamaged (the format has checksums), and of these rows."""
        if self.folder is None or not (file := self.folder / f"{number:05d}.npz").exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as arrays:
                found = dict(arrays)
            whole = np.array_equal(found.pop("rows"), rows)
        except Exception:  # a damaged file may raise anything
            whole = False
        if whole:
            return found
        print(f"{file}: damaged, or of other questions; making it again", file=sys.stderr)
        return None

    def write(self, number: int, rows: Sequence[int], arrays: Mapping[str, np.ndarray]) -> None:
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        file, numbers = self.folder / f"{number:05d}.npz", np.array(rows)
        write_atomically(file, lambda path: np.savez(path, rows=numbers, **arrays))  # type: ignore[arg-type]
