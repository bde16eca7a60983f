"""Predictions that were expensive to make, kept under runs/experts/ by the content of what made them.

An entry is a folder: arrays.npz (no pickle), and entry.json, written last, with the checksum of the arrays and everything that its
name is a hash of.
"""

import hashlib
import io
import json
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from l2d.errors import L2DError
from l2d.files import write_atomically, write_json

Made = Mapping[str, np.ndarray]
LOCK = ".lock"
# Raise it when the same settings come to give other predictions, so that old entries are not taken for new ones.
VERSION = 1


@dataclass(frozen=True)
class Cache:
    """folder: where entries lie. title: the readable part of an entry's name. identity: what the arrays follow from, in plain
    values."""

    folder: Path
    title: str = "experts"
    identity: Mapping[str, Any] = field(default_factory=dict)
    renew: bool = False

    def knowing(self, **facts: Any) -> "Cache":
        """The same cache with more facts in the identity."""
        return replace(self, identity={**self.identity, **facts})

    @property
    def entry(self) -> Path:
        text = json.dumps([VERSION, self.identity], sort_keys=True)
        return self.folder / f"{self.title}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def get(self, make: Callable[[], Made]) -> dict[str, np.ndarray]:
        """The arrays of this identity: read, or made by exactly one of the processes that want them while the others wait. With
        `renew` they are made in any case."""
        arrays, _ = self._read()
        if arrays is not None and not self.renew:
            return arrays
        try:
            self.entry.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.entry / LOCK)
            try:
                lock.acquire(blocking=False)
            except filelock.Timeout:
                print(f"another process is making these experts; waiting for it ({self.entry})", file=sys.stderr)
                lock.acquire()
        except OSError as error:
            raise L2DError(f"runs_dir: cannot write to {self.entry} ({error.strerror})") from error
        try:
            arrays, damage = self._read()
            if arrays is not None and not self.renew:
                return arrays
            if damage:
                print(f"{self.entry}: damaged ({damage}); made anew", file=sys.stderr)
            self._clear()
            begun = time.monotonic()
            made = make()
            try:
                self._write(made, time.monotonic() - begun)
            except OSError as error:
                raise L2DError(f"runs_dir: cannot write to {self.entry} ({error.strerror})") from error
            return dict(made)
        finally:
            lock.release()

    def _read(self) -> tuple[dict[str, np.ndarray] | None, str]:
        """The arrays, or None and what is wrong with them (nothing where the entry is not there)."""
        try:
            known = json.loads((self.entry / "entry.json").read_text(encoding="utf-8"))
            content = (self.entry / "arrays.npz").read_bytes()
            if hashlib.sha256(content).hexdigest() != known["sha256"]:
                return None, "the checksum of arrays.npz is another"
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                return dict(arrays), ""
        except (FileNotFoundError, NotADirectoryError) as error:
            there = (self.entry / "entry.json").exists()
            return None, f"{Path(error.filename).name} is missing" if there else ""
        except OSError as error:  # it may be whole all the same
            raise L2DError(f"runs_dir: cannot read {self.entry} ({error.strerror}); delete it if that lasts") from error
        except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
            return None, f"entry.json: {type(error).__name__}"

    def _clear(self) -> None:
        """Whatever a killed process or a damage left; entry.json first, so that the rest never looks whole."""
        (self.entry / "entry.json").unlink(missing_ok=True)
        for path in self.entry.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()

    @property
    def seconds(self) -> float | None:
        """How long the making of this entry took; None where there is none."""
        try:
            return float(json.loads((self.entry / "entry.json").read_text(encoding="utf-8"))["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, arrays: Made, seconds: float) -> None:
        def save(path: Path) -> None:
            np.savez_compressed(path, **arrays)  # type: ignore[arg-type]

        write_atomically(self.entry / "arrays.npz", save)
        checksum = hashlib.sha256((self.entry / "arrays.npz").read_bytes()).hexdigest()
        made = {"version": VERSION, "seconds": round(seconds, 2), "identity": self.identity}
        write_json(self.entry / "entry.json", {"sha256": checksum, **made})
