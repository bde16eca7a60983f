"""Adds an expert to a simple router, from some rows on which it was asked; what the router knows of the others stays."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from l2d.core.guard import Guard
from l2d.data.arrays import same_name
from l2d.data.given import as_array, read_amounts
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.router.trained import TrainedRouter, has_budget, inputs_of
from l2d.utils.errors import ParameterError

R = TypeVar("R", bound=TrainedRouter)
LEAST = 10  # rows, as for every expert of a log


def with_expert(router: R, name: str, queries: Sequence[Any] | np.ndarray, errors: Any, price: float | None) -> R:
    """See Router.with_expert."""
    method, network, known = router.method, router.network, router.description
    if not isinstance(method, SimpleRouter) or not isinstance(network, EstimatorNetwork):
        problem = "this router would have to be trained again; knn, clusters, linear, category_table and mix take another expert"
        raise ParameterError("name", problem, name)
    if has_budget(router):
        problem = "no row says whether the budget would be kept with it; add it to the router without the budget"
        raise ParameterError("name", problem, name)
    if same_name(name) in map(same_name, known.experts):  # capitals and spaces do not count
        raise ParameterError("name", f"is an expert already; there are {', '.join(known.experts)}", name)
    by_row = known.prices is None and network.price_model is not None
    if price is None and (by_row or any(known.prices or ())):
        raise ParameterError("price", "missing; the other experts have prices")
    paid = 0.0 if price is None else router.prices.in_costs(float(read_amounts("price", [[price]])))
    wrong, n, most = read_amounts("errors", as_array(errors).reshape(-1, 1))[:, 0], len(queries), float(method.most)
    if len(wrong) != n or n < LEAST:
        raise ParameterError("errors", f"must be one for each query, at least {LEAST}, not {len(wrong)} for {n}")
    if float(wrong.max()) > most:
        raise ParameterError("errors", f"must be at most {most:g}, the largest in training", float(wrong.max()))
    inputs = inputs_of(router, queries)
    network, method = copy.deepcopy(network).cpu(), copy.deepcopy(method).cpu()
    with torch.no_grad():
        try:
            network.estimator.add_expert(inputs.flatten(1), method.right(wrong[:, None])[:, 0])
        except ParameterError as error:
            raise ParameterError("name", error.problem, name) from error
        method.add_expert(0.0 if by_row else paid)
        if network.price_model is not None:
            network.price_model.add_expert(paid)
    prices = None if known.prices is None else (*known.prices, paid)
    guard = Guard(None, None, known.guard.best, 0.0, None)
    return replace(
        router,
        network=network.to(router.device).eval(),
        method=method.to(router.device).eval(),
        description=replace(known, experts=(*known.experts, name), prices=prices, guard=guard),
        held_out=None,
        validation=None,
    )
