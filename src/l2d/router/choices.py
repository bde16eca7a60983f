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
    both = zip(own_choices(router, outputs), empty.tolist(), strict=True)
    return [unread_choice(router) if gone else choice for choice, gone in both]


def unread_choice(router: TrainedRouter) -> Choice:
    """The guard's expert, then the others in their order; nothing is expected but prices that are the same for all queries."""
    best = router.experts[router.description.guard.best]
    listed = {name: router.prices.amount_of(place) for place, name in enumerate(router.experts)}
    known = {name: price for name, price in listed.items() if price is not None}
    ranking = dict.fromkeys([best, *router.experts])
    return Choice(best, None, None, guard=UNREAD, ranking=tuple(ranking), expected_prices=known or None)


def own_choices(router: TrainedRouter, outputs: Tensor) -> list[Choice]:
    outputs = outputs.to(router.device)
    own, decisions = decide_outputs(router, outputs)
    with torch.inference_mode():
        posterior = router.method.posterior(outputs) if router.method.has_posterior else None
        expected = router.method.expected_costs(outputs)
        prices = _expected_prices(router, outputs)
        errors = _expected_errors(router, outputs, expected, prices)
    estimates = [_by_name(router, values, len(outputs)) for values in (posterior, expected, prices, errors)]
    weight, found = None if prices is None else router.prices.weight, list[Choice]()
    action = "offsets" if router.description.guard.constant is None else "fallback"
    for order, before, *named in zip(_orders(router, outputs, decisions), own.tolist(), *estimates, strict=True):
        ranking, (shares, costs, paid, wrong) = tuple(router.experts[k] for k in order), named
        changed = None if before == order[0] else f"{action}: without the guard, {router.experts[before]}"
        found.append(Choice(ranking[0], shares, costs, None, changed, ranking, paid, wrong, weight))
    return found


def _expected_prices(router: TrainedRouter, outputs: Tensor) -> Tensor | None:
    """[n, p], in the unit of the prices in training."""
    if router.prices.left_out:
        return None
    listed = router.prices.listed
    found = router.method.expected_prices(outputs) if listed is None else torch.tensor(listed).expand(len(outputs), -1)
    return None if found is None else router.prices.amount(found)


def _expected_errors(
    router: TrainedRouter, outputs: Tensor, costs: Tensor | None, prices: Tensor | None
) -> Tensor | None:
    """[n, p]. Without prices of its own, a router may have learned whole costs, which its method takes for errors."""
    if prices is None:
        return None
    found = router.method.expected_errors(outputs)
    return costs - router.prices.in_errors(prices) if found is None and costs is not None else found


def _orders(router: TrainedRouter, outputs: Tensor, decisions: Tensor) -> list[list[int]]:
    """The experts' numbers for each row: the chosen one, then the others by utility, with the guard's offsets."""
    guard = active_guard(router)
    with torch.inference_mode():
        preferred = router.method.utilities(outputs).double()
        if guard is not None and guard.offsets is not None:
            preferred = preferred + torch.tensor(guard.offsets, dtype=torch.float64, device=preferred.device)
        first = preferred.scatter(1, decisions[:, None], torch.inf)
        found: list[list[int]] = first.argsort(dim=1, descending=True, stable=True).tolist()
    return found


def _by_name(router: TrainedRouter, values: Tensor | None, n: int) -> Sequence[dict[str, float] | None]:
    if values is None:
        return [None] * n
    return [dict(zip(router.experts, row, strict=True)) for row in values.tolist()]
