"""Joins a dataset, its experts and their prices into the arrays a router learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.costs import check_costs, expert_costs, expert_prices
from l2d.data.arrays import Arrays, stratified_split
from l2d.data.augment import AUGMENTS
from l2d.data.batches import Batch, Batches, Inputs, fits
from l2d.errors import L2DError, check_choice
from l2d.seeding import derive_seed

EVAL_BATCH = 2048
STATISTICS_ROWS = 10_000


class Dataset(Protocol):
    """What conf/dataset/*.yaml builds."""

    def load(self, data_dir: Path) -> Arrays: ...

    def fingerprint(self, data_dir: Path) -> str:
        """Different for different data, without reading them; empty where it is not known."""
        ...


class Experts(Protocol):
    """What conf/experts/*.yaml builds."""

    def predict(self, arrays: Arrays, coverage: Sequence[float], seed: int) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Split:
    """One split: the inputs it is part of, its rows among them [n], and of those rows predictions and costs [n, p], labels [n]."""

    source: Tensor
    rows: Tensor
    predictions: Tensor
    costs: Tensor
    labels: Tensor

    @property
    def inputs(self) -> Tensor:
        return self.source[self.rows]

    def __len__(self) -> int:
        return len(self.rows)


class DeferralData(pl.LightningDataModule):
    """Everything is computed once, here; training never calls an expert.

    The validation rows come off the training rows by `seed`; the test rows are the dataset's own and serve only the final score.
    on_device: whether the inputs lie on the device whole: true, false (pinned host memory streams them), or auto (if they fit).
    """

    def __init__(
        self,
        *,
        dataset: Dataset,
        data_dir: Path,
        experts: Experts,
        coverage: Sequence[float],
        prices: str | Sequence[float] | None,
        validation_fraction: float,
        batch_size: int,
        augment: str,
        on_device: str,
        seed: int,
    ) -> None:
        super().__init__()
        if not 0 < validation_fraction < 1:
            raise L2DError(f"validation_fraction={validation_fraction}: must be between 0 and 1")
        if batch_size < 1:
            raise L2DError(f"recipe.batch_size={batch_size}: must be at least 1")
        check_choice("recipe.augment", augment, AUGMENTS)
        check_choice("trainer.data_on_device", on_device, ("auto", "true", "false"))
        self.batch_size, self.augment, self.on_device, self.seed = batch_size, augment, on_device, seed
        arrays = dataset.load(data_dir)
        self.num_classes = arrays.num_classes
        train_predictions, test_predictions = experts.predict(arrays, coverage, seed)
        self.prices = expert_prices(prices, coverage)
        train, validation = stratified_split(arrays.train_labels, validation_fraction, derive_seed(seed, "validation"))
        self.train = self._split(arrays.train_inputs, train, train_predictions, arrays.train_labels)
        self.validation = self._split(arrays.train_inputs, validation, train_predictions, arrays.train_labels)
        everything = torch.arange(len(arrays.test_labels))
        self.test = self._split(arrays.test_inputs, everything, test_predictions, arrays.test_labels)
        self._placed: dict[tuple[int, torch.device], Inputs] = {}
        self.train_dataloader()  # here rather than in training: a bad batch size leaves nothing behind

    def _split(self, source: Tensor, rows: Tensor, predictions: Tensor, labels: Tensor) -> Split:
        costs = expert_costs(predictions[rows], labels[rows], self.prices)
        check_costs(costs)
        return Split(source, rows, predictions[rows], costs, labels[rows])

    @property
    def num_experts(self) -> int:
        return len(self.prices)

    def pixel_statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation per channel of the training images (of 10,000 evenly spaced ones where there are more)."""
        rows = self.train.rows[:: max(1, len(self.train) // STATISTICS_ROWS)]
        pixels = self.train.source[rows].double().flatten(0, -2)
        return pixels.mean(dim=0).tolist(), pixels.std(dim=0, correction=0).clamp(min=1e-6).tolist()

    def train_dataloader(self) -> Batches:
        """A crop moves by up to an eighth of the image: 4 of 32 pixels, as is usual."""
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)
        batches = Batches(
            self._inputs(self.train),
            self.train.rows,
            self.train.costs.float(),
            self.train.labels,
            self.batch_size,
            seed=self.seed,
            augment=self.augment,
            pad=self.train.source.shape[1] // 8,
            rank=rank,
            world=world,
        )
        if min(batches.sizes) < 2:
            raise L2DError(
                f"recipe.batch_size={self.batch_size}: leaves a batch of one row, which batch normalisation cannot take"
            )
        return batches

    def val_dataloader(self) -> Batches:
        """The validation split, in order; whole on every rank, so that no average over ranks is needed."""
        return self._in_order(self.validation)

    def predict_dataloader(self) -> Batches:
        """The test split, in order."""
        return self._in_order(self.test)

    def transfer_batch_to_device(self, batch: Batch, *_: Any) -> Batch:
        return batch  # it comes from there

    def _in_order(self, split: Split) -> Batches:
        return Batches(self._inputs(split), split.rows, split.costs.float(), split.labels, EVAL_BATCH)

    def _inputs(self, split: Split) -> Inputs:
        """Training and validation share one copy of the images on the device."""
        device = self.trainer.strategy.root_device if self.trainer is not None else torch.device("cpu")
        key = (split.source.data_ptr(), device)
        if key not in self._placed:
            resident = fits(split.source, device) if self.on_device == "auto" else self.on_device == "true"
            self._placed[key] = Inputs(split.source, device, resident)
        return self._placed[key]
