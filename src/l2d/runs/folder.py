"""The run folder: its path, its state and its files."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock
import yaml

from l2d.config.identity import cell_path
from l2d.core.results import RunMetrics, read_metrics
from l2d.utils.errors import Busy, L2DError
from l2d.utils.files import CANDIDATES, TEMPORARY, clear_folder, write_atomically, write_json, write_text

if TYPE_CHECKING:
    import numpy as np

LOCK, FOLDS = ".lock", "folds"
SAVED = "router.json"  # of a router that was saved without a run
WANTED = "give one of runs/.../seed=<s>, or a folder that router.save made"
LARGEST, MOST_PARTS, DEEPEST = 1_000_000, 100_000, 50  # of a config: bytes, values, levels


def is_small(content: Any) -> bool:
    """False if YAML's aliases make it endless or very large, or if it is nested too deep to be walked through."""
    waiting, seen = [(content, 0)], 0
    while waiting:
        part, depth = waiting.pop()
        inside = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        waiting += [(one, depth + 1) for one in inside]
        seen += 1 + len(inside)
        if depth > DEEPEST or seen > MOST_PARTS:
            return False
    return True


@dataclass(frozen=True)
class RunFolder:
    """runs/<dataset>/<setup>/<experts>/<cost>/<method>/<variant>/seed=<s>/; finished if and only if metrics.json is there."""

    path: Path

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "RunFolder":
        """The folder of a resolved config."""
        return cls(Path(config["runs_dir"]).expanduser() / cell_path(config) / f"seed={config['seed']}")

    @property
    def finished(self) -> bool:
        try:
            return (self.path / "metrics.json").exists()
        except OSError as error:
            raise L2DError(f"runs_dir: cannot read {self.path} ({error.strerror})") from error

    @property
    def standing(self) -> str:
        if self.finished:
            return "finished"
        return "missing" if self.last_checkpoint is None and not self.folds.exists() else "begun"

    def config(self) -> dict[str, Any]:
        """The config of a finished run or a saved router. Raises L2DError if there is none."""
        file = self.path / "config.yaml"
        if not file.is_file():  # a pipe would never end
            lacks = "not a run's folder (no config.yaml)" if self.path.is_dir() else "no such folder"
            raise L2DError(f"{self.path}: {lacks}; {WANTED}")
        if not self.finished and not (self.path / SAVED).exists():
            raise L2DError(f"{self.path}: this run is not finished; the same l2d train command resumes it")
        try:
            content = None if file.stat().st_size > LARGEST else yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            content = None
        if not (isinstance(content, dict) and is_small(content)):
            raise L2DError(f"{file}: damaged; train it again with force=true")
        return content

    def metrics(self) -> RunMetrics:
        return read_metrics(self.path / "metrics.json")

    @property
    def candidates(self) -> str:
        """The table of what method=auto compared, and an empty line; empty for other methods."""
        file = self.path / CANDIDATES
        return f"{file.read_text(encoding='utf-8')}\n" if file.exists() else ""

    def timing(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "timing.json").read_bytes()))

    def _lock(self) -> filelock.BaseFileLock:
        """One per process: who holds it may take it again."""
        return filelock.FileLock(self.path / LOCK, is_singleton=True)

    @property
    def held(self) -> bool:
        """True if another process is working on it now."""
        if not (self.path / LOCK).exists():  # FileLock would make it
            return False
        try:
            with self._lock().acquire(blocking=False):
                return False
        except (filelock.Timeout, OSError) as error:
            return isinstance(error, filelock.Timeout)

    @property
    def stamp(self) -> int:
        """When it was finished, in nanoseconds; 0 if it is not."""
        try:
            return (self.path / "metrics.json").stat().st_mtime_ns
        except OSError:
            return 0

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def folds(self) -> Path:
        """Holds the runs of a cross-validation until the run itself is finished."""
        return self.path / FOLDS

    @property
    def last_checkpoint(self) -> Path | None:
        return last if (last := self.checkpoints / "last.ckpt").exists() else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and lock it. The lock ends with the process, even if that is killed."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._lock()
            lock.acquire(timeout=0.5)  # `held` takes it for a moment
        except filelock.Timeout:
            raise Busy(f"{self.path}: another process is working on this run") from None
        except OSError as error:
            raise L2DError(f"runs_dir: cannot write to {self.path} ({error.strerror})") from error
        try:
            for left in self.path.rglob(f".*{TEMPORARY}*"):  # by a process that was killed while it wrote
                left.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def clear(self) -> None:
        """Delete everything but the lock."""
        clear_folder(self.path, first="metrics.json", keep=[LOCK])

    def remove(self) -> None:
        """Delete the folder, and the one above it if it held no other seed."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            self.path.parent.rmdir()

    def write_config(self, config: Mapping[str, Any]) -> None:
        write_text(self.path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))

    def check_data(self, fingerprint: str) -> None:
        """A run is never resumed or reused on different data."""
        file = self.path / "data.txt"
        known = file.read_text(encoding="utf-8").strip() if file.exists() else ""
        if known and fingerprint and known != fingerprint:
            what = "was run on other data or experts' weights (data_dir, dataset.path, experts.models)"
            raise L2DError(f"{self.path}: {what}; use another dataset.name or runs_dir, or force=true to re-run it")
        if fingerprint and not known and not self.finished:
            write_text(file, fingerprint + "\n")

    def finish(self, metrics: Mapping[str, Any], arrays: "Mapping[str, np.ndarray]", timing: Mapping[str, Any]) -> None:
        """metrics.json comes last: once it exists, all other files are complete."""
        import numpy as np

        write_atomically(self.path / "test.npz", lambda path: np.savez(path, **arrays))  # type: ignore[arg-type]
        write_json(self.path / "timing.json", timing)
        write_json(self.path / "metrics.json", metrics)
