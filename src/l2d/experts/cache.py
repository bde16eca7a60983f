"""A cache of expensive predictions, under runs/experts/. An entry is a folder: arrays.npz and, written last, entry.json with their
checksum and all that they depend on; while it is being made, parts/, from which the next process resumes after a kill."""

import hashlib
import io
import json
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from l2d.utils.files import alone, clear_folder, write_atomically, write_json
from l2d.utils.identity import identity_hash

Made = Mapping[str, np.ndarray]
LOCK = ".lock"
# Raise it when the same settings give different predictions than before: old entries are then ignored.
VERSION = 2


@dataclass(frozen=True)
class Cache:
    """folder: holds all entries. title: the readable part of an entry's name. identity: what the arrays depend on, as plain values
    without class paths (l2d.utils.identity). renew: ignore an existing entry and make the arrays from scratch."""

    folder: Path
    title: str = "experts"
    identity: Mapping[str, Any] = field(default_factory=dict)
    renew: bool = False

    def knowing(self, **facts: Any) -> "Cache":
        """The same cache with more facts in the identity."""
        return replace(self, identity={**self.identity, **facts})

    @property
    def entry(self) -> Path:
        return self.folder / f"{self.title}-{identity_hash([VERSION, self.identity], 12)}"

    @property
    def parts(self) -> Path:
        """Where `make` may keep finished pieces. They stay until the entry is whole."""
        return self.entry / "parts"

    def get(self, make: Callable[[], Made]) -> dict[str, np.ndarray]:
        """The arrays of this identity: read, or made by exactly one process while the others wait."""
        if not self.renew and (arrays := self._read()) is not None:
            return arrays
        waiting = f"another process is making these experts; waiting for it ({self.entry})"
        self.entry.mkdir(parents=True, exist_ok=True)
        with alone(self.entry / LOCK, waiting):
            if not self.renew and (arrays := self._read()) is not None:
                return arrays
            clear_folder(self.entry, first="entry.json", keep=[LOCK] if self.renew else [LOCK, self.parts.name])
            begun = time.monotonic()
            made = make()
            self._write(made, time.monotonic() - begun)
            shutil.rmtree(self.parts, ignore_errors=True)
            return dict(made)

    def _read(self) -> dict[str, np.ndarray] | None:
        """The arrays; None if there is no entry, or a damaged one."""
        if not (self.entry / "entry.json").exists():
            return None
        with suppress(FileNotFoundError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            known = json.loads((self.entry / "entry.json").read_text(encoding="utf-8"))
            content = (self.entry / "arrays.npz").read_bytes()
            if hashlib.sha256(content).hexdigest() == known["sha256"]:
                with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                    return dict(arrays)
        print(f"{self.entry}: damaged", file=sys.stderr)
        return None

    def _write(self, arrays: Made, seconds: float) -> None:
        write_atomically(self.entry / "arrays.npz", lambda path: np.savez_compressed(path, **arrays))  # type: ignore[arg-type]
        checksum = hashlib.sha256((self.entry / "arrays.npz").read_bytes()).hexdigest()
        made = {"version": VERSION, "seconds": round(seconds, 2), "identity": self.identity}
        write_json(self.entry / "entry.json", {"sha256": checksum, **made})
