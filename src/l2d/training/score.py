"""Scores a trained router: the only use of the test split, and the guard fitted to the validation rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.assembly.datamodule import DeferralData
from l2d.assembly.module import RouterModule
from l2d.core import metrics as metrics_
from l2d.core.decisions import DECISIONS, argmax_last, at_least_float32
from l2d.core.guard import Guard, HeldOut, fit_guard
from l2d.core.off_policy import Logged, known_costs, policy_value, value_of
from l2d.core.results import (
    ESTIMATED,
    KNOWN,
    SCHEMA_VERSION,
    Capabilities,
    DecisionLosses,
    LoggedOutcomes,
    RowCounts,
    RunMetrics,
    Score,
)
from l2d.data.split import Split
from l2d.methods.method import Method
from l2d.training.baselines import simple_scores
from l2d.training.learned_rows import LearnedRows
from l2d.utils.errors import L2DError


@dataclass(frozen=True)
class Scored:
    metrics: RunMetrics
    arrays: dict[str, Tensor]  # of the test rows, for test.npz
    guard: Guard
    held_out: dict[str, Tensor]  # validation rows, to fit a guard at other prices
    ids: np.ndarray | None  # of the test rows


@dataclass(frozen=True)
class RoutedRows:
    """What a router did on n rows, and what each expert costs there. expected_errors, posterior: of methods that have them.
    logged_expected, logged_weights: those of `logged`, if a log knows the costs only in part; the costs are doubly robust then."""

    scores: Tensor
    utilities: Tensor
    decisions: Tensor
    costs: Tensor
    prices: Tensor
    expected_errors: Tensor | None = None
    posterior: Tensor | None = None
    logged_expected: Tensor | None = None
    logged_weights: Tensor | None = None

    @classmethod
    def of(cls, method: Method, split: Split, outputs: Tensor) -> "RoutedRows":
        return cls(
            outputs,
            method.utilities(outputs),
            method.decide(outputs),
            split.costs,
            split.prices,
            method.expected_errors(outputs),
            method.posterior(outputs) if method.has_posterior else None,
            *(() if split.logged is None else (split.logged.expected, split.logged.weights)),
        )

    @property
    def logged(self) -> Logged | None:
        if self.logged_expected is None or self.logged_weights is None:
            return None
        return Logged(self.logged_expected, self.logged_weights)

    def __len__(self) -> int:
        return len(self.decisions)

    def score(self) -> Score:
        return metrics_.score(self.decisions, self.costs, self.prices)

    def arrays(self) -> dict[str, Tensor]:
        """What test.npz keeps."""
        return {name: value for name, value in vars(self).items() if value is not None}


def score_router(
    trainer: pl.Trainer,
    router: RouterModule,
    data: DeferralData,
    checkpoint: str,
    kept_epoch: int,
    simple: Callable[[Splits], dict[str, Score]] = simple_scores,
) -> Scored:
    """The only use of the test split. checkpoint, kept_epoch: how the router's weights were chosen, and from which epoch. simple:
    scores simple routers to compare with."""
    method, splits = router.method, data.splits
    loaders = [data.predict_dataloader(), data.val_dataloader()]
    found: Any = trainer.predict(router, dataloaders=loaders)
    test, validation = map(partial(routed, method), (splits.test, splits.validation), found)
    # Experts that learned from the training rows are compared on validation rows.
    chosen_on = splits.validation.costs if splits.panel.learned else splits.train_costs
    guard, guarded = hold(method, validation, test, metrics_.best_single(chosen_on))
    metrics = RunMetrics(
        **about_the_routing(method, splits, test, splits.categories, simple(splits)),
        log=about_the_log(splits, test, guarded, guard.best),
        **about_the_run(router, splits),
        evaluation="holdout",
        rows=RowCounts(train=len(splits.train), validation=len(splits.validation), test=len(splits.test)),
        validation=validation.score(),
        by_decision=by_decision(method, validation, test) if method.has_posterior else None,
        guarded=metrics_.guarded_score(guard, guarded, test.costs, test.prices, splits.panel.names),
        checkpoint=checkpoint,
        epochs=trainer.current_epoch,
        kept_epoch=kept_epoch,
    )
    kept = held_out(method, validation, splits, chosen_on)
    return Scored(metrics, test.arrays() | {"guarded": guarded}, guard, kept, splits.ids)


def routed(method: Method, split: Split, batches: Sequence[Tensor]) -> RoutedRows:
    """batches: the network's outputs for the split's rows."""
    outputs = at_least_float32(torch.cat(list(batches)).cpu())
    if not outputs.isfinite().all():
        raise L2DError("training diverged: the router's scores are not finite; lower recipe.optimizer.lr")
    return RoutedRows.of(method, split, outputs)


def about_the_routing(
    method: Method,
    splits: Splits,
    rows: RoutedRows,
    categories: Sequence[str] | None,
    simple: Mapping[str, Score],
) -> dict[str, Any]:
    """The metrics that follow from the routing of held-out rows. None: this run has no such metric. simple: of the simple routers
    to compare with."""
    costs, train_costs = rows.costs, splits.train_costs
    from_log = rows.logged is not None
    routing = metrics_.routing_metrics(
        rows.decisions, train_costs, costs, rows.prices, splits.panel.names, from_log=from_log
    )
    broken_down = partial(metrics_.by_category, from_log=from_log)
    return vars(routing) | {
        "baselines": replace(routing.baselines, **simple),
        "by_category": categories and broken_down(categories, rows.decisions, train_costs, costs),
        "calibration": calibration_on(method, rows),
    }


def about_the_log(splits: Splits, rows: RoutedRows, guarded: Tensor, best: int) -> LoggedOutcomes | None:
    """What a log says of the router, of the guarded router and of the best single expert; None if all costs are known."""
    if rows.logged is None or splits.propensities is None:
        return None
    value = partial(value_of, robust=rows.costs, logged=rows.logged)
    asked = rows.logged.weights > 0
    return LoggedOutcomes(
        asked=asked.double().mean(dim=0).tolist(),
        propensities=splits.propensities,
        policy=policy_value(known_costs(rows.costs, rows.logged)),
        router=value(rows.decisions),
        guarded=value(guarded),
        best_single=value(torch.full_like(rows.decisions, best)),
    )


def about_the_run(router: RouterModule, splits: Splits) -> dict[str, Any]:
    """The metrics that do not follow from the routing of rows."""
    method = router.method
    return {
        "schema_version": SCHEMA_VERSION,
        "capabilities": Capabilities(**method.capabilities(), reads_text=bool(router.network.reads_text)),
        "decision": method.decision,
        "method_buffers": {name: value.tolist() for name, value in method.named_buffers()},
        "extreme": splits.cost_facts,
    }


def by_decision(method: Method, validation: RoutedRows, test: RoutedRows) -> dict[str, DecisionLosses]:
    def loss(part: RoutedRows, decision: str) -> float:
        known = part.posterior if decision == "posterior" else None
        decisions = method.decide(part.scores, decision) if known is None else argmax_last(known)
        return replace(part, decisions=decisions).score().deferral_loss

    return {name: DecisionLosses(loss(validation, name), loss(test, name)) for name in DECISIONS}


def calibration_on(method: Method, rows: RoutedRows) -> list[list[float]] | None:
    """Of the posterior or, for methods that have none, of the estimated errors. None for a log, whose costs are right only
    in the mean."""
    if rows.logged is not None:
        return None
    if rows.posterior is not None:
        return metrics_.calibration(rows.posterior, method.mass(rows.costs))
    expected = rows.expected_errors
    return None if expected is None else metrics_.calibration_of_chances(expected, rows.costs - rows.prices)


def held_out(
    method: Method,
    rows: RoutedRows,
    splits: Splits,
    chosen_on: Tensor,
    learned: tuple[LearnedRows, LearnedRows] | None = None,
) -> dict[str, Tensor]:
    """The tensors of a HeldOut; empty if the method's prices cannot change. rows: those that the guard is fitted to. chosen_on: the
    costs that choose the best single expert. learned: if other routers judged the rows, what the router and they expect of rows
    that they learned from."""
    if rows.expected_errors is None:
        return {}
    errors = (rows.costs - rows.prices).double()
    if splits.prices is not None:
        kept = HeldOut(errors, rows.expected_errors, (chosen_on.double() - splits.prices).mean(dim=0))
    else:
        kept = HeldOut(
            errors,
            rows.expected_errors,
            errors.mean(dim=0),
            prices=rows.prices.double(),
            expected_prices=method.expected_prices(rows.scores),
            mean_prices=rows.prices.double().mean(dim=0),
        )
    if learned is not None:
        own, theirs = learned
        kept = replace(
            kept,
            learned=own.rows,
            deployed=own.errors,
            deployed_prices=own.prices,
            seen=theirs.errors,
            seen_prices=theirs.prices,
        )
    return kept.tensors()


def hold(method: Method, seen: RoutedRows, asked: RoutedRows, best: int) -> tuple[Guard, Tensor]:
    """The guard fitted to the rows `seen`, which the router did not learn from, and its decisions on the rows `asked`. best: the
    best single expert."""
    needed = KNOWN if seen.logged_weights is None else ESTIMATED
    guard = fit_guard(seen.utilities if method.by_argmax else None, seen.decisions, seen.costs, best, needed)
    return guard, guard.decide(asked.utilities, asked.decisions)
