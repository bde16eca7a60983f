"""The interface of all kinds of experts: what they are given, and what they return. The simplest kind: a table's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2d.utils.errors import L2DError
from l2d.utils.parameters import Seed

if TYPE_CHECKING:
    from torch import Tensor

    from l2d.data.arrays import Arrays, Panel
    from l2d.experts.cache import Cache


@dataclass(frozen=True)
class ComputeOptions:
    """Where experts that run a network run it, and whether they show progress: keys of conf/trainer, and `progress`."""

    accelerator: str = "cpu"
    deterministic: bool = False
    data_on_device: str = "auto"
    progress: bool = False


@dataclass(frozen=True)
class ExpertRequest:
    """train: the rows of `arrays` that experts may learn from. coverage: the share of the classes that each knows."""

    arrays: Arrays
    train: Tensor
    coverage: Sequence[float] | None
    seed: int
    cache: Cache
    data_dir: Path
    compute: ComputeOptions


class Experts:
    """Built from conf/experts/*.yaml. A class of the user's own needs only `seed` and `panel`. seed: None to use the run's own."""

    seed: int | None = None

    def panel(self, request: ExpertRequest) -> Panel:
        raise NotImplementedError

    @staticmethod
    def expert_names(*_: Any, **__: Any) -> Sequence[str] | None:
        """(coverage, **arguments of the constructor): the names of its panel; None if these do not tell."""
        return None

    def identity(self) -> str:
        """Tells experts apart that have the same config, such as models in a folder. Nothing is loaded."""
        return ""


class TableExperts(Experts):
    """The experts of dataset=table. Nothing is random: the seed only draws the validation split."""

    def __init__(self, *, seed: Seed | None = None) -> None:
        self.seed = seed

    def panel(self, request: ExpertRequest) -> Panel:
        if request.arrays.panel is None:
            raise L2DError("experts=table: needs dataset=table, whose columns hold the outcomes of the experts")
        if request.coverage is not None:
            raise L2DError("setup.coverage: the experts of a table have none; use setup=own")
        return request.arrays.panel
