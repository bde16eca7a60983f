"""A router that training has finished with, the trainer that asks it, and its expectations on rows that it learned from."""

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
from l2d.networks.network import Network


@dataclass(frozen=True)
class Fitted:
    trainer: pl.Trainer
    router: RouterModule
    data: DeferralData
    checkpoint: str  # how the weights were chosen, and
    kept_epoch: int  # from which epoch

    @property
    def method(self) -> Method:
        return self.router.method

    @property
    def network(self) -> Network:
        return self.router.network

    @property
    def splits(self) -> Splits:
        return self.data.splits

    def outputs(self, loaders: Sequence[Batches]) -> list[Tensor]:
        found: Any = self.trainer.predict(self.router, dataloaders=list(loaders))
        return [at_least_float32(torch.cat(batches).cpu()) for batches in (found if len(loaders) > 1 else [found])]


@dataclass(frozen=True)
class LearnedRows:
    """Expectations on rows that a router learned from: a budget compares there the routers of folds with the one deployed."""

    rows: Tensor  # [m], counted from 0 among all rows
    errors: Tensor  # [m, p]
    prices: Tensor | None = None  # [m, p] if rows have their own


def learned_rows(fitted: Fitted, numbers: Tensor, among: Tensor) -> LearnedRows | None:
    """Each row once, however often the router learned from it. None if there is none, or the method's prices cannot change.
    numbers: of the rows that are not for testing, among all rows. among: the rows to look at."""
    method, places = fitted.method, fitted.splits.train.rows.unique()
    places = places[torch.isin(numbers[places], among)]
    if not method.takes_prices_later or not len(places):
        return None
    [outputs] = fitted.outputs([fitted.data.in_order(places)])
    errors = method.expected_errors(outputs)
    assert errors is not None  # a method that takes prices later expects errors
    return LearnedRows(numbers[places], errors, method.expected_prices(outputs))
