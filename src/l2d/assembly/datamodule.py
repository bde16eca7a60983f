"""Hands out batches of the assembled splits."""

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.data.batches import Batch, Batches, Inputs, eval_batch, place
from l2d.data.splits import Split
from l2d.utils.errors import ParameterError


class DeferralData(pl.LightningDataModule):
    """on_device: whether all inputs lie on the device: true, false (stream them from pinned host memory), or auto (true if they
    fit). parts: number of micro-batches per batch, raised after running out of memory; evaluation batches shrink as much."""

    def __init__(
        self, splits: Splits, batch_size: int, augment: str, on_device: str, seed: int, parts: int = 1
    ) -> None:
        super().__init__()
        if augment != "none" and splits.train.source.ndim != 4:
            raise ParameterError("augment", "is for images; use none", augment)
        self.splits, self.batch_size, self.augment = splits, batch_size, augment
        self.on_device, self.seed, self.parts = on_device, seed, parts
        self._placed: dict[tuple[int, torch.device], Inputs] = {}
        self.train_dataloader()  # a bad batch size fails here, before there is a run folder

    def train_dataloader(self) -> Batches:
        """A crop moves by up to an eighth of the image: 4 of 32 pixels, as is usual."""
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)
        train = self.splits.train
        batches = Batches(
            self._inputs(train),
            train.rows,
            train.costs.float(),
            train.labels,
            self.batch_size,
            seed=self.seed,
            augment=self.augment,
            pad=train.source.shape[1] // 8 if self.augment != "none" else 0,
            rank=rank,
            world=world,
            parts=self.parts,
        )
        if min(batches.sizes) < 2:
            raise ParameterError("batch_size", "leaves a batch of one row: no batch normalisation", self.batch_size)
        return batches

    def val_dataloader(self) -> Batches:
        """The validation split, in order; whole on every rank, so that no average over ranks is needed."""
        return self._in_order(self.splits.validation)

    def in_order(self, rows: Tensor) -> Batches:
        """The inputs of some of the training and validation rows, numbered before resampling; without their costs."""
        source, nothing = self.splits.train.source, torch.zeros(len(rows))
        return Batches(self._inputs(self.splits.train), rows, nothing, nothing, eval_batch(source, self.parts))

    def predict_dataloader(self) -> Batches:
        return self._in_order(self.splits.test)

    def transfer_batch_to_device(self, batch: Batch, *_: Any) -> Batch:
        return batch  # it is there already

    def _in_order(self, split: Split) -> Batches:
        size = eval_batch(split.source, self.parts)
        return Batches(self._inputs(split), split.rows, split.costs.float(), split.labels, size)

    def _inputs(self, split: Split) -> Inputs:
        """Training and validation share one copy of the images on the device."""
        device = self.trainer.strategy.root_device if self.trainer is not None else torch.device("cpu")
        key = (split.source.data_ptr(), device)
        if key not in self._placed:
            self._placed[key] = place(split.source, device, self.on_device)
        return self._placed[key]
