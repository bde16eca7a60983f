"""Joins a dataset, its experts and their prices into the arrays a router learns from."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.core.costs import (
    cheapest,
    check_costs,
    check_noise,
    check_scale,
    expert_costs,
    expert_prices,
    extreme_prices,
    extreme_shares,
    noisy,
)
from l2d.data.arrays import Answers, Arrays, content_of, fingerprint_of, split
from l2d.data.augment import AUGMENTS
from l2d.data.batches import ON_DEVICE, Batch, Batches, Inputs, eval_batch, place
from l2d.data.sampling import SAMPLINGS, resample
from l2d.experts.cache import Cache
from l2d.experts.request import Experts, Machine, Request
from l2d.methods.method import Evidence
from l2d.utils.errors import L2DError, check_choice
from l2d.utils.seeding import derive_seed, stream


class Dataset(Protocol):
    """What conf/dataset/*.yaml builds."""

    def load(self, data_dir: Path) -> Arrays: ...

    def fingerprint(self, data_dir: Path) -> str:
        """Different for different data, without reading them; empty where it is not known."""
        ...


@dataclass(frozen=True)
class Split:
    """One split: the inputs it is part of, its rows among them [n], and of those rows answers, costs [n, p], their price part ([p],
    or [n, p] where it differs between rows) and labels [n]."""

    source: Tensor
    rows: Tensor
    answers: Answers
    costs: Tensor
    prices: Tensor
    labels: Tensor

    @property
    def inputs(self) -> Tensor:
        return self.source[self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Tensor) -> "Split":
        """Some of its rows, in this order, the same one more than once if asked for."""
        prices = self.prices if self.prices.ndim == 1 else self.prices[positions]
        costs, labels = self.costs[positions], self.labels[positions]
        return Split(self.source, self.rows[positions], self.answers[positions], costs, prices, labels)


class DeferralData(pl.LightningDataModule):
    """Everything is computed once, here; training never calls an expert.

    The validation rows come off the training rows by seed: the run's, or the experts' own where they learn from the training
    rows; the test rows are the dataset's own and serve only the final score. Noise is on the training split's costs alone.
    Sampling (by the cheapest expert, costs with their noise) is of the training split alone, and comes last: experts learn from the
    rows as they are. Methods are built from the resampled costs, so their counts are those of what they learn from: weights and
    margins on top of it would correct the same imbalance twice.
    parts: in which batches come, where whole ones take too much memory; evaluation then takes as much less at a time.
    on_device: whether the inputs lie on the device whole: true, false (pinned host memory streams them), or auto (if they fit).
    """

    def __init__(
        self,
        *,
        dataset: Dataset,
        data_dir: Path,
        experts: Experts,
        cache: Cache,
        machine: Machine,
        coverage: Sequence[float] | None,
        prices: Any,
        price_scale: float,
        noise: float,
        noise_kind: str,
        validation_fraction: float,
        fold: str | None,
        sampling: str,
        batch_size: int,
        augment: str,
        seed: int,
        parts: int = 1,
    ) -> None:
        super().__init__()
        if not 0 < validation_fraction < 1:
            raise L2DError(f"validation_fraction={validation_fraction}: must be between 0 and 1")
        if batch_size < 1:
            raise L2DError(f"recipe.batch_size={batch_size}: must be at least 1")
        check_choice("recipe.augment", augment, AUGMENTS)
        check_choice("trainer.data_on_device", machine.data_on_device, ON_DEVICE)
        check_noise(noise, noise_kind)
        check_scale(price_scale, prices)
        check_choice("sampling", sampling, SAMPLINGS)
        self.batch_size, self.augment, self.on_device, self.seed = batch_size, augment, machine.data_on_device, seed
        self.parts = parts
        arrays = dataset.load(data_dir)
        if augment != "none" and arrays.train_inputs.ndim != 4:
            raise L2DError(f"recipe.augment={augment}: is for images; use recipe.augment=none")
        self.num_classes, self.categories, self.seen = arrays.num_classes, arrays.categories, arrays.seen
        expert_seed = seed if experts.seed is None else experts.seed
        train, validation = split(arrays, validation_fraction, derive_seed(expert_seed, "validation"), fold)
        data = dataset.fingerprint(data_dir) or content_of(arrays)
        facts = {"data": data, "seed": expert_seed, "train": fingerprint_of(train)}
        shares = None if coverage is None else [float(share) for share in coverage]
        self.cache = cache.knowing(**facts, coverage=shares)
        request = Request(arrays, train, coverage, expert_seed, self.cache, data_dir, machine)
        begun = time.monotonic()
        self.panel = experts.panel(request)
        self.expert_seconds = time.monotonic() - begun
        if len(self.panel.names) < 2:
            raise L2DError(f"{len(self.panel.names)} expert; routing needs at least 2 (setup.coverage={coverage})")
        self.extreme: dict[str, Any] | None = None
        if prices == "extreme":
            errors = self.panel.train.errors[train]
            prices = extreme_prices(errors, self.panel.names).tolist()
            self.extreme = extreme_shares(prices, errors, self.panel.test.errors, self.panel.names)
        by_row = prices == "columns"
        if by_row and self.panel.train.prices is None:
            raise L2DError(
                "cost.prices=columns: there are no price columns; dataset=table reads those named price_<expert>"
            )
        self.price_scale = price_scale
        self.prices = None if by_row else price_scale * expert_prices(prices, self.panel.names, self.panel.coverage)
        self.train = self._split(arrays.train_inputs, train, self.panel.train, arrays.train_labels)
        self.validation = self._split(arrays.train_inputs, validation, self.panel.train, arrays.train_labels)
        everything = torch.arange(len(arrays.test_labels))
        self.test = self._split(arrays.test_inputs, everything, self.panel.test, arrays.test_labels)
        if noise:
            costs = noisy(self.train.costs, noise, noise_kind, stream(seed, "cost noise"))
            self.train = replace(self.train, costs=costs)
        # The router learns from resampled rows; the best single expert, held against it, is chosen on the rows as they are.
        self.raw_costs = self.train.costs
        self._whole = self.train
        if sampling != "none":
            groups = cheapest(self.train.costs)
            self.train = self.train.take(resample(groups, sampling, stream(seed, "sampling")))
        self._placed: dict[tuple[int, torch.device], Inputs] = {}
        self.train_dataloader()  # here rather than in training: a bad batch size leaves nothing behind

    def take_evidence(self) -> Evidence:
        """What experts did on rows that they did not learn from: the training rows, before any are drawn twice, or, where experts
        learned those, every second validation row of each label, which is then no longer one: what was learned from does not
        judge."""
        split = self._whole
        if self.panel.learned:
            if len(self.validation) < 2:
                raise L2DError("method: learns from validation rows here, and needs two; raise validation_fraction")
            half = torch.zeros(len(self.validation), dtype=torch.bool)
            half[self.validation.labels.argsort(stable=True)[::2]] = True
            split, self.validation = self.validation.take(half), self.validation.take(~half)
        return Evidence(split.costs - split.prices, split.prices, split.labels)

    def _split(self, source: Tensor, rows: Tensor, answers: Answers, labels: Tensor) -> Split:
        answers = answers[rows]
        if self.prices is None:
            assert answers.prices is not None
            prices = self.price_scale * answers.prices
        else:
            prices = self.prices
        costs = expert_costs(answers.errors, prices)
        check_costs(costs)
        return Split(source, rows, answers, costs, prices, labels[rows])

    @property
    def num_experts(self) -> int:
        return len(self.panel.names)

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
            pad=self.train.source.shape[1] // 8 if self.augment != "none" else 0,
            rank=rank,
            world=world,
            parts=self.parts,
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
        size = max(1, eval_batch(split.source) // self.parts)
        return Batches(self._inputs(split), split.rows, split.costs.float(), split.labels, size)

    def _inputs(self, split: Split) -> Inputs:
        """Training and validation share one copy of the images on the device."""
        device = self.trainer.strategy.root_device if self.trainer is not None else torch.device("cpu")
        key = (split.source.data_ptr(), device)
        if key not in self._placed:
            self._placed[key] = place(split.source, device, self.on_device)
        return self._placed[key]
