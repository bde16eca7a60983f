"""Baselines of a learned router."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from l2d.data.arrays import Answers
from l2d.data.split import Split
from l2d.networks.estimators.estimator import FitRows
from l2d.networks.estimators.neighbours import Neighbours
from l2d.training import baselines
from l2d.training.baselines import KEPT, best_of_category, best_of_neighbours, simple_scores


def test_the_least_mean_cost_of_each_category() -> None:
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.5], [1.0, 0.0], [0.0, 0.25]])
    # x: 1 against 1.5; y: 1 against .25; all: 2 against 1.75
    assert best_of_category(["x", "x", "y", "y"], costs, ["y", "x", "new", "x"]).tolist() == [1, 0, 1, 0]


def rows_of(inputs: torch.Tensor, costs: torch.Tensor | None = None) -> Split:
    """After one row that is not among them."""
    costs = torch.zeros(len(inputs), 2) if costs is None else costs
    source = torch.cat([torch.full_like(inputs[:1], torch.nan), inputs])
    rows = torch.arange(1, len(source))
    return Split(source, rows, Answers(costs), costs, torch.zeros(2), torch.full((len(inputs),), -1))


def test_a_large_table_is_searched_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left of 0 the first expert is cheaper, right of it the second."""
    monkeypatch.setattr(baselines, "SEARCHED", 100)
    kept = list[FitRows]()
    fit = Neighbours.fit

    def noted(self: Neighbours, rows: FitRows) -> None:
        kept.append(rows)
        fit(self, rows)

    monkeypatch.setattr(Neighbours, "fit", noted)
    x = torch.linspace(-1, 1, 200)[:, None]
    costs = torch.cat([(x > 0).double(), (x <= 0).double()], dim=1)
    assert best_of_neighbours(rows_of(x, costs), rows_of(torch.tensor([[-0.5], [0.5]]))).tolist() == [0, 1]
    few = rows_of(x, costs).take(torch.arange(100))
    assert best_of_neighbours(few, rows_of(torch.tensor([[-0.5]]))).tolist() == [0]
    spread, all_of_them = (rows.inputs.flatten().tolist() for rows in kept)
    assert len(set(spread)) == 100
    assert min(spread) < -0.8 < 0.8 < max(spread)
    assert all_of_them == x[:100].flatten().tolist()


def splits(sign: float = 1.0, **changes: Any) -> Any:
    x = torch.linspace(-1, 1, 200)[:, None]
    costs = torch.cat([(sign * x > 0).double(), (sign * x <= 0).double()], dim=1)
    prices, labels = torch.zeros(2), torch.zeros(200)
    train, test = (
        Split(x, rows, Answers(costs[rows]), costs[rows], prices, labels[rows])
        for rows in (torch.arange(0, 200, 2), torch.arange(1, 200, 2))
    )
    found = {"train": train, "test": test, "train_costs": train.costs, "train_categories": None, "categories": None}
    return SimpleNamespace(**(found | changes))


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "_known", {})


def test_what_the_rows_allow() -> None:
    found = simple_scores(splits())
    assert found.keys() == {"nearest_neighbours"}
    assert found["nearest_neighbours"].deferral_loss < 0.05
    sides = ("left",) * 50 + ("right",) * 50
    found = simple_scores(splits(train_categories=sides, categories=sides))
    assert found["category_table"].deferral_loss == 0.0
    images = replace(splits().train, source=torch.zeros(200, 8, 8, 1, dtype=torch.uint8))
    assert simple_scores(splits(train=images)) == {}


def test_each_division_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []
    fit = Neighbours.fit

    def counted(self: Neighbours, rows: FitRows) -> None:
        fitted.append(rows)
        fit(self, rows)

    monkeypatch.setattr(Neighbours, "fit", counted)
    for _ in range(3):
        simple_scores(splits())
    assert len(fitted) == 1
    simple_scores(splits(-1.0))
    assert len(fitted) == 2
    test = splits().test
    simple_scores(splits(test=replace(test, source=test.source + 1)))  # other inputs with the same costs
    assert len(fitted) == 3
    for number in range(2 * KEPT):
        train = splits().train
        simple_scores(splits(train=replace(train, costs=train.costs + number)))
    assert len(baselines._known) == KEPT
