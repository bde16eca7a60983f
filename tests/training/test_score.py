"""What the guard falls back to is chosen on rows that the experts did not learn."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from tests.running import build

from l2d.training.score import RoutedSplit, calibration_on, held_out, score_router


@pytest.mark.parametrize(("learned", "fallback"), [(True, "expert 1"), (False, "expert 2")])
def test_the_best_single_expert(learned: bool, fallback: str, tiny: Callable[..., DictConfig]) -> None:
    """Expert 1 is the best on validation rows, expert 2 on the training rows, which experts may have learned by heart."""
    data, router = build(tiny())
    splits = data.splits
    by_heart = torch.ones_like(splits.train_costs)
    by_heart[:, 1] = 0
    panel, topics = replace(splits.panel, learned=learned), ("all",) * len(splits.test)
    data.splits = replace(splits, train_costs=by_heart, panel=panel, categories=topics)
    assert int(splits.validation.costs.mean(dim=0).argmin()) == 0

    def predict(_: Any, dataloaders: Any) -> list[torch.Tensor]:
        rows = sum(len(batch[0]) for batch in dataloaders)
        return [torch.zeros(rows, 5)]

    trainer: Any = SimpleNamespace(predict=predict, current_epoch=1)
    scored = score_router(trainer, router, data, "last", 1)
    assert scored.metrics.guarded.validation.best_constant == fallback
    everyone = scored.metrics.ratios.index(1)
    on_validation = float(splits.validation.costs[:, everyone].mean())
    assert scored.metrics.validation.deferral_loss == pytest.approx(on_validation)
    assert scored.metrics.by_category is not None
    assert scored.metrics.by_category["all"].best_single == pytest.approx(float(splits.test.costs[:, 1].mean()))


def test_what_is_kept_for_other_prices_holds_none() -> None:
    errors, prices = torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([0.5, 0.25])
    splits: Any = SimpleNamespace(validation=SimpleNamespace(costs=errors + prices, prices=prices), prices=prices)
    method: Any = SimpleNamespace(expected_errors=lambda outputs: outputs)
    kept = held_out(method, torch.tensor([[0.1, 0.9]]), splits, chosen_on=errors[:1] + prices)
    assert kept["errors"].tolist() == errors.tolist()
    assert kept["mean_errors"].tolist() == [0, 1]


def test_estimated_errors_are_held_against_errors_not_costs() -> None:
    """The rows of test_calibration_of_chances_by_hand, with prices on top."""
    prices = torch.tensor([0.5, 0.25])
    costs = torch.tensor([[0.0, 1.0], [1.0, 1.0]]) + prices
    split: Any = SimpleNamespace(costs=costs, prices=prices)
    expected = torch.tensor([[0.15, 0.85], [0.15, 0.85]])
    method: Any = SimpleNamespace(has_posterior=False, expected_errors=lambda _: expected)
    found = torch.tensor(calibration_on(method, RoutedSplit(split, costs, costs)))
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.15, 0.25], [0.5, 0.85, 0.75]]))
