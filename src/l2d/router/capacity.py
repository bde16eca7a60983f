"""A batch of choices in which no expert gets more than it can take."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from l2d.core.assignment import assign
from l2d.router.choices import Choice
from l2d.router.trained import TrainedRouter, active_guard, plan_of
from l2d.utils.errors import ParameterError, unknown

AMOUNT = re.compile(r"(?P<rows>\d+)(\.0*)?|(?P<share>\d+\.?\d*|\.\d+)\s*%", re.ASCII)
Capacity: TypeAlias = Mapping[str, float | str]


def within_capacity(router: TrainedRouter, choices: Sequence[Choice], capacity: Capacity) -> list[Choice]:
    """The choices with the least expected cost in all, with the guard's offsets. Queries without a text go where there is room,
    first to the best single expert."""
    limits = capacities(capacity, router.experts, len(choices))
    if router.operating_point is not None:
        raise ParameterError("capacity", "cannot be combined with a budget or max_error: moved rows would break it")
    if plan_of(router)[0] is not None or not any(choice.expected_costs for choice in choices):
        problem = "this router does not expect a cost of each expert; use method=auto, or no plan"
        raise ParameterError("capacity", problem)
    chosen, _ = assign(guarded_costs(router, choices), limits)
    named = zip(choices, (router.experts[k] for k in chosen.tolist()), strict=True)
    moved = (replace(one, expert=name, guard=one.guard if one.unread else None) for one, name in named)
    return [replace(one, ranking=tuple(dict.fromkeys([one.expert, *one.ranking]))) for one in moved]


def guarded_costs(router: TrainedRouter, choices: Sequence[Choice]) -> np.ndarray:
    """The expected costs with the guard's offsets, [n, p]. A query without a text goes to the guard's expert first."""
    guard = active_guard(router)
    offsets = np.zeros(len(router.experts)) if guard is None or guard.offsets is None else np.array(guard.offsets)
    if offsets.any() and not router.method.takes_prices_later:
        raise ParameterError("capacity", "the guard's offsets of this method are not in units of costs; use raw")
    best = router.description.guard.best
    unread = {name: float(offsets[k]) + 1e-9 * (k != best) for k, name in enumerate(router.experts)}
    costs = [[(choice.expected_costs or unread)[name] for name in router.experts] for choice in choices]
    return np.asarray(np.array(costs) - offsets)


def capacities(given: Capacity, experts: Sequence[str], n: int) -> np.ndarray:
    """The most rows of each expert: a number, or a share such as 10%, rounded down; n for an expert that is not named."""
    if not isinstance(given, Mapping):
        raise ParameterError("capacity", 'must be limits by name, such as {"alice": 40, "large": "10%"}', given)
    limits = np.full(len(experts), n)
    for name, amount in given.items():
        if name not in experts:
            raise ParameterError(f"capacity.{name}", unknown("expert", str(name), experts), amount)
        match = AMOUNT.fullmatch(str(amount).strip())
        if match is None or float(match["share"] or 0) > 100:
            problem = "must be a whole number, or a share of the rows such as 10%, at most 100%"
            raise ParameterError(f"capacity.{name}", problem, amount)
        rows = int(n * float(match["share"]) / 100 + 1e-9) if match["share"] else int(match["rows"])
        limits[experts.index(name)] = min(n, rows)
    if int(limits.sum()) < n:
        told = ", ".join(f"{name} {limit:,}" for name, limit in zip(experts, limits.tolist(), strict=True))
        raise ParameterError("capacity", f"{told} are {limits.sum():,} rows in all, and there are {n:,}; raise a limit")
    return limits
