"""A router's choice for each query: the expert, and what the router expects of all."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.router.trained import TrainedRouter, active_guard, decide_outputs

UNREAD = "unreadable: without a text, the query goes to the best single expert"


@dataclass(frozen=True)
class Choice:
    """The expert for one query; p̂ and expected cost of each expert by name, None if the method does not estimate them. The cost is
    error plus price, which counts times the factor of a budget. id: of the row, if its file has an id column. guard: how the guard
    changed this choice, None if it did not; UNREAD if the query has no text. ranking: all experts, the chosen one first, the others
    as the router prefers them. expected_prices: by name, in the unit of the prices in training; None if the router learned them
    together with the errors. expected_errors: by name, None if they are not known apart from the prices. price_weight: expected
    cost = error + price_weight · price; None if no prices are known."""

    expert: str
    posterior: dict[str, float] | None
    expected_costs: dict[str, float] | None
    id: str | None = None
    guard: str | None = None
    ranking: tuple[str, ...] = ()
    expected_prices: dict[str, float] | None = None
    expected_errors: dict[str, float] | None = None
    price_weight: float | None = None

    @property
    def unread(self) -> bool:
        return self.guard == UNREAD


def make_choices(router: TrainedRouter, outputs: Tensor, empty: Tensor) -> list[Choice]:
    """One choice for each row of the network's outputs. empty: bool [n], true for queries that the router could not read."""
    outputs, method = outputs.to(router.device), router.method
    own, decisions = decide_outputs(router, outputs)
    with torch.inference_mode():
        posterior = method.posterior(outputs) if method.has_posterior else None
        costs, prices = method.expected_costs(outputs), amounts(router, outputs)
        errors = None if prices is None else method.expected_errors(outputs)
        if prices is not None and errors is None and costs is not None:  # it learned whole costs as if they were errors
            errors = costs - router.prices.in_errors(prices)
        orders = ranked(router, outputs, decisions)
    estimates = [_by_name(router, values, len(outputs)) for values in (posterior, costs, prices, errors)]
    weight, found = None if prices is None else router.prices.weight, list[Choice]()
    action = "offsets" if router.description.guard.constant is None else "fallback"
    for order, before, gone, *named in zip(orders, own.tolist(), empty.tolist(), *estimates, strict=True):
        ranking, (shares, expected, paid, wrong) = tuple(router.experts[k] for k in order), named
        changed = None if before == order[0] else f"{action}: without the guard, {router.experts[before]}"
        own_choice = Choice(ranking[0], shares, expected, None, changed, ranking, paid, wrong, weight)
        found.append(unread_choice(router) if gone else own_choice)
    return found


def unread_choice(router: TrainedRouter) -> Choice:
    """The guard's expert, then the others in their order; nothing is expected but prices that are the same for all queries."""
    best = router.experts[router.description.guard.best]
    listed = {name: router.prices.amount_of(place) for place, name in enumerate(router.experts)}
    known = {name: price for name, price in listed.items() if price is not None}
    ranking = dict.fromkeys([best, *router.experts])
    return Choice(best, None, None, guard=UNREAD, ranking=tuple(ranking), expected_prices=known or None)


def amounts(router: TrainedRouter, outputs: Tensor) -> Tensor | None:
    """[n, p], in the unit of the prices in training; None if prices do not count, or are not known apart."""
    if router.prices.left_out:
        return None
    listed = router.prices.listed
    found = router.method.expected_prices(outputs) if listed is None else torch.tensor(listed).expand(len(outputs), -1)
    return None if found is None else router.prices.amount(found)


def ranked(router: TrainedRouter, outputs: Tensor, decisions: Tensor) -> list[list[int]]:
    """The experts' numbers for each row: the chosen one, then the others by utility, with the guard's offsets."""
    guard, preferred = active_guard(router), router.method.utilities(outputs).double()
    if guard is not None and guard.offsets is not None:
        preferred = preferred + torch.tensor(guard.offsets, dtype=torch.float64, device=preferred.device)
    first = preferred.scatter(1, decisions[:, None], torch.inf)
    found: list[list[int]] = first.argsort(dim=1, descending=True, stable=True).tolist()
    return found


def _by_name(router: TrainedRouter, values: Tensor | None, n: int) -> Sequence[dict[str, float] | None]:
    if values is None:
        return [None] * n
    return [dict(zip(router.experts, row, strict=True)) for row in values.tolist()]
