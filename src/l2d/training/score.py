"""Scores a trained router: the only use of the test split, and the guard fitted to the validation rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.core import metrics as metrics_
from l2d.core.decisions import DECISIONS, at_least_float32
from l2d.core.guard import Guard, HeldOut, fit_guard
from l2d.core.results import SCHEMA_VERSION, Capabilities, DecisionLosses, RowCounts, RunMetrics, Score
from l2d.methods.method import Method
from l2d.routing.assemble import Split, Splits
from l2d.routing.datamodule import DeferralData
from l2d.routing.module import RouterModule
from l2d.utils.errors import L2DError


@dataclass(frozen=True)
class Scored:
    metrics: RunMetrics
    arrays: dict[str, Tensor]  # of the test rows, for test.npz
    guard: Guard
    held_out: dict[str, Tensor]  # validation rows, to fit a guard at other prices


@dataclass(frozen=True)
class RoutedSplit:
    split: Split
    outputs: Tensor
    decisions: Tensor

    def score(self, decisions: Tensor) -> Score:
        return metrics_.score(decisions, self.split.costs, self.split.prices)


def score_router(
    trainer: pl.Trainer, router: RouterModule, data: DeferralData, checkpoint: str, kept_epoch: int
) -> Scored:
    """The only use of the test split. checkpoint, kept_epoch: how the router's weights were chosen, and from which epoch."""
    method, splits = router.method, data.splits
    loaders = [data.predict_dataloader(), data.val_dataloader()]
    found: Any = trainer.predict(router, dataloaders=loaders)
    test, validation = map(partial(routed, method), (splits.test, splits.validation), found)
    # Experts that learned from the training rows are compared on validation rows.
    chosen_on = splits.validation.costs if splits.panel.learned else splits.train_costs
    best = metrics_.best_single(chosen_on)
    guard, guarded = hold(method, validation, test, best)
    costs, prices, names = splits.test.costs, splits.test.prices, splits.panel.names
    metrics = RunMetrics(
        **vars(metrics_.routing_metrics(test.decisions, splits.train_costs, costs, prices, names)),
        **about_the_run(router, splits, validation, test),
        guarded=metrics_.guarded_score(guard, guarded, costs, prices, names),
        checkpoint=checkpoint,
        epochs=trainer.current_epoch,
        kept_epoch=kept_epoch,
    )
    arrays = kept_arrays(method, test) | {"guarded": guarded}
    return Scored(metrics, arrays, guard, held_out(method, validation.outputs, splits, chosen_on))


def routed(method: Method, split: Split, batches: Sequence[Tensor]) -> RoutedSplit:
    """batches: the network's outputs for the split's rows."""
    outputs = at_least_float32(torch.cat(list(batches)).cpu())
    if not outputs.isfinite().all():
        raise L2DError("training diverged: the router's scores are not finite; lower recipe.optimizer.lr")
    return RoutedSplit(split, outputs, method.decide(outputs))


def about_the_run(router: RouterModule, splits: Splits, validation: RoutedSplit, test: RoutedSplit) -> dict[str, Any]:
    """All metrics but the routing of the test split. None: this run has no such metric."""
    method, groups = router.method, splits.categories
    return {
        "schema_version": SCHEMA_VERSION,
        "capabilities": Capabilities(**method.capabilities(), reads_text=bool(router.network.reads_text)),
        "decision": method.decision,
        "method_buffers": {name: value.tolist() for name, value in method.named_buffers()},
        "rows": RowCounts(train=len(splits.train), validation=len(splits.validation), test=len(splits.test)),
        "validation": validation.score(validation.decisions),
        "by_decision": by_decision(method, validation, test) if method.has_posterior else None,
        "by_category": groups and metrics_.by_category(groups, test.decisions, splits.train_costs, test.split.costs),
        "calibration": calibration_on(method, test),
        "extreme": splits.cost_facts,
    }


def by_decision(method: Method, validation: RoutedSplit, test: RoutedSplit) -> dict[str, DecisionLosses]:
    def loss(part: RoutedSplit, decision: str) -> float:
        return part.score(method.decide(part.outputs, decision)).deferral_loss

    return {name: DecisionLosses(loss(validation, name), loss(test, name)) for name in DECISIONS}


def calibration_on(method: Method, test: RoutedSplit) -> list[list[float]] | None:
    """Of the posterior or, for methods that have none, of the estimated errors."""
    if method.has_posterior:
        return metrics_.calibration(method.posterior(test.outputs), method.mass(test.split.costs))
    expected = method.expected_errors(test.outputs)
    errors = test.split.costs - test.split.prices
    return None if expected is None else metrics_.calibration_of_chances(expected, errors)


def kept_arrays(method: Method, test: RoutedSplit) -> dict[str, Tensor]:
    """What test.npz keeps of each row."""
    split, outputs = test.split, test.outputs
    arrays = {"scores": outputs, "costs": split.costs, "prices": split.prices, "decisions": test.decisions}
    if (expected := method.expected_errors(outputs)) is not None:
        arrays["expected_errors"] = expected
    if method.has_posterior:
        arrays["posterior"] = method.posterior(outputs)
    return arrays


def held_out(method: Method, outputs: Tensor, splits: Splits, chosen_on: Tensor) -> dict[str, Tensor]:
    """The tensors of a HeldOut; empty if the method's prices cannot change. outputs: of the validation rows."""
    expected = method.expected_errors(outputs)
    if expected is None or splits.prices is None:
        return {}
    errors = splits.validation.costs - splits.validation.prices
    kept = HeldOut(errors.double(), expected, (chosen_on.double() - splits.prices).mean(dim=0))
    return {name: value.contiguous() for name, value in vars(kept).items()}


def hold(method: Method, validation: RoutedSplit, test: RoutedSplit, best: int) -> tuple[Guard, Tensor]:
    """The guard fitted to the validation rows, and its decisions on the test rows. best: the best single expert."""
    utilities = method.utilities(validation.outputs) if method.by_argmax else None
    guard = fit_guard(utilities, validation.decisions, validation.split.costs, best)
    return guard, guard.decide(method.utilities(test.outputs), test.decisions)
