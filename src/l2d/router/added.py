"""Adds an expert to a simple router, from some rows on which it was asked; what the router knows of the others stays."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from l2d.core.guard import Guard
from l2d.data.arrays import same_name
from l2d.data.given import as_array, read_amounts
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.utils.errors import ParameterError

if TYPE_CHECKING:
    from l2d.router.router import Router

LEAST = 10  # rows, as for every expert of a log


def with_expert(
    router: "Router", name: str, queries: Sequence[Any] | np.ndarray, errors: Any, price: float | None
) -> "Router":
    """See Router.with_expert."""
    method, known = router.method, router.description
    if not isinstance(method, SimpleRouter) or not isinstance(router.network, EstimatorNetwork):
        problem = "this router would have to be trained again; knn, clusters, linear, category_table and mix take another expert"
        raise ParameterError("name", problem, name)
    if router.has_budget:
        problem = "no row says whether the budget would be kept with it; add it to the router without the budget"
        raise ParameterError("name", problem, name)
    if same_name(name) in map(same_name, known.experts):  # capitals and spaces do not count
        raise ParameterError("name", f"is an expert already; there are {', '.join(known.experts)}", name)
    by_row = known.prices is None and router.network.price_model is not None
    if price is None and (by_row or any(known.prices or ())):
        raise ParameterError("price", "missing; the other experts have prices")
    paid = 0.0 if price is None else float(read_amounts("price", [[price]])) * router.cost_scale
    wrong = read_amounts("errors", as_array(errors).reshape(-1, 1))[:, 0]
    if len(wrong) != len(queries) or len(wrong) < LEAST:
        raise ParameterError(
            "errors", f"must be one for each query, at least {LEAST}, not {len(wrong)} for {len(queries)}"
        )
    if float(wrong.max()) > float(method.most):
        raise ParameterError(
            "errors", f"must be at most {float(method.most):g}, the largest in training", float(wrong.max())
        )
    inputs = router.inputs_of(queries)
    other = copy.copy(router)
    other.network, other.method = copy.deepcopy(router.network).cpu(), copy.deepcopy(method).cpu()
    assert isinstance(other.network, EstimatorNetwork)
    with torch.no_grad():
        try:
            other.network.estimator.add_expert(inputs.flatten(1), other.method.right(wrong[:, None])[:, 0])
        except ParameterError as error:
            raise ParameterError("name", error.problem, name) from error
        other.method.add_expert(0.0 if by_row else paid)
        if other.network.price_model is not None:
            other.network.price_model.add_expert(paid)
    other.network.to(router.device).eval()
    other.method.to(router.device).eval()
    other.held_out = other.validation = None
    other.guard = Guard(None, None, known.guard.best, 0.0, None)
    prices = None if known.prices is None else (*known.prices, paid)
    other.description = replace(known, experts=(*known.experts, name), prices=prices, guard=other.guard)
    return other
