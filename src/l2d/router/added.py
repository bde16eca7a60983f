"""Adds an expert to a simple router, from a few outcomes or none; what the router knows of the others stays."""

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from l2d.core.guard import Guard
from l2d.core.newcomer import ALIKE, SPREAD, Borrowed, Prior, Surprise, borrow_beside, level_by_price
from l2d.data.arrays import same_name
from l2d.data.given import as_array, read_amounts
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.estimator import Estimator, simplest
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.networks.estimators.planner import unplanned
from l2d.router.trained import TrainedRouter, inputs_of
from l2d.utils.errors import ParameterError, unknown

R = TypeVar("R", bound=TrainedRouter)
ENOUGH = 50  # outcomes, from which on an estimate without the other experts is tried too
FOLDS = 5
FAR = 1e6  # errors: more than any expert can gain
CAUTION = 1.5  # standard errors of its mean chance that a new expert's expected error is raised by


@dataclass(frozen=True)
class NewExpert:
    """errors: on the queries. like: a known expert. others: the known experts' errors on the same queries, [n, p]."""

    name: str
    queries: Sequence[Any] | np.ndarray = ()
    errors: Any = ()
    price: float | None = None
    like: str | None = None
    others: Any = None


def with_expert(router: R, new: NewExpert) -> R:
    """See Router.with_expert."""
    method, network, known = router.method, router.network, router.description
    if not isinstance(method, SimpleRouter) or not isinstance(network, EstimatorNetwork) or unplanned(network):
        others = "auto and the simple routers (knn, linear, …) take another expert"
        raise ParameterError("name", f"this router would have to be trained again; {others}", new.name)
    if router.operating_point is not None:
        problem = "no row says whether the budget would be kept with it; add it to the router without the budget"
        raise ParameterError("name", problem, new.name)
    if not new.name.strip():
        raise ParameterError("name", "is empty", new.name)
    if same_name(new.name) in map(same_name, known.experts):  # capitals and spaces do not count
        raise ParameterError("name", f"is an expert already; there are {', '.join(known.experts)}", new.name)
    by_row = known.prices is None and network.price_model is not None
    if new.price is None and (by_row or any(known.prices or ())):
        raise ParameterError("price", "missing; the other experts have prices")
    paid = 0.0 if new.price is None else router.prices.in_costs(float(read_amounts("price", [[new.price]])))
    network, method = copy.deepcopy(network).cpu(), copy.deepcopy(method).cpu()
    with torch.no_grad():
        caution = add_estimate(router, network, method, new, paid)
        method.add_expert(0.0 if by_row else paid)
        if network.price_model is not None:
            network.price_model.add_expert(paid)
    before = known.guard
    kept = before.offsets or (0.0,) * len(known.experts)
    if before.constant is not None:  # nobody but the new expert may take queries from the one that got them all
        kept = tuple(0.0 if k == before.constant else -FAR for k in range(len(known.experts)))
    offsets = (*kept, -caution)
    described = replace(
        known,
        experts=(*known.experts, new.name),
        prices=None if known.prices is None else (*known.prices, paid),
        guard=Guard(offsets if any(offsets) else None, None, before.best, 0.0, None),
    )
    network, method = network.to(router.device).eval(), method.to(router.device).eval()
    return replace(router, network=network, method=method, description=described, held_out=None, validation=None)


def newcomers_of(router: TrainedRouter) -> tuple[str, ...]:
    """The added experts whose chances are still borrowed from the others."""
    network = router.network
    number = len(network.newcomers) if isinstance(network, EstimatorNetwork) else 0
    return router.experts[len(router.experts) - number :]


