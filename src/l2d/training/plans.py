"""The plans of method=plan are judged as experts are: a column of costs each, after those of the experts."""

from dataclasses import replace

import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.core import metrics as metrics_
from l2d.core.guard import Guard
from l2d.core.results import PlanEvidence
from l2d.data.splits import Split
from l2d.networks.estimators.planner import LEARNED, plan_names, planner_of
from l2d.networks.network import Network
from l2d.training.fitted import Fitted


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
