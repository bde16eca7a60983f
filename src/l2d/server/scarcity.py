"""Experts that may be asked only so often: a price keeps them for the queries that need them most."""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from l2d.core.assignment import assign
from l2d.logs.capacity import Limits
from l2d.router.capacity import guarded_costs
from l2d.router.choices import Choice
from l2d.router.router import Router

REMEMBERED = 1000  # decisions that prices are learned from
ENOUGH = 50


class Scarcity:
    """Learns a shadow price of each limited expert from the last decisions of this process, and how many the log had within the
    unit of its limit: at these prices the decisions would have kept the limits, at the least expected cost."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.prices: Mapping[str, float] = {}
        self._costs: deque[np.ndarray] = deque(maxlen=REMEMBERED)

    def preferred(self, router: Router, choice: Choice, free: Sequence[str]) -> str:
        """Whom to ask among those who are free: the least expected cost, with the shadow price."""
        if self.limits and choice.expected_costs is not None:
            [costs] = guarded_costs(router, [choice])
            self._costs.append(costs)
            if any(self.prices.values()):
                asked = dict(zip(router.experts, costs, strict=True))
                return min(free, key=lambda name: asked[name] + self.prices.get(name, 0.0))
        return next(name for name in choice.ranking if name in free)

    def learn(self, experts: Sequence[str], decided: Mapping[str, int]) -> None:
        """decided: how many decisions there were within the unit of each limit."""
        costs = np.array([one for one in self._costs.copy() if len(one) == len(experts)])  # a swap may be under way
        if len(costs) < ENOUGH:
            return
        shares = np.array(
            [self.limits[name].most / max(1, decided[name]) if name in decided else 1.0 for name in experts]
        )
        limits = np.minimum(1.0, shares) * len(costs)
        if np.floor(limits).sum() < len(costs):  # more than all can do: scarce for everybody alike
            limits = np.ceil(limits * len(costs) / limits.sum())
        prices = np.where(shares < 1, assign(costs, np.floor(limits).astype(int))[1], 0.0)
        self.prices = dict(zip(experts, prices.tolist(), strict=True))
