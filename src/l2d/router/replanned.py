"""A router whose plans are made anew: at other prices, within a budget, or to keep an error rate."""

import copy
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TypeVar

import torch
from torch import Tensor

from l2d.core.budget import ROUNDING, OperatingPoint
from l2d.core.guard import Guard, paired
from l2d.core.prices import PriceList
from l2d.core.risk import dearest_kept, factors_by_spread, whole
from l2d.lightning.threads import one_thread_if_small
from l2d.methods.priced import CostRegression
from l2d.networks.estimators.planner import LEARNED, Planner, plan_names, planner_of
from l2d.router.trained import TrainedRouter
from l2d.utils.errors import ParameterError
from l2d.utils.text import Z

R = TypeVar("R", bound=TrainedRouter)
# The guard, the plan to follow, and what a budget or promise expects.
Chosen = tuple[Guard, str | None, OperatingPoint | None]
FACTORS = tuple(2 ** (step / 2) for step in range(13))  # on prices, to plan with within a budget
HALVINGS = 5  # of the step between two of them
SURE = 0.95  # the confidence of a promised error
STEPS = 60  # factors that are tried to keep an error: each one is a plan


def replanned(
    router: R, given: PriceList | None, budget: float | None, confidence: float | None, max_error: float | None
) -> R:
    """See Router.at."""
    network, method = copy.deepcopy(router.network), copy.deepcopy(router.method)
    planner = planner_of(network)
    assert planner is not None
    listed, paid = router.prices.listed, planner.paid
    if given is not None:
        listed = tuple(router.prices.listed_from(given, router.experts))
        paid = (torch.tensor(listed) / unit_of(router)).expand_as(planner.right).contiguous()
        method.reprice(torch.tensor(listed))
    with one_thread_if_small(paid.numel()):
        if max_error is None:
            guard, plan, point = cheapest(router, planner, paid, budget, confidence)
        else:
            guard, plan, point = promised(router, planner, paid, max_error, SURE if confidence is None else confidence)
    about = replace(router.description, prices=listed, guard=guard, plan=plan)
    return replace(router, network=network, method=method, description=about, validation=None, operating_point=point)


def cheapest(
    router: TrainedRouter, planner: Planner, paid: Tensor, budget: float | None, confidence: float | None
) -> Chosen:
    """The plan of least cost on the training rows, judged by estimates that did not see the row; within a budget, of the plans at
    multiples of the prices whose mean spend is within it. It is left in the planner. paid: prices of the training rows [n, p]."""
    unit, experts = unit_of(router), router.experts
    level = None if budget is None else router.prices.in_errors(budget) * (1 + ROUNDING) / unit
    tried = candidates(planner, paid, 1.0)
    if level is not None and tried[-1].most(confidence) > level:
        tried += made_cheaper(planner, paid, level, confidence)
    within = [one for one in tried if level is None or one.most(confidence) <= level]
    if not within:
        least = router.prices.short(float(router.prices.amount(paid.mean(dim=0).min() * unit)))
        raise ParameterError("budget", f"nobody is asked for less than {least}", budget)
    chosen, needed = min(within, key=lambda one: one.cost), router.description.guard.needed
    rival = min((one for one in within if one.place < tried[-1].place), key=lambda one: one.cost, default=chosen)
    if not Guard(None, None, 0, *paired((rival.costs - chosen.costs).double()), needed).pays:
        chosen = rival  # as in training, the learned plan has to gain
    planner.plan_at(paid, chosen.factor)
    allowed = [k for k in range(len(experts)) if level is None or tried[k].most(confidence) <= level]
    singles, best = planner.right.shape[1], min(allowed or range(len(experts)), key=lambda k: tried[k].cost)
    gain, error = paired((tried[best].costs - chosen.costs).double())
    single = chosen.place < singles
    guard = Guard(None, chosen.place if single else None, best, gain, error, needed)
    name = None if single else plan_names(singles)[chosen.place - singles]
    point = None if budget is None else point_of(router, chosen, budget, confidence, guard)
    return guard, name, point if point is None else replace(point, allowed=tuple(allowed))


