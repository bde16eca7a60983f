"""What a trained router comes to: the one use of the test split, and the guard that validation rows ask for."""

import dataclasses
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.core import metrics as metrics_
from l2d.core.costs import paid
from l2d.core.decisions import DECISIONS, at_least_float32
from l2d.core.guard import Guard, HeldOut, fit_guard
from l2d.methods.method import Method
from l2d.routing.datamodule import DeferralData, Split
from l2d.routing.module import Router
from l2d.utils.errors import L2DError

Metrics = dict[str, Any]


def evaluate(
    trainer: pl.Trainer, router: Router, data: DeferralData
) -> tuple[Metrics, dict[str, Tensor], Guard, dict[str, Tensor]]:
    """The one use of the test split: metrics, arrays of its rows, the guard, and what one for other prices would be fitted to."""
    outputs = predict(trainer, router, data.predict_dataloader())
    decisions = router.method.decide(outputs)
    validation_outputs = predict(trainer, router, data.val_dataloader())
    validation = router.method.decide(validation_outputs)
    buffers = {name: value.tolist() for name, value in router.method.named_buffers()}
    metrics = metrics_.evaluate(decisions, data.raw_costs, data.test.costs, data.test.prices, data.panel.names) | {
        "validation": dataclasses.asdict(metrics_.score(validation, data.validation.costs, data.validation.prices)),
        "decision": router.method.decision,
        "method_buffers": buffers,
        "rows": {"train": len(data.train), "validation": len(data.validation), "test": len(decisions)},
    }
    if data.categories is not None:
        metrics["by_category"] = metrics_.by_category(data.categories, decisions, data.raw_costs, data.test.costs)
    if data.extreme is not None:
        metrics["extreme"] = data.extreme
    arrays = {"scores": outputs, "costs": data.test.costs, "prices": data.test.prices, "decisions": decisions}
    if (expected := router.method.expected_errors(outputs)) is not None:
        arrays["expected_errors"] = expected
        metrics["calibration"] = metrics_.calibration_of_chances(expected, data.test.costs - data.test.prices)
    if router.method.has_posterior:
        arrays["posterior"] = router.method.posterior(outputs)
        metrics["by_decision"] = {
            name: {
                "validation": mean_cost(data.validation.costs, router.method.decide(validation_outputs, name)),
                "test": mean_cost(data.test.costs, router.method.decide(outputs, name)),
            }
            for name in DECISIONS
        }
        metrics["calibration"] = metrics_.calibration(arrays["posterior"], router.method.mass(data.test.costs))
    # Experts that learned the training rows by heart are not compared there.
    chosen_on = data.validation.costs if data.panel.learned else data.raw_costs
    best = metrics_.best_single(chosen_on)
    guard, guarded = hold(router.method, (validation_outputs, validation, data.validation), (outputs, decisions), best)
    metrics["guarded"] = metrics_.guarded(guard, guarded, data.test.costs, data.test.prices, data.panel.names)
    arrays["guarded"] = guarded
    return metrics, arrays, guard, held_out(router.method, validation_outputs, data, chosen_on)


def held_out(method: Method, outputs: Tensor, data: DeferralData, chosen_on: Tensor) -> dict[str, Tensor]:
    """A HeldOut's tensors, for a method whose prices may change; outputs: of the validation rows."""
    expected = method.expected_errors(outputs)
    if expected is None or data.prices is None:
        return {}
    errors = data.validation.costs - data.validation.prices
    kept = HeldOut(errors.double(), expected, (chosen_on.double() - data.prices).mean(dim=0))
    return {name: value.contiguous() for name, value in vars(kept).items()}


def hold(
    method: Method, validation: tuple[Tensor, Tensor, Split], test: tuple[Tensor, Tensor], best: int
) -> tuple[Guard, Tensor]:
    """The guard that validation rows ask for, and what it makes of the decisions on the test rows. best: the best single expert."""
    outputs, decisions, split = validation
    guard = fit_guard(method.utilities(outputs) if method.by_argmax else None, decisions, split.costs, best)
    return guard, guard.decide(method.utilities(test[0]), test[1])


def mean_cost(costs: Tensor, decisions: Tensor) -> float:
    return float(paid(costs.double(), decisions).mean())


def predict(trainer: pl.Trainer, router: Router, batches: Any) -> Tensor:
    outputs = trainer.predict(router, dataloaders=batches)
    assert outputs is not None
    scores = at_least_float32(torch.cat([torch.as_tensor(batch) for batch in outputs]).cpu())
    if not scores.isfinite().all():
        raise L2DError("training diverged: the router's scores are not finite; lower recipe.optimizer.lr")
    return scores
