"""A router at other prices or within a budget, and the costs that it is scored by."""

import copy
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from l2d.core.budget import keep_within
from l2d.core.guard import HeldOut
from l2d.data.given import read_outcomes
from l2d.utils.errors import ParameterError

if TYPE_CHECKING:
    from l2d.router.router import Router

Prices = Sequence[float] | Mapping[str, float]
NEEDS_GUARD = "a budget needs the guard, its fallback; leave out raw or the budget"


def repriced(router: "Router", prices: Prices | None, budget: float | None, confidence: float | None) -> "Router":
    """See Router.at."""
    if budget is None and router.has_budget and (prices is not None or confidence is not None):
        budget, confidence = own_budget(router, prices, confidence)
    if budget is None and confidence is not None:
        raise ParameterError("confidence", "needs a budget", confidence)
    if prices is None and budget is None:
        raise ParameterError("prices", "missing; give prices, a budget, or both")
    if budget is not None and router.raw:
        raise ParameterError("budget", NEEDS_GUARD, budget)
    asked = "budget" if prices is None else "prices"
    known, new = router.description.prices, None
    if prices is not None or known is not None:  # float32, like the method's
        given = None if prices is None else prices_in_order(prices, router.experts)
        new = torch.tensor(known if given is None else [price * router.later_scale for price in given])
    other = copy.copy(router)
    other.method = copy.deepcopy(router.method)
    other.validation = other.operating_point = None  # they were measured at other prices
    try:
        if new is None:
            other.method.rescale(1.0)
        else:
            other.method.reprice(new)
    except ParameterError as error:  # the method has learned its prices
        raise ParameterError(asked, error.problem) from error
    held_out = rows_for(router, asked)
    if prices is None and not router.counts_prices:
        raise ParameterError("budget", "this router counts no prices; give prices too", budget)
    if new is not None:
        same = router.description.factor == 1 and known is not None and torch.equal(torch.tensor(known), new)
        other.guard = router.description.guard if same else held_out.guard_at(new)
        other.description = replace(router.description, prices=tuple(new.tolist()), guard=other.guard, factor=1.0)
    if budget is not None:
        keep_to(other, held_out, budget * router.later_scale, confidence)
    return other


def own_budget(router: "Router", prices: Prices | None, confidence: float | None) -> tuple[float, float | None]:
    """The budget that the router keeps, and its confidence, unless another one is given. prices: those it will be kept at."""
    point = router.operating_point
    if point is None:
        problem = "missing; an earlier l2d saved this router within a budget and did not write down which; give it too"
        raise ParameterError("budget", problem)
    if prices is not None and point.with_latency:
        raise ParameterError("prices", "the budget contains latency, these prices do not; give a budget too")
    return point.budget, point.confidence if confidence is None else confidence


def rows_for(router: "Router", asked: str) -> HeldOut:
    """The rows to fit a guard or a budget to. asked: the parameter that they are needed for."""
    if router.held_out is None:
        problem = "no rows to judge the experts on, since one was added (with_expert) or an earlier l2d trained the run"
        raise ParameterError(asked, f"{problem}; train again (force=true), with rows of all experts")
    if not router.knows_prices:
        raise ParameterError(asked, "this router was fitted with whole costs; in l2d.fit, give errors= and prices=")
    return router.held_out


def keep_to(router: "Router", held_out: HeldOut, budget: float, confidence: float | None) -> None:
    """Changes the router, which is a copy already. budget: in units of one error, like its prices."""
    prices = None if router.description.prices is None else torch.tensor(router.description.prices)
    currency = "" if router.unit.error_price is None else "$"
    point = keep_within(held_out, prices, budget, confidence, router.experts, 1 / router.later_scale, currency)
    point = replace(point, with_latency=bool(router.unit.latency_price))
    if prices is None:
        router.method.rescale(point.factor)
    else:
        router.method.reprice(prices * point.factor)
    router.guard, router.operating_point = point.guard, point
    router.description = replace(router.description, guard=point.guard, factor=point.factor)


def costs_for(router: "Router", n: int, costs: Any, errors: Any, prices: Any) -> tuple[Tensor, Tensor | None]:
    """The costs of n queries [n, p], and the prices in them if they are known apart, in units of one error."""
    if isinstance(prices, Mapping):
        prices = prices_in_order(prices, router.experts)
    wrong, given = read_outcomes(costs, errors, prices, router.experts)
    if given is not None:
        given = given * router.cost_scale
    elif costs is None and router.description.prices is not None:
        given = torch.tensor(router.description.prices, dtype=torch.float64)
    elif costs is None and router.counts_prices:
        raise ParameterError(
            "prices", "missing; the prices of this router differ between queries: give those of these ones"
        )
    if tuple(wrong.shape) != (n, len(router.experts)):
        expected = f"must be [{n}, {len(router.experts)}], a row per query and a column per expert"
        raise ParameterError("errors" if costs is None else "costs", f"{expected}, not {list(wrong.shape)}")
    return wrong if given is None else wrong + given, given


def prices_in_order(prices: Prices, experts: Sequence[str]) -> list[float]:
    """One price per expert, in the experts' order."""
    there = f"there are {', '.join(experts)}"
    if isinstance(prices, Mapping):
        if unknown := [name for name in prices if name not in experts]:
            raise ParameterError("prices", f"no expert {', '.join(map(str, unknown))}; {there}")
        if missing := [name for name in experts if name not in prices]:
            raise ParameterError("prices", f"no price for {', '.join(missing)}")
        prices = [prices[name] for name in experts]
    try:
        if isinstance(prices, str | bytes | Set):
            raise TypeError
        given = [float(price) for price in prices]
    except (TypeError, ValueError, OverflowError):
        raise ParameterError("prices", f"must be numbers, one for each expert; {there}", prices) from None
    if len(given) != len(experts):
        raise ParameterError(
            "prices", f"expected {len(experts)}, one for each expert; got {len(given)}; {there}", given
        )
    if not all(0 <= price < float("inf") for price in given):
        raise ParameterError("prices", "must be finite and not negative", given)
    return given
