"""The run folder: where it is, whether it is finished, and what makes it so."""

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import yaml

from l2d.utils.errors import Busy, L2DError
from l2d.utils.files import TEMPORARY, clear_folder, write_atomically, write_json, write_text

# Raise it when the same config comes to give another result, so that runs of the old code are not taken for the new.
RESULTS_VERSION = 1
# Keys that cannot change a result.
IRRELEVANT = ("logger", "data_dir", "runs_dir", "progress", "force", "dry_run", "stop_after")
LOCK = ".lock"
# Keys that came later, and the values with which they change nothing: a run without them is the same. ANY: prices of a setup are in
# cost.prices where they count, a table that answers are written to is none of a router's business, and where a table lies does not
# matter: what is in it is in data.txt.
ANY, MISSING = "any", object()
LATE: dict[str, dict[str, Any]] = {
    "setup": {"prices": ANY, "experts": None},
    "cost": {"scale": 1.0},
    "recipe": {"ema": 0.0, "patience": None},
    "experts": {"table": ANY},
    "dataset": {"path": ANY},
}
# The same of one class of dataset: others had the key from the first.
LATE_IN = {"l2d.data.sets.mmlu_sim.MMLUSim": {"label": "answer"}}
# Models that may be folders: the same however one gets there.
MODELS = ("experts.models", "router.model", "router.reads.model", "dataset.encoder.model")


