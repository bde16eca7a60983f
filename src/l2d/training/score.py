"""Scores a trained router: the only use of the test split, and the guard fitted to the validation rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.core import metrics as metrics_
from l2d.core import off_policy, results
from l2d.core.decisions import DECISIONS
from l2d.core.guard import Guard, HeldOut, fit_guard
from l2d.core.off_policy import Logged
from l2d.core.results import Capabilities, DecisionLosses, LoggedOutcomes, RowCounts, RunMetrics, Score
from l2d.data.splits import Split
from l2d.methods.method import Method
from l2d.training.baselines import simple_scores
from l2d.training.fitted import Fitted, LearnedRows, plan_evidence, plan_outcomes, with_plan_names
from l2d.utils.errors import L2DError

RARE = 0.02  # a propensity
EXPLORE = 0.1  # the share of decisions that a server would explore


@dataclass(frozen=True)
class Judged:
    guard: Guard  # fitted to the held-out rows
    held_out: dict[str, Tensor]  # to fit a guard at other prices


@dataclass(frozen=True)
class Scored:
    metrics: RunMetrics
    arrays: dict[str, Tensor]  # of the test rows, for test.npz
    judged: Judged
    ids: np.ndarray | None  # of the test rows


@dataclass(frozen=True)
class RoutedRows:
    """The decisions of a router on n rows, and the costs there: doubly robust ones, if a log (logged_…) knows only some."""

    scores: Tensor
    utilities: Tensor
    decisions: Tensor
    costs: Tensor
    prices: Tensor
    expected_errors: Tensor | None = None
    posterior: Tensor | None = None
    logged_expected: Tensor | None = None
    logged_weights: Tensor | None = None
    logged_chances: Tensor | None = None

    @classmethod
    def of(cls, method: Method, split: Split, outputs: Tensor) -> "RoutedRows":
        decided = (method.utilities(outputs), method.decide(outputs), split.costs, split.prices)
        posterior = method.posterior(outputs) if method.has_posterior else None
        logged = () if split.logged is None else vars(split.logged).values()
        return cls(outputs, *decided, method.expected_errors(outputs), posterior, *logged)

    @property
    def logged(self) -> Logged | None:
        if self.logged_expected is None or self.logged_weights is None:
            return None
        return Logged(self.logged_expected, self.logged_weights, self.logged_chances)

    def score(self) -> Score:
        return metrics_.score(self.decisions, self.costs, self.prices)

    def arrays(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if value is not None}


def score_router(fitted: Fitted) -> Scored:
    method, data = fitted.method, fitted.data
    splits = with_plan_names(fitted, fitted.splits)
    outputs = fitted.outputs([data.predict_dataloader(), data.val_dataloader()])
    test, validation = map(partial(routed, fitted), (splits.test, splits.validation), outputs)
    judged = judge(fitted, validation)
    guard, guarded = judged.guard, judged.guard.decide(test.utilities, test.decisions)
    metrics = measured(
        *(fitted, splits, test, guard, guarded, splits.arrays.categories, simple_scores(splits)),
        evaluation="holdout",
        rows=RowCounts(train=len(splits.train), validation=len(splits.validation), test=len(splits.test)),
        validation=validation.score(),
        by_decision=by_decision(method, validation, test) if method.has_posterior else None,
    )
    return Scored(metrics, test.arrays() | {"guarded": guarded}, judged, splits.arrays.ids)


def judge_validation(fitted: Fitted) -> Judged:
    [outputs] = fitted.outputs([fitted.data.val_dataloader()])
    return judge(fitted, routed(fitted, fitted.splits.validation, outputs))


def judge(fitted: Fitted, validation: RoutedRows) -> Judged:
    method, splits = fitted.method, with_plan_names(fitted, fitted.splits)
    # Experts that learned from the training rows are compared on validation rows.
    chosen_on = splits.validation.costs if splits.panel.learned else splits.train_costs
    guard = guard_of(method, validation, metrics_.best_single(chosen_on))
    groups = None if splits.arrays.groups is None else splits.arrays.groups[splits.validation.rows]
    return Judged(guard, held_out(method, validation, splits, chosen_on, groups))


def routed(fitted: Fitted, split: Split, outputs: Tensor) -> RoutedRows:
    if not outputs.isfinite().all():
        raise L2DError("training diverged: the router's scores are not finite; lower recipe.optimizer.lr")
    rows = RoutedRows.of(fitted.method, split, outputs)
    plans = plan_outcomes(fitted, split, outputs)
    return rows if plans is None else with_plans(rows, *plans)


def with_plans(rows: RoutedRows, costs: Tensor, spent: Tensor) -> RoutedRows:
    """The rows of a router that follows the learned plan, with a column of costs and of prices for each plan."""
    whole = torch.cat([rows.costs, costs.to(rows.costs)], dim=1)
    prices = torch.cat([rows.prices.expand_as(rows.costs), spent.to(rows.prices)], dim=1)
    learned = torch.full_like(rows.decisions, whole.shape[1] - 1)
    rows = replace(rows, decisions=learned, costs=whole, prices=prices, expected_errors=None)
    if (logged := rows.logged) is None:
        return rows
    expected = torch.cat([logged.expected, costs], dim=1)
    weights = torch.cat([logged.weights, torch.zeros_like(costs)], dim=1)  # the estimates are final
    return replace(rows, logged_expected=expected, logged_weights=weights, logged_chances=None)


def measured(
    fitted: Fitted,
    splits: Splits,
    test: RoutedRows,
    guard: Guard,
    guarded: Tensor,
    categories: Sequence[str] | None,
    simple: Mapping[str, Score],
    **more: Any,
) -> RunMetrics:
    """The metrics of held-out rows, test. guarded: the decisions there with a guard that did not see them. simple: the scores of
    simple routers. more: metrics that differ between the ways to evaluate."""
    method, costs, names, from_log = fitted.method, test.costs, splits.panel.names, test.logged is not None
    singles = splits.train.costs.shape[1]  # simple routers choose among these, not among plans
    given = (test.decisions, splits.train_costs, costs, test.prices, names)
    routing = metrics_.routing_metrics(*given, from_log=from_log, singles=singles)
    plans = [0.0] * (costs.shape[1] - singles)
    simple = {name: replace(one, ratios=[*one.ratios, *plans][: costs.shape[1]]) for name, one in simple.items()}
    if plans:  # a plan for all rows is no collapse
        routing = replace(routing, collapsed_expert=None)
    alone = (test.decisions, splits.train_costs[:, :singles], costs)
    return RunMetrics(
        **{**vars(routing), "baselines": replace(routing.baselines, **simple)},
        by_category=metrics_.by_category(categories, *alone, from_log=from_log) if categories else None,
        calibration=calibration_on(method, test),
        log=about_the_log(splits, test, guarded, guard),
        guarded=metrics_.guarded_score(guard, guarded, costs, test.prices, names),
        plans=plan_evidence(splits, costs, test.prices, guarded),
        schema_version=results.SCHEMA_VERSION,
        capabilities=Capabilities(**method.capabilities(), reads_text=bool(fitted.network.reads_text)),
        decision=method.decision,
        method_buffers={name: value.tolist() for name, value in method.named_buffers()},
        extreme=splits.cost_facts,
        checkpoint=fitted.checkpoint,
        epochs=fitted.trainer.current_epoch,
        kept_epoch=fitted.kept_epoch,
        **more,
    )


def about_the_log(splits: Splits, rows: RoutedRows, guarded: Tensor, guard: Guard) -> LoggedOutcomes | None:
    """The values of the router, the guarded router and the best single expert in a log; None if all costs are known."""
    logged = rows.logged
    if logged is None or splits.propensities is None:
        return None
    value, singles = partial(off_policy.value_of, robust=rows.costs, logged=logged), splits.train.costs.shape[1]
    alone = [torch.full_like(rows.decisions, k) for k in range(len(splits.panel.names))]
    best, costs, chances = alone[guard.best], rows.costs.double(), logged.chances
    rivals, served, other = [best], guarded, best
    if guard.constant is not None:
        rivals, served, other = [one for k, one in enumerate(alone) if k != guard.constant], best, rows.decisions
    return LoggedOutcomes(
        asked=(logged.weights > 0).double().mean(dim=0).tolist()[:singles],
        propensities=splits.propensities,
        policy=off_policy.policy_value(off_policy.known_costs(rows.costs, logged)),
        router=value(rows.decisions),
        guarded=value(guarded),
        best_single=value(best),
        effective_rows=off_policy.effective_rows(logged.weights).tolist()[:singles],
        rare=None if chances is None or chances.isnan().any() else float((chances < RARE).any(dim=1).double().mean()),
        flip_strength=min(off_policy.flip_strength(served, rival, costs, logged) for rival in rivals),
        explored_deviation=off_policy.explored_deviation(served, other, costs, logged, EXPLORE),
        rows_per_day=splits.panel.rows_per_day,
    )


def by_decision(method: Method, validation: RoutedRows, test: RoutedRows) -> dict[str, DecisionLosses]:
    def loss(part: RoutedRows, decision: str) -> float:
        return replace(part, decisions=method.decide(part.scores, decision)).score().deferral_loss

    return {name: DecisionLosses(loss(validation, name), loss(test, name)) for name in DECISIONS}


def calibration_on(method: Method, rows: RoutedRows) -> list[list[float]] | None:
    """Of the posterior, or of the estimated errors. None for a log, whose costs are right only in the mean."""
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
    groups: Tensor | None = None,
    learned: Sequence[LearnedRows] | None = None,
) -> dict[str, Tensor]:
    """A HeldOut as tensors; none if the method's prices cannot change. chosen_on: costs that choose the best expert."""
    if rows.expected_errors is None:
        return {}
    errors = (rows.costs - rows.prices).double()
    if splits.prices is not None:
        kept = HeldOut(errors, rows.expected_errors, (chosen_on.double() - splits.prices).mean(dim=0))
    else:
        prices, expected = rows.prices.double(), method.expected_prices(rows.scores)
        kept = HeldOut(errors, rows.expected_errors, errors.mean(dim=0), prices=prices, expected_prices=expected)
        kept = replace(kept, mean_prices=prices.mean(dim=0))
    if learned is not None:
        own, theirs = learned
        kept = replace(kept, learned=own.rows, deployed=own.errors, deployed_prices=own.prices)
        kept = replace(kept, seen=theirs.errors, seen_prices=theirs.prices)
    if groups is not None and len(groups.unique()) < len(groups):
        kept = replace(kept, groups=groups.unique(return_inverse=True)[1])
    return kept.tensors()


def guard_of(method: Method, rows: RoutedRows, best: int) -> Guard:
    """The guard fitted to rows that the router did not learn from. best: the best single expert."""
    needed = results.KNOWN if rows.logged_weights is None else results.ESTIMATED
    by_argmax = method.by_argmax and rows.utilities.shape == rows.costs.shape  # there are none for plans
    return fit_guard(rows.utilities if by_argmax else None, rows.decisions, rows.costs, best, needed)
