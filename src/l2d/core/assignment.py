"""Assigns rows to experts at the least expected cost so that nobody gets more than a capacity. First each expert gets a shadow
price at which about as many rows want it as it can take; then chains of moves mend the rest, exactly (min-cost flow)."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

SOFTNESS = ((0.1, 100), (0.01, 100), (0.002, 60), (0.0004, 60))  # in standard deviations of the costs, and rounds
SOME = 20_000  # rows
TIE = 1e-12  # costs that differ by less are equal


@dataclass
class Flow:
    costs: np.ndarray  # [n, p]
    chosen: np.ndarray  # int [n]
    spare: np.ndarray  # int [p]: places that stay empty
    room: np.ndarray  # int [p]: capacity less rows and empty places, negative where there are too many, 0 in all
    step: np.ndarray  # [p, p]: the least that moving a row of expert j to k costs, infinite without a row

    @classmethod
    def at(cls, prices: np.ndarray, costs: np.ndarray, limits: np.ndarray) -> "Flow":
        """Each row at its cheapest expert, and all empty places where the price is least: no exchange costs less."""
        p, chosen, spare = len(prices), (costs + prices).argmin(axis=1), np.zeros(len(prices), dtype=np.int64)
        spare[int(prices.argmin())] = int(limits.sum()) - len(costs)
        room = limits - np.bincount(chosen, minlength=p) - spare
        flow = cls(costs, chosen, spare, room, np.full((p, p), np.inf))
        flow.measure(range(p))
        return flow

    def measure(self, experts: Iterable[int]) -> None:
        for j in experts:
            mine = self.costs[self.chosen == j]
            self.step[j] = (mine - mine[:, j : j + 1]).min(axis=0) if len(mine) else np.inf
            self.step[j, j] = np.inf

    def mend(self) -> None:
        """Move as many rows or empty places as cost the same along the cheapest chain from too many to where there is room."""
        empty = (self.spare > 0)[:, None] & (self.step >= -TIE)  # it may go there at no cost
        away, after = distances(self.room > 0, np.where(empty, 0.0, self.step))
        path = [int(np.where(self.room < 0, away, np.inf).argmin())]
        while after[path[-1]] >= 0:
            path.append(int(after[path[-1]]))
        edges, most = list(pairwise(path)), min(-int(self.room[path[0]]), int(self.room[path[-1]]))
        moved = [None if empty[edge] else self.tied(*edge) for edge in edges]
        for rows, (j, _) in zip(moved, edges, strict=True):
            most = min(most, int(self.spare[j]) if rows is None else len(rows))
        for rows, (j, k) in zip(moved, edges, strict=True):
            if rows is None:
                self.spare[j] -= most
                self.spare[k] += most
            else:
                self.chosen[rows[:most]] = k
        self.room[path[0]] += most
        self.room[path[-1]] -= most
        self.measure({j for rows, edge in zip(moved, edges, strict=True) if rows is not None for j in edge})

    def tied(self, j: int, k: int) -> np.ndarray:
        """The rows of expert j that cost the least to move to k."""
        mine = np.flatnonzero(self.chosen == j)
        return mine[self.costs[mine, k] - self.costs[mine, j] <= self.step[j, k] + TIE]


def distances(ends: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least cost of a chain from each expert to one of the ends, bool [p], and the next expert on it, −1 at the end."""
    p = len(ends)
    away, after = np.where(ends, 0.0, np.inf), np.full(p, -1)
    for _ in range(p):
        through = step + away
        best = through.argmin(axis=1)
        least = through[np.arange(p), best]
        better = least < away - TIE
        if not better.any():
            break
        away, after = np.where(better, least, away), np.where(better, best, after)
    return away, after


def assign(costs: np.ndarray, capacities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The expert of each row, int [n], and the shadow prices [p]: what one place less would cost. capacities int [p], n in all."""
    limits = np.minimum(capacities, len(costs)).astype(np.int64)
    flow = Flow.at(shadow_prices(costs, limits), costs, limits)
    while (flow.room < 0).any():
        flow.mend()
    ends = flow.spare > 0
    away, _ = distances(ends if ends.any() else np.ones_like(ends), flow.step)
    prices = np.where(limits > 0, away - min(0.0, float(away[limits > 0].min())), np.inf)
    never = limits == 0  # what the best of them would save
    least = (costs + prices).min(axis=1, keepdims=True)
    prices[never] = (least - costs[:, never]).max(axis=0, initial=0.0)
    return flow.chosen, prices


def shadow_prices(costs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Prices [p] at the maximum of the dual, in which each row's least cost is a soft minimum, ever harder; first on some rows."""
    from scipy.optimize import minimize

    n, p = costs.shape
    order, prices, width = np.random.default_rng(0).permutation(n), np.zeros(p), float(costs.std()) or 1.0
    for part, rounds in SOFTNESS:
        rows = costs[order[:SOME]] if part > SOFTNESS[2][0] else costs
        shares, soft = limits / n, part * width

        def loss(at: np.ndarray, rows: np.ndarray = rows, soft: float = soft, shares: np.ndarray = shares) -> Any:
            scaled = (rows + at) / -soft
            most = scaled.max(axis=1, keepdims=True)
            np.exp(np.subtract(scaled, most, out=scaled), out=scaled)
            total = scaled.sum(axis=1)
            wanted = (1 / total) @ scaled / len(rows)
            return soft * float((most[:, 0] + np.log(total)).mean()) + float(at @ shares), shares - wanted

        exact = {"maxiter": rounds, "ftol": 1e-13, "gtol": 1e-6}
        prices = minimize(loss, prices, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * p, options=exact).x
    return np.asarray(prices)