def variant(config: Mapping[str, Any]) -> str:
    """A short hash of everything in the resolved config that can change the result, less the seed."""
    text = json.dumps([RESULTS_VERSION, _numbers_alike(_relevant(config))], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _relevant(config: Mapping[str, Any]) -> dict[str, Any]:
    relevant = {key: value for key, value in config.items() if key not in (*IRRELEVANT, "seed")}
    for name, of_group in LATE.items():
        if isinstance(group := relevant.get(name), Mapping):
            late = of_group | LATE_IN.get(group.get("_target_", ""), {})
            relevant[name] = {key: value for key, value in group.items() if late.get(key, MISSING) not in (value, ANY)}
    if relevant.get("aux") == "none":
        relevant = {key: value for key, value in relevant.items() if key not in ("aux", "aux_weight")}
    return _placeless(relevant)


def _placeless(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """With the MODELS that are folders by their own name: where they lie does not matter, and what is in them is in data.txt."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found[key] = _placeless(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" in MODELS:
            names = [
                Path(one).name if one.startswith("/") else one for one in _listed(absolute(f"{prefix}{key}", value))
            ]
            found[key] = names if isinstance(value, list) else value and names[0]
        else:
            found[key] = value
    return found


def _listed(value: Any) -> list[str]:
    return [str(one) for one in (value if isinstance(value, list) else [value])]


def absolute(key: str, value: Any) -> Any:
    """A path, or several, from the root. A model's name stays what it is unless there is such a folder."""
    if value is None:
        return None
    if isinstance(value, list):
        return [absolute(key, one) for one in value]
    path = Path(str(value)).expanduser()
    named = key.rpartition(".")[2] in ("model", "models") and (value == "minilm" or not path.is_dir())
    return value if named else str(path.absolute())


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Everything in a config that can change the result, flat, less the seed: {"recipe.epochs": 3, …}."""
    return _flat(_relevant(config))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def apart(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What tells each of several settings from the others, as "key=value key=value"."""
    keys = sorted({key for one in settings for key in one})
    differ = [key for key in keys if len({repr(one.get(key)) for one in settings}) > 1]
    return [
        " ".join(f"{key.removeprefix('method.')}={one[key]}" for key in differ if one.get(key) is not None)
        for one in settings
    ]


def _numbers_alike(value: Any) -> Any:
    """offset=5 on the command line and 5.0 in a file are one setting."""
    if isinstance(value, Mapping):
        return {key: _numbers_alike(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers_alike(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def choices(config: Mapping[str, Any]) -> dict[str, str]:
    """The names that make up a cell."""
    names = {group: str(config[group]["name"]) for group in ("dataset", "setup", "experts", "cost", "method")}
    for group, name in names.items():
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise L2DError(f"{group}.name={name}: becomes a folder, so letters, digits, '_', '-' and '.' only")
    return names


def cell(config: Mapping[str, Any]) -> str:
    """The run's place under runs_dir, without its seed."""
    return "/".join([*choices(config).values(), variant(config)])


@dataclass(frozen=True)
class RunFolder:
    """runs/<dataset>/<setup>/<experts>/<cost>/<method>/<variant>/seed=<s>/; finished if and only if metrics.json is there."""

    path: Path

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "RunFolder":
        return cls(Path(config["runs_dir"]).expanduser() / cell(config) / f"seed={config['seed']}")

    @property
    def finished(self) -> bool:
        try:
            return (self.path / "metrics.json").exists()
        except OSError as error:
            raise L2DError(f"runs_dir: cannot read {self.path} ({error.strerror})") from error

    def config(self) -> dict[str, Any]:
        """The config of a finished run; a line that says what is wrong where there is none."""
        if not self.path.is_dir():
            raise L2DError(f"{self.path}: no such folder; give one of runs/.../seed=<s>")
        file = self.path / "config.yaml"
        if not file.exists():
            raise L2DError(f"{self.path}: not a run's folder (no config.yaml); give one of runs/.../seed=<s>")
        if not self.finished:
            raise L2DError(
                f"{self.path}: this run is not finished; the same l2d.commands.train command goes on with it"
            )
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            content = None
        if not isinstance(content, dict):
            raise L2DError(f"{file}: damaged; train it again with force=true")
        return content

    def metrics(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.path / "metrics.json").read_text(encoding="utf-8"))
        return content

    def timing(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.path / "timing.json").read_text(encoding="utf-8"))
        return content

    @property
    def held(self) -> bool:
        """Whether a process is working on it now."""
        if not (self.path / LOCK).exists():  # asking would make it
            return False
        lock = filelock.FileLock(self.path / LOCK)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            return True
        except OSError:
            return False
        lock.release()
        return False

    @property
    def stamp(self) -> int:
        """When it was finished, in nanoseconds; 0 where it is not."""
        try:
            return (self.path / "metrics.json").stat().st_mtime_ns
        except OSError:
            return 0

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> Path | None:
        last = self.checkpoints / "last.ckpt"
        return last if last.exists() else None

    @property
    def paused_after(self) -> int:
        """The last epoch that it was told to stop after; 0 where there was none."""
        return self._number("paused.txt", 0)

    def pause(self, epoch: int) -> None:
        write_text(self.path / "paused.txt", f"{epoch}\n")

    @property
    def batch_parts(self) -> int:
        """In how many parts its batches have to come, as found out when memory did not suffice for fewer."""
        return max(1, self._number("batch_parts.txt", 1))

    def divide_batches(self, parts: int) -> None:
        write_text(self.path / "batch_parts.txt", f"{parts}\n")

    def _number(self, file: str, otherwise: int) -> int:
        try:
            return int((self.path / file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return otherwise

    def validation_after(self, epoch: int) -> float:
        """The validation deferral loss that its history has for an epoch."""
        with (self.path / "history.csv").open(newline="", encoding="utf-8") as lines:
            found = [row["val/deferral_loss"] for row in csv.DictReader(lines) if row["epoch"] == str(epoch)]
        return float(found[-1])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and hold it; the lock goes with the process, however that ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.path / LOCK)
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
        """Forget everything."""
        clear_folder(self.path, first="metrics.json", keep=[LOCK])

    def write_config(self, config: Mapping[str, Any]) -> None:
        write_text(self.path / "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))

    def check_data(self, fingerprint: str) -> None:
        """Refuse to go on with, or to take for finished, what was begun on other data."""
        file = self.path / "data.txt"
        known = file.read_text(encoding="utf-8").strip() if file.exists() else ""
        if known and fingerprint and known != fingerprint:
            raise L2DError(
                f"data_dir, dataset.path or experts.models: {self.path} was run on other data or with other weights in a"
                " model's folder; use another dataset.name or runs_dir,"
                " or force=true to run it anew"
            )
        if fingerprint and not known and not self.finished:
            write_text(file, fingerprint + "\n")

    def finish(self, metrics: Mapping[str, Any], arrays: Mapping[str, np.ndarray], timing: Mapping[str, Any]) -> None:
        """Everything a reader may want beside metrics.json is whole before metrics.json appears."""

        def save(path: Path) -> None:
            np.savez_compressed(path, **arrays)  # type: ignore[arg-type]

        write_atomically(self.path / "test.npz", save)
        write_json(self.path / "timing.json", timing)
        write_json(self.path / "metrics.json", metrics)
