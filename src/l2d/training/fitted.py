"""A router that training has finished with: what it expects on rows that it learned from, and its plans, if it has some. These are
judged as experts are: a column of costs each, after those of the experts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.assembly.datamodule import DeferralData
from l2d.assembly.module import RouterModule
from l2d.core import metrics as metrics_
from l2d.core.decisions import at_least_float32
from l2d.core.guard import Guard
from l2d.core.results import PlanEvidence
from l2d.data.batches import Batches
from l2d.data.splits import Split
from l2d.methods.method import Method
from l2d.networks.estimators.planner import LEARNED, plan_names, planner_of
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


def with_plan_names(fitted: Fitted, splits: Splits) -> Splits:
    """train_costs then have a column for each plan too, from estimates that did not see the row."""
    planner = planner_of(fitted.network)
    if planner is None:
        return splits
    names = (*splits.panel.names, *plan_names(len(splits.panel.names)))
    return replace(splits, panel=replace(splits.panel, names=names), train_costs=rivals(fitted, planner.costs))


def rivals(fitted: Fitted, costs: Tensor) -> Tensor:
    """The learned plan is compared with the others, so it is not one of them. costs: with a column for each plan."""
    if planner_of(fitted.network) is None:
        return costs
    others = costs.clone()
    others[:, -1] = torch.inf
    return others


def plan_outcomes(fitted: Fitted, split: Split, outputs: Tensor) -> tuple[Tensor, Tensor] | None:
    """Costs and prices of the plans on the rows of a split, [n, plans]; None for methods without plans."""
    planner, p = planner_of(fitted.network), len(fitted.splits.panel.names)
    if planner is None:
        return None
    replies = split.answers.replies
    assert replies is not None
    errors = split.costs.double() - split.prices if replies.asks is None else 1 - replies.asks.right
    return planner.outcomes(outputs[:, :p], replies, errors, split.prices.double())


def plan_evidence(splits: Splits, costs: Tensor, prices: Tensor, guarded: Tensor) -> PlanEvidence | None:
    """costs, prices, guarded: of held-out rows; None for methods without plans."""
    p, names = splits.train.costs.shape[1], splits.panel.names
    if len(names) == p:
        return None
    single = metrics_.best_single(splits.train_costs[:, :p])
    simple = p + metrics_.best_single(splits.train_costs[:, p:])
    followed = metrics_.score(torch.full_like(guarded, simple), costs, prices)
    return PlanEvidence(p, followed, metrics_.gain_over(single, guarded, costs, names))


def deployed(network: Network, splits: Splits, guard: Guard) -> tuple[Guard, str | None]:
    """The guard of the router that is used, and the plan that it follows. The best single expert is the best of the experts."""
    planner, p = planner_of(network), len(splits.panel.names)
    if planner is None or (guard.constant is not None and guard.constant < p):
        return guard, None
    best = int(planner.costs[:, :p].mean(dim=0).argmin())
    name = LEARNED if guard.constant is None else plan_names(p)[guard.constant - p]
    return replace(guard, best=best, constant=None), name
