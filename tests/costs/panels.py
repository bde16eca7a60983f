"""Experts whose every answer is written down."""

from collections.abc import Sequence

import torch
from torch import Tensor

from l2d.data.arrays import Answers, Panel

NAMES = ("a", "b", "c")


def answers(errors: Sequence[Sequence[float]], prices: Sequence[Sequence[float]] | None = None) -> Answers:
    table = None if prices is None else torch.tensor(prices).double()
    return Answers(torch.tensor(errors).double(), prices=table)


def panel(train: Answers, test: Answers | None = None, coverage: tuple[float, ...] | None = None) -> Panel:
    return Panel(NAMES[: train.errors.shape[1]], train, train if test is None else test, coverage)


def every_row(of: Panel) -> Tensor:
    return torch.arange(len(of.train.errors))
