"""Joins a dataset, its experts and their prices into the arrays a router learns from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.costs import check_costs, expert_costs, expert_prices
from l2d.data.arrays import Arrays, stratified_split
from l2d.data.batches import Batches
from l2d.errors import L2DError
from l2d.seeding import derive_seed

EVAL_BATCH = 1024


class Dataset(Protocol):
    """What conf/dataset/*.yaml builds."""

    def load(self) -> Arrays: ...


class Experts(Protocol):
    """What conf/experts/*.yaml builds."""

    def predict(self, arrays: Arrays, coverage: Sequence[float], seed: int) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Split:
    """Rows of one split: inputs [n, ...], expert predictions [n, p], costs float64 [n, p], labels [n]."""

    inputs: Tensor
    predictions: Tensor
    costs: Tensor
    labels: Tensor


class DeferralData(pl.LightningDataModule):
    """Everything is computed once, here; training never calls an expert.

    The validation rows come off the training rows by `seed`; the test rows are the dataset's own and serve only the final score.
    """

    def __init__(
        self,
        *,
        dataset: Dataset,
        experts: Experts,
        coverage: Sequence[float],
        prices: str | Sequence[float] | None,
        validation_fraction: float,
        batch_size: int,
        seed: int,
    ) -> None:
        super().__init__()
        if not 0 < validation_fraction < 1:
            raise L2DError(f"validation_fraction={validation_fraction}: must be between 0 and 1")
        if batch_size < 2:
            raise L2DError(f"recipe.batch_size={batch_size}: must be at least 2, batch normalisation needs it")
        self.batch_size = batch_size
        self.seed = seed
        arrays = dataset.load()
        self.num_classes = arrays.num_classes
        train_predictions, test_predictions = experts.predict(arrays, coverage, seed)
        self.prices = expert_prices(prices, coverage)
        train, validation = stratified_split(arrays.train_labels, validation_fraction, derive_seed(seed, "validation"))
        self.train = self._split(arrays.train_inputs, train_predictions, arrays.train_labels, train)
        self.validation = self._split(arrays.train_inputs, train_predictions, arrays.train_labels, validation)
        self.test = self._split(arrays.test_inputs, test_predictions, arrays.test_labels)

    def _split(self, inputs: Tensor, predictions: Tensor, labels: Tensor, rows: Tensor | None = None) -> Split:
        if rows is not None:
            inputs, predictions, labels = inputs[rows], predictions[rows], labels[rows]
        costs = expert_costs(predictions, labels, self.prices)
        check_costs(costs)
        return Split(inputs, predictions, costs, labels)

    @property
    def num_experts(self) -> int:
        return len(self.prices)

    def pixel_statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation per channel of the training images."""
        pixels = self.train.inputs.double().flatten(0, -2)
        return pixels.mean(dim=0).tolist(), pixels.std(dim=0, correction=0).clamp(min=1e-6).tolist()

    def train_dataloader(self) -> Batches:
        return self._batches(self.train, self.batch_size, self.seed)

    def val_dataloader(self) -> Batches:
        return self._batches(self.validation, EVAL_BATCH)

    def predict_dataloader(self) -> Batches:
        """The test split, in order."""
        return self._batches(self.test, EVAL_BATCH)

    def _batches(self, split: Split, batch_size: int, seed: int | None = None) -> Batches:
        device = self.trainer.strategy.root_device if self.trainer is not None else torch.device("cpu")
        return Batches(
            split.inputs.to(device), split.costs.float().to(device), split.labels.to(device), batch_size, seed
        )
