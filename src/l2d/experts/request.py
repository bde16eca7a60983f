"""What experts are asked, whatever kind they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from l2d.data.arrays import Arrays, Panel
from l2d.experts.cache import Cache


@dataclass(frozen=True)
class Machine:
    """Where and how loudly experts that train do it: keys of conf/trainer, and `progress`."""

    accelerator: str = "cpu"
    deterministic: bool = False
    data_on_device: str = "auto"
    progress: bool = False


@dataclass(frozen=True)
class Request:
    """train: the rows of the training split; the others among `arrays`' training rows are validation, from which nothing may learn.
    seed: of everything drawn."""

    arrays: Arrays
    train: Tensor
    coverage: Sequence[float] | None
    seed: int
    cache: Cache
    data_dir: Path
    machine: Machine


class Experts(Protocol):
    """What conf/experts/*.yaml builds. seed: None for experts that are drawn anew with each run's seed."""

    seed: int | None

    def panel(self, request: Request) -> Panel: ...