def promised(router: TrainedRouter, planner: Planner, paid: Tensor, max_error: float, confidence: float) -> Chosen:
    """The same of the learned plan, made at the largest multiple of the prices whose error is kept."""
    if planner.asks is not None or unit_of(router) != 1:
        raise ParameterError("max_error", "a plan needs rows of which all errors are known, from 0 to 1", max_error)

    def made(factor: Tensor) -> Tensor:
        tried = candidates(planner, paid, float(factor))[-1]
        return whole((tried.costs - tried.spent).double())

    factor = dearest_kept(factors_by_spread(paid.mean(dim=0).double(), STEPS), made, max_error, confidence)
    chosen = candidates(planner, paid, float(factor))[-1]
    guard = Guard(None, None, int((1 - planner.right + paid).mean(dim=0).argmin()), 0.0, None)
    point = point_of(router, chosen, 0.0, confidence, guard)
    return guard, LEARNED, replace(point, budget=point.spend, overspend=0.5, max_error=max_error)


def unit_of(router: TrainedRouter) -> float:
    """One unit of the planner, whose errors are from 0 to 1, in units of one error."""
    assert isinstance(router.method, CostRegression)
    return float(router.method.most - router.method.least)


@dataclass(frozen=True)
class Candidate:
    """An expert or a plan, judged on the training rows by estimates that did not see the row."""

    place: int  # among the experts, then the plans
    factor: float  # on the prices, to make the plan
    costs: Tensor  # [n], at the prices themselves, in the planner's unit
    spent: Tensor

    @property
    def cost(self) -> float:
        return float(self.costs.mean())

    def most(self, confidence: float | None) -> float:
        mean, error = paired(self.spent.double())
        return mean + (0.0 if confidence is None else NormalDist().inv_cdf(confidence) * (error or 0.0))


def made_cheaper(planner: Planner, paid: Tensor, level: float, confidence: float | None) -> list[Candidate]:
    """Plans made at larger multiples of the prices, and between the last one that spends more than the level and the next."""
    found, dearer, cheaper = list[Candidate](), 1.0, 1.0
    for factor in FACTORS[1:]:
        found += candidates(planner, paid, factor)
        if found[-1].most(confidence) <= level:
            cheaper = factor
            break
        dearer = factor
    for _ in range(HALVINGS if cheaper > 1 else 0):
        middle = (dearer * cheaper) ** 0.5
        found += candidates(planner, paid, middle)
        dearer, cheaper = (dearer, middle) if found[-1].most(confidence) <= level else (middle, cheaper)
    return found


def candidates(planner: Planner, paid: Tensor, factor: float) -> list[Candidate]:
    """The experts first, then the plans made at these prices times the factor."""
    planner.plan_at(paid, factor)
    costs, spent = planner.alone(paid)
    found = list(zip(costs.T, spent.T, strict=True))
    found += [planner.judged(plan, paid) for plan in planner.plans.values()]
    return [Candidate(place, factor, *one) for place, one in enumerate(found)]


def point_of(
    router: TrainedRouter, chosen: Candidate, budget: float, confidence: float | None, guard: Guard
) -> OperatingPoint:
    unit = unit_of(router)
    pairs = (paired(part.double() * unit) for part in (chosen.costs - chosen.spent, chosen.spent))
    (wrong, wrong_se), (spend, spread) = pairs
    mean, low, high = (float(router.prices.amount(spend + side * Z * (spread or 0.0))) for side in (0, -1, 1))
    beyond = float(router.prices.amount(spread or 0.0)) or 1e-12
    return OperatingPoint(
        *(budget, chosen.factor, mean, (low, high), 1 - NormalDist().cdf((budget - mean) / beyond)),
        *(wrong, wrong_se or 0.0, guard),
        rows=len(chosen.costs),
        crossed=True,
        allowed=tuple(range(len(router.experts))),
        confidence=confidence,
        unit=router.prices,
    )
