"""A router that training has finished with, and the trainer that asks it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.assembly.datamodule import DeferralData
from l2d.assembly.module import RouterModule
from l2d.core.decisions import at_least_float32
from l2d.data.batches import Batches
from l2d.methods.method import Method


@dataclass(frozen=True)
class Fitted:
    """checkpoint, kept_epoch: how the router's weights were chosen, and from which epoch."""

    trainer: pl.Trainer
    router: RouterModule
    data: DeferralData
    checkpoint: str
    kept_epoch: int

    @property
    def method(self) -> Method:
        return self.router.method

    @property
    def splits(self) -> Splits:
        return self.data.splits

    def outputs(self, loaders: Sequence[Batches]) -> list[Tensor]:
        """The network's outputs for the rows of each loader."""
        found: Any = self.trainer.predict(self.router, dataloaders=list(loaders))
        return [at_least_float32(torch.cat(batches).cpu()) for batches in (found if len(loaders) > 1 else [found])]
