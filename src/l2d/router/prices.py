"""A router at other prices or within a budget, and the costs that it is scored by."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from l2d.core.budget import OperatingPoint, keep_within
from l2d.core.guard import HeldOut
from l2d.core.prices import PriceList
from l2d.core.risk import keep_error
from l2d.data.given import read_outcomes
from l2d.methods.method import Method
from l2d.networks.estimators.planner import planner_of
from l2d.router.replanned import SURE, replanned
from l2d.router.trained import NEEDS_GUARD, TrainedRouter, knows_prices
from l2d.utils.errors import ParameterError

R = TypeVar("R", bound=TrainedRouter)


def repriced(
    router: R, given: PriceList | None, budget: float | None, confidence: float | None, max_error: float | None
) -> R:
    """See Router.at."""
    for name, value in (("budget", budget), ("confidence", confidence), ("max_error", max_error)):
        if isinstance(value, str) or np.ndim(value or 0):
            raise ParameterError(name, "must be a number", value)
    if max_error is not None:
        if budget is not None or router.raw:
            raise ParameterError("max_error", "cannot be combined with a budget or raw", max_error)
    else:
        point = router.operating_point
        if budget is None and point is not None and (given is not None or confidence is not None):
            budget, confidence = own_budget(point, given, confidence)
        if budget is None and confidence is not None:
            raise ParameterError("confidence", "needs a budget", confidence)
        if given is None and budget is None:
            raise ParameterError("prices", "missing; give prices, a budget, or both")
        if budget is not None and router.raw:
            raise ParameterError("budget", NEEDS_GUARD, budget)
    if confidence is not None and not 0.5 <= confidence < 1:
        raise ParameterError("confidence", "must be at least 0.5 and less than 1", confidence)
    if planner_of(router.network) is not None:
        return replanned(router, given, budget, confidence, max_error)
    asked = "max_error" if max_error is not None else "budget" if given is None else "prices"
    known = None if router.prices.listed is None else in_float32(router.prices.listed)
    listed = known if given is None else in_float32(router.prices.listed_from(given, router.experts))
    method = method_at(router.method, listed, 1.0, asked)
    held_out = rows_of(router, asked)
    if budget is not None and given is None and not router.prices.counted:
        raise ParameterError("budget", "this router counts no prices; give prices too", budget)
    prices = router.prices if listed is None else router.prices.with_list(listed)
    guard, factor, point = router.description.guard, 1.0, None
    if max_error is not None:
        point = keep_error(held_out, prices, max_error, SURE if confidence is None else confidence)
    elif budget is not None:
        point = keep_within(held_out, prices, budget, confidence)
    elif listed is not None and (listed != known or router.prices.factor != 1):
        guard = held_out.guard_at(torch.tensor(listed))
    if point is not None:
        guard, factor = point.guard, point.factor
        method = method_at(method, listed, factor, asked)
    described = replace(router.description, prices=listed, guard=guard, factor=factor)
    # Its score was measured at other prices.
    return replace(router, method=method, description=described, validation=None, operating_point=point)


def rows_of(router: TrainedRouter, asked: str) -> HeldOut:
    """The rows to judge on. asked: the parameter that needs them."""
    if router.held_out is None:
        problem = "no rows to judge the experts on, since one was added (with_expert) or an earlier l2d trained the run"
        raise ParameterError(asked, f"{problem}; train again (force=true), with rows of all experts")
    if not knows_prices(router):
        raise ParameterError(asked, "this router was fitted with whole costs; in l2d.fit, give errors= and prices=")
    return router.held_out


def own_budget(point: OperatingPoint, given: PriceList | None, confidence: float | None) -> tuple[float, float | None]:
    """The budget that the router keeps, and its confidence, unless another one is given. given: the prices to keep it at."""
    if point.max_error is not None:
        problem = f"this router keeps an error of {point.max_error:g}; give max_error or a budget too"
        raise ParameterError("max_error", problem)
    if given is not None and point.unit.latency_price:
        raise ParameterError("prices", "the budget contains latency, these prices do not; give a budget too")
    return point.budget, point.confidence if confidence is None else confidence


def in_float32(prices: Sequence[float]) -> tuple[float, ...]:
    """The prices, rounded as the method's are."""
    return tuple(torch.tensor(prices, dtype=torch.float32).tolist())


def method_at(method: Method, listed: tuple[float, ...] | None, factor: float, asked: str) -> Method:
    """A copy that decides by these prices times the factor. listed: None if each query has its own. asked: the parameter."""
    other = copy.deepcopy(method)
    try:
        if listed is None:
            other.rescale(factor)
        else:
            other.reprice(torch.tensor(listed) * factor)
    except ParameterError as error:  # the method has learned its prices
        raise ParameterError(asked, error.problem) from error
    return other


def costs_for(router: TrainedRouter, n: int, costs: Any, errors: Any, prices: Any) -> tuple[Tensor, Tensor | None]:
    """The costs of n queries [n, p], and the prices in them if they are known apart, in units of one error."""
    wrong, given = read_outcomes(costs, errors, prices, router.experts)
    if given is not None:
        given = router.prices.in_costs(given)
    elif costs is None and router.prices.listed is not None:
        given = torch.tensor(router.prices.listed, dtype=torch.float64)
    elif costs is None and router.prices.counted:
        problem = "missing; the prices of this router differ between queries: give those of these ones"
        raise ParameterError("prices", problem)
    if tuple(wrong.shape) != (n, len(router.experts)):
        expected = f"must be [{n}, {len(router.experts)}], a row per query and a column per expert"
        raise ParameterError("errors" if costs is None else "costs", f"{expected}, not {list(wrong.shape)}")
    return wrong if given is None else wrong + given, given
