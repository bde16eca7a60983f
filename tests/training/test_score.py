"""Scores of a trained router, and the guard, whose fallback is chosen on rows that the experts did not learn."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from tests.running import build

from l2d.core.metrics import calibration
from l2d.core.results import ExtremeShares, RowCounts
from l2d.training.fitted import Fitted, LearnedRows
from l2d.training.score import RoutedRows, calibration_on, guard_of, held_out, score_router
from l2d.utils.errors import L2DError


@pytest.mark.parametrize(("learned", "fallback"), [(True, "expert 1"), (False, "expert 2")])
def test_the_best_single_expert(learned: bool, fallback: str, tiny: Callable[..., DictConfig]) -> None:
    """Expert 1 is the best on validation rows, expert 2 on the training rows, which experts may have learned by heart."""
    data, router = build(tiny())
    splits = data.splits
    by_heart = torch.ones_like(splits.train_costs)
    by_heart[:, 1] = 0
    panel, topics = replace(splits.panel, learned=learned), ("all",) * len(splits.test)
    data.splits = replace(splits, train_costs=by_heart, panel=panel, arrays=replace(splits.arrays, categories=topics))
    assert int(splits.validation.costs.mean(dim=0).argmin()) == 0

    def predict(_: Any, dataloaders: Any) -> list[list[torch.Tensor]]:
        return [[torch.zeros(len(batch[0]), 5) for batch in batches] for batches in dataloaders]

    trainer: Any = SimpleNamespace(predict=predict, current_epoch=1)
    scored = score_router(Fitted(trainer, router, data, "last", 1))
    assert scored.metrics.guarded.validation.best_constant == fallback
    everyone = scored.metrics.ratios.index(1)
    on_validation = float(splits.validation.costs[:, everyone].mean())
    assert scored.metrics.validation.deferral_loss == pytest.approx(on_validation)
    assert scored.metrics.by_category is not None
    assert scored.metrics.by_category["all"].best_single == pytest.approx(float(splits.test.costs[:, 1].mean()))


def routed_rows(**known: torch.Tensor) -> RoutedRows:
    nothing = torch.zeros(0)
    return RoutedRows(**{"scores": nothing, "utilities": nothing, "decisions": nothing, **known})


def test_by_the_costs_of_a_log_the_guard_wants_more() -> None:
    """The gain is .25 ± .25."""
    costs = torch.tensor([[0, 1]] * 3 + [[1, 0]], dtype=torch.float64)
    method: Any = SimpleNamespace(by_argmax=False)
    known = routed_rows(costs=costs, prices=torch.zeros(2), decisions=torch.tensor([0, 0, 0, 1]))
    logged = replace(known, logged_weights=torch.ones(4, 2))
    guards = [guard_of(method, rows, best=0) for rows in (known, logged)]
    assert [guard.constant for guard in guards] == [None, 0]


@pytest.mark.parametrize("by_argmax", [True, False])
def test_offsets_are_for_methods_that_decide_by_the_largest_utility(by_argmax: bool) -> None:
    """Expert 2 is right on every second row, but its utilities are 1 too low."""
    costs = torch.tensor([[0, 1], [1, 0]] * 50, dtype=torch.float64)
    utilities, decisions = torch.tensor([[1.0, -1.0], [1.0, 0.5]] * 50), torch.zeros(100).long()
    rows = routed_rows(costs=costs, prices=torch.zeros(2), decisions=decisions, utilities=utilities)
    method: Any = SimpleNamespace(by_argmax=by_argmax)
    assert (guard_of(method, rows, best=0).offsets is not None) is by_argmax


def test_what_is_kept_for_other_prices_holds_none() -> None:
    errors, prices = torch.tensor([[0.0, 1.0], [1.0, 1.0]]), torch.tensor([0.5, 0.25])
    splits: Any = SimpleNamespace(prices=prices)
    rows = routed_rows(costs=errors + prices, prices=prices, expected_errors=torch.tensor([[0.1, 0.9]]))
    method: Any = SimpleNamespace(expected_errors=lambda out: out[:, :2], expected_prices=lambda out: out[:, 2:])
    kept = held_out(method, rows, splits, chosen_on=errors[:1] + prices)
    assert kept["errors"].tolist() == errors.tolist()
    assert kept["mean_errors"].tolist() == [0, 1]
    assert {*kept} == {"errors", "expected", "mean_errors"}
    scores = torch.tensor([[0.25, 0.5, 3.0, 4.0]])
    values = [(torch.tensor([[error, 0.5]]), torch.tensor([[error, 4]])) for error in (0.25, 0.75)]
    learned = tuple(LearnedRows(torch.tensor([1]), *pair) for pair in values)
    own = torch.tensor([[0.5, 0.25], [0.0, 0.75]])
    rows = routed_rows(costs=errors + own, prices=own, expected_errors=torch.tensor([[0.1, 0.9]]), scores=scores)
    by_row = held_out(method, rows, SimpleNamespace(prices=None), errors, None, learned)  # type: ignore[arg-type]
    wanted = {"errors": errors.tolist(), "mean_errors": [0.5, 1], "prices": own.tolist(), "mean_prices": [0.25, 0.5]}
    wanted |= {"expected_prices": [[3, 4]], "learned": [1], "deployed": [[0.25, 0.5]], "seen": [[0.75, 0.5]]}
    wanted |= {"deployed_prices": [[0.25, 4]], "seen_prices": [[0.75, 4]]}
    assert {name: by_row[name].tolist() for name in wanted} == wanted


def test_estimated_errors_are_held_against_errors_not_costs() -> None:
    """The rows of test_calibration_of_chances_by_hand, with prices on top."""
    prices = torch.tensor([0.5, 0.25])
    costs = torch.tensor([[0.0, 1.0], [1.0, 1.0]]) + prices
    expected = torch.tensor([[0.15, 0.85], [0.15, 0.85]])
    rows = routed_rows(costs=costs, prices=prices, expected_errors=expected)
    found = torch.tensor(calibration_on(SimpleNamespace(), rows))  # type: ignore[arg-type]
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.15, 0.25], [0.5, 0.85, 0.75]]))


def predicting(outputs: torch.Tensor) -> Any:
    """A trainer whose router gives these outputs, as many as there are rows. It was to go on to epoch 9."""

    def predict(_: Any, dataloaders: Any) -> list[list[torch.Tensor]]:
        return [[outputs[: sum(len(batch[0]) for batch in batches)]] for batches in dataloaders]

    return SimpleNamespace(predict=predict, current_epoch=4, max_epochs=9)


def test_what_is_written_down_of_a_run(tiny: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("decision=posterior", "cost=error_plus_cost", "method.rho.values=[0.2,1,1,3,3]", "sampling=over")
    data, router = build(tiny(*given))
    facts = ExtremeShares("expert 1", [0.5], target=0.9, share_train=0.8, share_test=0.7)
    data.splits = replace(data.splits, cost_facts=facts)
    splits, method = data.splits, router.method
    assert len(splits.train) > len(splits.train_costs)  # some rows were drawn more than once
    outputs = torch.randn(len(splits.test), 5, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(type(router.network), "reads_text", True)
    scored = score_router(Fitted(predicting(outputs), router, data, "best", 2))
    found, kept = scored.metrics, scored.arrays
    assert (found.decision, found.checkpoint, found.epochs, found.kept_epoch) == ("posterior", "best", 4, 2)
    assert found.rows == RowCounts(len(splits.train), len(splits.validation), len(splits.test))
    assert found.extreme == facts
    assert found.capabilities.reads_text
    assert found.capabilities.has_posterior
    posterior = method.posterior(outputs)
    assert found.calibration == calibration(posterior, method.mass(splits.test.costs))
    assert found.by_decision is not None
    assert found.by_decision["posterior"].test == found.deferral_loss
    by_score = splits.test.costs.double().gather(1, outputs.argmax(dim=1, keepdim=True)).mean()
    assert found.by_decision["argmax"].test == pytest.approx(float(by_score))
    assert found.by_decision["argmax"].test != pytest.approx(found.deferral_loss)
    wanted = {"scores": outputs, "costs": splits.test.costs, "prices": splits.test.prices, "posterior": posterior}
    wanted |= {"decisions": method.decide(outputs), "utilities": method.utilities(outputs)}
    assert kept.keys() == {*wanted, "guarded"}
    assert all(torch.equal(kept[name], value) for name, value in wanted.items())
    paid = splits.test.costs.double().gather(1, kept["guarded"][:, None]).mean()
    assert found.guarded.deferral_loss == pytest.approx(float(paid))
    assert found.guarded.ratios == [0, 1, 0, 0, 0]  # scores at random gain nothing


def test_a_method_without_a_posterior_has_nothing_that_follows_from_one(tiny: Callable[..., DictConfig]) -> None:
    data, router = build(tiny("method=focal"))
    scored = score_router(Fitted(predicting(torch.zeros(1000, 5)), router, data, "last", 4))
    assert (scored.metrics.by_decision, scored.metrics.calibration, scored.metrics.extreme) == (None, None, None)
    assert "posterior" not in scored.arrays
    one_row = torch.zeros(1000, 5).index_fill(0, torch.tensor([3]), torch.nan)
    with pytest.raises(L2DError, match=r"recipe\.optimizer\.lr"):
        score_router(Fitted(predicting(one_row), router, data, "last", 4))


def test_estimated_errors_are_kept_without_prices() -> None:
    outputs, prices = torch.tensor([[0.25, 0.5]]), torch.tensor([0.5, 0.25])
    split: Any = SimpleNamespace(logged=None, costs=torch.tensor([[1.5, 0.25]]), prices=prices)
    method: Any = SimpleNamespace(has_posterior=False, expected_errors=lambda given: 2 * given)
    method.utilities, method.decide = lambda given: -given, lambda given: given.argmax(dim=1)
    kept = RoutedRows.of(method, split, outputs).arrays()
    expected = {"scores": [[0.25, 0.5]], "utilities": [[-0.25, -0.5]], "costs": [[1.5, 0.25]], "prices": [0.5, 0.25]}
    expected |= {"decisions": [1], "expected_errors": [[0.5, 1.0]]}
    assert {name: value.tolist() for name, value in kept.items()} == expected
