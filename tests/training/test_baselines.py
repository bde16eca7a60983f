"""Baselines of a learned router."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import TINY_ON_ROWS
from tests.data.sets.test_table import Cells
from tests.router.finished import CELLS, N, untrained

from l2d.data.arrays import Answers
from l2d.data.splits import Split
from l2d.training.baselines import best_of_category, best_of_neighbours, simple_scores

LISTED = ("cost=error_plus_cost", "cost.prices=[0.05,0.01,0.03]")


def test_the_least_mean_cost_of_each_category() -> None:
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0], [0.0, 0.25]])
    # x: 1 against 1.5; y: 1 against .25; all: 2 against 1.75
    assert best_of_category(["x", "x", "y", "y"], costs, ["y", "x", "new", "x"]).tolist() == [1, 0, 1, 0]


def noisy_cells(gaps: bool) -> Cells:
    """The table of finished runs, with prices, outcomes by chance and, with gaps, some that are not known."""
    rng = np.random.default_rng(0)
    right = {f"correct_{name}": rng.integers(0, 2, N).tolist() for name in "abc"}
    prices = {f"price_{name}": rng.uniform(0, 0.5, N).round(3).tolist() for name in "abc"}
    lost = rng.random((3, N)) < (0.3 if gaps else 0.0)
    for (name, cells), paid, gone in zip(right.items(), prices.values(), lost, strict=True):
        right[name] = ["" if hidden else cell for cell, hidden in zip(cells, gone, strict=True)]
        paid[:] = ["" if hidden else cell for cell, hidden in zip(paid, gone, strict=True)]
    return CELLS | right | prices


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("cost", [("cost=error",), LISTED, ("cost=columns",)], ids=" ".join)
def test_it_is_the_router_of_knn(tmp_path: Path, cost: tuple[str, ...], gaps: bool) -> None:
    """Whatever other method the run has, and whatever that makes of prices and of outcomes that are not known."""
    given: Any = {"cells": noisy_cells(gaps), "small": TINY_ON_ROWS}
    features = ("dataset.features=[x,y]", *cost)
    knn = untrained(tmp_path, "method=knn", *features, **given)
    expected = knn.router.method.decide(knn.outputs)
    assert len(expected.unique()) > 1
    for method in ("knn", "mild", "cost_regression"):
        found = best_of_neighbours(untrained(tmp_path, f"method={method}", *features, **given).splits)
        assert torch.equal(found, expected)


def splits(sign: float = 1.0, **changes: Any) -> Any:
    x = torch.linspace(-1, 1, 200)[:, None]
    costs = torch.cat([(sign * x > 0).double(), (sign * x <= 0).double()], dim=1)
    prices, labels = torch.zeros(2), torch.zeros(200)
    train, test = (
        Split(x, rows, Answers(costs[rows]), costs[rows], prices, labels[rows])
        for rows in (torch.arange(0, 200, 2), torch.arange(1, 200, 2))
    )
    arrays = SimpleNamespace(num_classes=0, categories=changes.get("train_categories"))
    found = {"train": train, "test": test, "train_costs": train.costs, "train_categories": None, "arrays": arrays}
    return SimpleNamespace(**(found | {"price_weights": None} | changes))


def test_what_the_rows_allow() -> None:
    found = simple_scores(splits())
    assert found.keys() == {"nearest_neighbours"}
    assert found["nearest_neighbours"].deferral_loss < 0.05
    sides = ("left",) * 50 + ("right",) * 50
    found = simple_scores(splits(train_categories=sides))
    assert found["category_table"].deferral_loss == 0.0
    images = replace(splits().train, source=torch.zeros(200, 8, 8, 1, dtype=torch.uint8))
    assert simple_scores(splits(train=images)) == {}
