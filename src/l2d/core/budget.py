"""Keeps the mean spend within a budget: prices are multiplied by the least factor, at least 1, at which the router spends no more.

A bootstrap repeats the whole choice: it says how likely the spend exceeds the budget.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from l2d.core.guard import Guard, HeldOut, fit_guard, paired
from l2d.utils.errors import ParameterError
from l2d.utils.seeding import stream
from l2d.utils.text import Z

FACTORS = 300  # that are tried, from 1 to where every row goes to the cheapest expert
RESAMPLES = 1_000
INTERVAL = (0.025, 0.975)
ROUNDING = 1e-6  # of prices in 32 bits
BEYOND = 1e-4  # of a factor at which rows change their expert, so that routers, which compute in 32 bits, are on the same side


@dataclass(frozen=True)
class OperatingPoint:
    """What a router within a budget is expected to do, per query, on rows that it did not see.

    factor: on the prices, to decide by. spend, spend_interval: the mean price of the chosen experts, and its 95 % interval.
    overspend: how likely the mean spend exceeds the budget. Money is in the unit of the budget. error, error_se: the mean error and
    its standard error. guard: what is deployed; if it falls back, then to an expert within the budget. rows: how many say so.
    currency: the sign of the money, if it has one. with_latency: whether prices, and so the budget, contain latency.
    unseen_spend: on rows that the router did not see, if it expects to spend more on its own; `spend` is the larger.
    """

    budget: float
    factor: float
    spend: float
    spend_interval: tuple[float, float]
    overspend: float
    error: float
    error_se: float
    guard: Guard
    rows: int
    currency: str = ""
    with_latency: bool = False
    unseen_spend: float | None = None

    def __str__(self) -> str:
        spend, low, high = (f"{self.currency}{amount:.4g}" for amount in (self.spend, *self.spend_interval))
        what = " for money and latency" if self.with_latency else ""
        other = ""
        if self.unseen_spend is not None:
            unseen = f"{self.currency}{self.unseen_spend:.4g} on rows that it did not see"
            other = f" by the router's estimates for its own rows, {unseen}"
        return (
            f"budget {self.currency}{self.budget:g} per query{what}: prices are multiplied by {self.factor:.4g}; expected spend"
            f" {spend} (95 % interval {low} to {high}){other}; chance of overspending {self.overspend:.0%}; error rate"
            f" {self.error:.4f} ± {Z * self.error_se:.4f} (95 %; {self.rows:,} rows that the router did not see)"
        )


@dataclass(frozen=True)
class PricedRows:
    """What a router expects on n rows. expected: errors [n, p]. expected_prices, prices: to decide by and to pay, [p] or [n, p]."""

    expected: Tensor
    expected_prices: Tensor
    prices: Tensor

    def decide(self, factor: Tensor) -> Tensor:
        return argmax_last(-(self.expected + factor * self.expected_prices))

    def paid(self, decisions: Tensor) -> Tensor:
        """[n] for decisions [n]."""
        return paid(self.prices.expand_as(self.expected), decisions)

    def crossings(self) -> Tensor:
        """The factors at which some row changes its expert: (e_j − e_k)/(β_k − β_j) over rows and pairs."""
        prices, found = self.expected_prices.expand_as(self.expected), [torch.ones(1, dtype=torch.float64)]
        for k in range(prices.shape[1]):
            for j in range(prices.shape[1]):
                dearer = prices[:, k] > prices[:, j]
                less = self.expected[dearer, j] - self.expected[dearer, k]
                found.append(less / (prices[dearer, k] - prices[dearer, j]))
        return torch.cat(found)


def priced_rows(held_out: HeldOut, prices: Tensor | None) -> list[PricedRows]:
    """The rows that the router did not see and, if the routers of folds judged them, those of the router that is deployed: its
    estimates differ from theirs. prices [p]; None: each row has its own."""
    found = []
    if prices is not None:
        parts = [part for part in (held_out.expected, held_out.deployed) if part is not None]
        found = [PricedRows(part.double(), prices.double(), prices.double()) for part in parts]
    elif held_out.expected_prices is not None and held_out.prices is not None:
        known = held_out.expected, held_out.expected_prices, held_out.prices
        found.append(PricedRows(*(part.double() for part in known)))
        if held_out.deployed is not None and held_out.deployed_prices is not None:
            own = held_out.deployed_prices.double()
            found.append(PricedRows(held_out.deployed.double(), own, own))
    return found


class SpendCurve:
    """What a router spends at each factor, on rows that it did not see; if the deployed router spends more on its own rows, that
    counts. prices: those of the held-out rows, [p] or [n, p]."""

    def __init__(self, rows: list[PricedRows], errors: Tensor) -> None:
        self.errors, self.prices = errors.double(), rows[0].prices
        self.factors = factors_to_try(torch.cat([part.crossings() for part in rows]))
        chosen = [torch.stack([part.decide(factor) for factor in self.factors]) for part in rows]
        self.decisions = chosen[0]
        # [factors, rows] each
        self.paid = [torch.stack([part.paid(one) for one in own]) for part, own in zip(rows, chosen, strict=True)]
        self.spend = torch.stack([part.mean(dim=1) for part in self.paid]).amax(dim=0)

    def first_within(self, spend: Tensor, budget: float) -> Tensor:
        """The place of the least factor whose spend [..., factors] is within the budget. The last is the cheapest there is."""
        within = spend <= budget * (1 + ROUNDING)
        within[..., -1] = True
        return within.to(torch.uint8).argmax(dim=-1)

    def resampled(self, resamples: int) -> Tensor:
        """The mean spend at each factor in each of the resamples, [resamples, factors]."""
        rng, found = stream(0, "budget"), []
        for part in self.paid:
            n = part.shape[1]
            counts = torch.from_numpy(rng.multinomial(n, np.full(n, 1 / n), size=resamples)).double()
            found.append(counts @ part.T / n)
        return torch.stack(found).amax(dim=0)


def factors_to_try(crossings: Tensor) -> Tensor:
    """Quantiles of the factors at which some row changes its expert, from 1 on."""
    crossings = crossings[crossings > 1].unique()
    if len(crossings) > FACTORS:
        crossings = crossings[torch.linspace(0, len(crossings) - 1, FACTORS).round().long()]
    top = crossings[-1:] if len(crossings) else torch.ones(1, dtype=torch.float64)
    return torch.cat([torch.ones(1, dtype=torch.float64), crossings * (1 + BEYOND), top * 2])


def keep_within(
    held_out: HeldOut,
    prices: Tensor | None,
    budget: float,
    confidence: float | None,
    names: tuple[str, ...],
    unit: float = 1.0,
    currency: str = "",
) -> OperatingPoint:
    """The least factor on the prices [p] that keeps the mean spend within the budget, both in units of one error. prices: None if
    each row has its own, which the held-out rows say.

    unit: what one error costs, in the money that the result is told in. currency: the sign of that money.
    confidence: with .95, the chance of overspending is at most 5 %: a smaller budget is aimed at. None: aim at the budget itself;
    then the chance is about one half where the budget binds.
    """
    mean_prices = held_out.mean_prices if prices is None else prices
    rows = priced_rows(held_out, prices)
    if mean_prices is None or not rows:
        raise ParameterError("budget", "the run kept no prices to find it with")
    mean_prices = mean_prices.double()
    if not 0 <= budget < float("inf"):
        raise ParameterError("budget", "must be a finite number, not negative", f"{budget * unit:g}")
    if confidence is not None and not 0.5 <= confidence < 1:
        raise ParameterError("confidence", "must be at least 0.5 and less than 1", confidence)
    cheapest = int(mean_prices.argmin())
    curve = SpendCurve(rows, held_out.errors)
    least = min(float(mean_prices[cheapest]), float(curve.spend.min()))
    if budget < least * (1 - ROUNDING):
        problem = f"is less than the price of the cheapest expert, {names[cheapest]} ({least * unit:g})"
        if least < float(mean_prices[cheapest]):
            problem = f"is less than the least that can be spent by choosing for each query, {least * unit:g}"
        raise ParameterError("budget", problem, f"{budget * unit:g}")
    spend, resampled = curve.spend, curve.resampled(RESAMPLES)

    def overspending(aim: float) -> float:
        """The share of resamples in which the factor that is chosen there overspends on all rows."""
        return float((spend[curve.first_within(resampled, aim)] > budget * (1 + ROUNDING)).double().mean())

    aim = budget
    if confidence is not None:
        low, high = least, budget
        for _ in range(30):
            if overspending(aim) <= 1 - confidence:
                low = aim
            else:
                high = aim
            aim = (low + high) / 2
        aim = low
    place = int(curve.first_within(spend, aim))
    guard, decisions = guard_within(curve, place, held_out, mean_prices, budget)
    routed = guard.constant is None
    spends = resampled[:, place] if routed else mean_prices[[guard.best]]
    low, high = (float(spends.quantile(share)) for share in INTERVAL)
    error, error_se = paired(paid(curve.errors, decisions))
    unseen = float(curve.paid[0][place].mean())
    return OperatingPoint(
        budget=budget * unit,
        factor=float(curve.factors[place]),
        spend=float(spend[place] if routed else mean_prices[guard.best]) * unit,
        spend_interval=(low * unit, high * unit),
        overspend=overspending(aim) if routed else 0.0,
        error=error,
        error_se=error_se or 0.0,
        guard=guard,
        rows=len(decisions),
        currency=currency,
        unseen_spend=unseen * unit if routed and unseen < spend[place] else None,
    )


def guard_within(
    curve: SpendCurve, place: int, held_out: HeldOut, mean_prices: Tensor, budget: float
) -> tuple[Guard, Tensor]:
    """The guard, which falls back to the best single expert that the budget allows; and the decisions under it. It has no offsets:
    they would change the spend."""
    decisions = curve.decisions[place]
    alone = (held_out.mean_errors.double() + mean_prices).masked_fill(mean_prices > budget * (1 + ROUNDING), torch.inf)
    best = int(alone.argmin())
    if alone[best].isinf():  # no single expert is within the budget: there is nothing to fall back to
        gain, error = paired((curve.errors + curve.prices)[:, best] - paid(curve.errors + curve.prices, decisions))
        return Guard(None, None, best, gain, error, held_out.needed), decisions
    guard = fit_guard(None, decisions, curve.errors + curve.prices, best, held_out.needed)
    return guard, guard.decide(curve.errors, decisions)
