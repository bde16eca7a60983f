"""A plan that keeps an error rate."""

import copy
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from l2d.core.guard import Guard
from l2d.core.prices import PriceList
from l2d.core.risk import dearest_kept, factors_by_spread, whole
from l2d.lightning.threads import one_thread_if_small
from l2d.networks.estimators.planner import LEARNED, planner_of
from l2d.router.plans import Candidate, candidates, point_of, unit_of
from l2d.router.trained import TrainedRouter
from l2d.utils.errors import ParameterError

R = TypeVar("R", bound=TrainedRouter)
STEPS = 60  # factors that are tried: each one is a plan


def promised_plan(router: R, given: PriceList | None, max_error: float, confidence: float) -> R:
    """See Router.at. The learned plan, made at the largest multiple of the prices whose error is kept, on the training rows, judged
    by estimates that did not see the row."""
    network = copy.deepcopy(router.network)
    planner = planner_of(network)
    assert planner is not None
    if planner.asks is not None or unit_of(router) != 1:
        raise ParameterError("max_error", "a plan needs rows of which all errors are known, from 0 to 1", max_error)
    listed, paid = router.prices.listed, planner.paid
    if given is not None:
        listed = tuple(router.prices.listed_from(given, router.experts))
        paid = torch.tensor(listed).expand_as(planner.right).contiguous()

    def at(factor: Tensor) -> Candidate:
        return candidates(planner, paid, float(factor))[-1]

    def made(factor: Tensor) -> Tensor:
        tried = at(factor)
        return whole((tried.costs - tried.spent).double())

    with one_thread_if_small(paid.numel()):
        factor = dearest_kept(factors_by_spread(paid.mean(dim=0).double(), STEPS), made, max_error, confidence)
        chosen = at(factor)
    guard = Guard(None, None, int((1 - planner.right + paid).mean(dim=0).argmin()), 0.0, None)
    found = point_of(router, chosen, 0.0, confidence, guard)
    point = replace(found, budget=found.spend, overspend=0.5, max_error=max_error)
    method = copy.deepcopy(router.method)
    if given is not None and listed is not None:
        method.reprice(torch.tensor(listed))
    described = replace(router.description, prices=listed, guard=guard, plan=LEARNED)
    return replace(
        router, network=network, method=method, description=described, validation=None, operating_point=point
    )