def add_estimate(
    router: TrainedRouter, network: EstimatorNetwork, method: SimpleRouter, new: NewExpert, paid: float
) -> float:
    """One more output of the network. Returns how much its expected error is raised, for want of outcomes."""
    right = read_right(method, new.errors, len(new.queries))
    inputs = inputs_of(router, new.queries) if len(right) else torch.zeros(0, *router.description.shape)
    inputs = inputs.flatten(1)
    known = network.estimator(inputs).double()
    p, held_out = known.shape[1], router.held_out
    names = router.experts[:p]
    unseen = method.right(held_out.expected.double()) if held_out is not None else known
    weights = torch.full((p,), 1 / p).double()
    if new.like is not None:
        if new.like not in names:
            raise ParameterError("like", unknown("expert", new.like, names), new.like)
        weights = torch.eye(p).double()[names.index(new.like)]
    elif not len(right):
        raise ParameterError("like", f"missing; without outcomes, say which expert it is like: {', '.join(names)}")
    levels = torch.logit(unseen.clamp(0.02, 0.98)).mean(dim=0) if len(unseen) else torch.zeros(p).double()
    prices, level = router.description.prices, 0.0
    if new.like is None and prices is not None:
        level = level_by_price(levels, torch.tensor(prices[:p]).double(), paid)
    surprise, beside = Surprise(), known
    if new.others is not None:
        given = as_array(new.others, "others")
        if given.shape[1:] == (len(router.experts),):
            given = given[:, :p]  # experts that were added before are not asked
        beside = method.right(read_amounts("others", given, (len(right), p)))
        if held_out is not None:
            surprise = Surprise.of(method.right(held_out.errors.double()) - unseen)
    prior = Prior(weights, levels @ weights, SPREAD if new.like is None else ALIKE, level)

    def borrowed(rows: Tensor) -> Borrowed:
        return borrow_beside(known[rows], right[rows], beside[rows], surprise, prior)

    if not len(network.newcomers) and better_alone(network.estimator, inputs, right, borrowed):
        network.estimator.add_expert(inputs, right)
        return 0.0
    found = borrowed(torch.ones(len(right), dtype=torch.bool))
    network.newcomers = torch.cat([network.newcomers.reshape(-1, p + 7), found.packed()[None]])
    rows = unseen if len(unseen) else torch.full((1, p), 0.5).double()
    return CAUTION * float(found.chances(rows)[1].mean() * (method.most - method.least))


def better_alone(estimator: Estimator, inputs: Tensor, right: Tensor, borrowed: Any) -> bool:
    """True if its own estimator, fitted to these outcomes alone, predicts left-out ones better, by a standard error."""
    if len(right) < ENOUGH:
        return False
    alone, lent, fold = torch.zeros_like(right), torch.zeros_like(right), torch.arange(len(right)) % FOLDS
    for number in range(FOLDS):
        mine, other = fold == number, copy.deepcopy(estimator)
        try:
            other.add_expert(inputs[~mine], right[~mine])
        except ParameterError:  # this kind cannot
            return False
        alone[mine] = other(inputs[mine])[:, -1].to(right)
        lent[mine] = borrowed(~mine).chances(estimator(inputs[mine]))[0]
    return simplest({"lent": (lent - right).square(), "alone": (alone - right).square()}) == "alone"


def read_right(method: SimpleRouter, errors: Any, n: int) -> Tensor:
    """The new expert's scores, [n], 0 to 1."""
    given, most = as_array(errors, "errors"), float(method.most)
    with suppress(TypeError, ValueError):  # whole numbers and truths as objects
        given = given.astype(float)
    if given.squeeze().ndim > 1:
        raise ParameterError("errors", f"must be those of one expert, not {list(given.shape)}")
    wrong = read_amounts("errors", given.reshape(-1, 1))[:, 0]
    if len(wrong) != n:
        raise ParameterError("errors", f"must be one for each query, not {len(wrong)} for {n}")
    if n and float(wrong.max()) > most:
        raise ParameterError("errors", f"must be at most {most:g}, the largest in training", float(wrong.max()))
    return method.right(wrong[:, None])[:, 0]
