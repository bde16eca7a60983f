"""Keeps the mean spend within a budget: prices are multiplied by the least factor, at least 1, at which the router spends no more.

A bootstrap of the rows says how much the spend may differ, and how likely it exceeds the budget.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.guard import Guard, HeldOut, fit_guard, paired
from l2d.utils.errors import ParameterError
from l2d.utils.seeding import stream
from l2d.utils.text import Z

FACTORS = 300  # that are tried, from 1 to where every row goes to the cheapest expert
RESAMPLES = 1_000
INTERVAL = (0.025, 0.975)
ROUNDING = 1e-6  # of prices in 32 bits
ENOUGH = 0.25  # of all rows, on which the router is compared with those of the folds
BEYOND = 1e-4  # of a factor at which rows change their expert, so that routers, which compute in 32 bits, are on the same side


@dataclass(frozen=True)
class OperatingPoint:
    """What a router within a budget is expected to do, per query.

    factor: on the prices, to decide by. spend, spend_interval: the mean price of the chosen experts, and its 95 % interval.
    overspend: how likely the mean spend exceeds the budget. Money is in the unit of the budget. error, error_se: the mean error and
    its standard error. guard: what is deployed; if it falls back, then to an expert within the budget. rows: how many say so.
    currency: the sign of the money, if it has one. with_latency: whether prices, and so the budget, contain latency. crossed:
    whether the routers of folds made the errors. They learned from fewer rows than the router that is deployed. allowed: the
    experts, counted from 0, that are within the budget alone. confidence: as it was asked for.
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
    crossed: bool = False
    allowed: tuple[int, ...] = ()
    confidence: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "OperatingPoint":
        pairs = {name: tuple(content[name]) for name in ("spend_interval", "allowed")}
        return cls(**{**content, **pairs, "guard": Guard.from_dict(content["guard"])})

    def __str__(self) -> str:
        spend, low, high = (f"{self.currency}{amount:.4g}" for amount in (self.spend, *self.spend_interval))
        what = " for money and latency" if self.with_latency else ""
        deployed = self.guard.constant is None
        factor = f"prices are multiplied by {self.factor:.4g}" if deployed else "everything goes to one expert"
        judges = "judged by routers of the other folds" if self.crossed else "that the router did not see"
        return (
            f"budget {self.currency}{self.budget:g} per query{what}: {factor}; expected spend"
            f" {spend} (95 % interval {low} to {high}); chance of overspending {self.overspend:.0%}; error rate"
            f" {self.error:.4f} ± {Z * self.error_se:.4f} (95 %; {self.rows:,} rows {judges})"
        )


@dataclass(frozen=True)
class PricedRows:
    """What a router expects on n rows. expected: errors [n, p]. expected_prices, prices: to decide by and to pay, [n, p]."""

    expected: Tensor
    expected_prices: Tensor
    prices: Tensor

    def decide(self, factors: Tensor) -> Tensor:
        """[factors, n]. Ties go to the last expert. Experts are reversed, since argmin takes the first."""
        errors, prices = (part.flip(-1).contiguous() for part in (self.expected, self.expected_prices))
        found = [torch.addcmul(errors, prices, factor).argmin(dim=-1) for factor in factors]
        return errors.shape[-1] - 1 - torch.stack(found)

    def spent(self, factors: Tensor) -> Tensor:
        """[factors, n]."""
        return paid_at_each(self.prices, self.decide(factors))

    def crossings(self) -> Tensor:
        """The factors at which some row changes its expert: (e_j − e_k)/(β_k − β_j) over rows and pairs."""
        prices, found = self.expected_prices, [torch.ones(1, dtype=torch.float64)]
        for k in range(prices.shape[1]):
            for j in range(prices.shape[1]):
                dearer = prices[:, k] > prices[:, j]
                less = self.expected[dearer, j] - self.expected[dearer, k]
                found.append(less / (prices[dearer, k] - prices[dearer, j]))
        return torch.cat(found)


def priced_rows(
    held_out: HeldOut, prices: Tensor | None
) -> tuple[PricedRows | None, PricedRows | None, PricedRows | None]:
    """The rows that were not seen; and, if the routers of folds judged them, the rows that were: as the router that is deployed
    expects them, and as a fold's router does. The price to pay there is the expected one: a router that learned from a row takes an
    expert where it was cheap by chance. prices [p]; None: each row has its own, unless the run kept none."""

    def rows(expected: Tensor | None, told: Tensor | None, paid: Tensor | None) -> PricedRows | None:
        told, paid = (told, paid) if prices is None else (prices, prices)
        if expected is None or told is None or paid is None:
            return None
        return PricedRows(expected.double(), *(part.double().expand(expected.shape) for part in (told, paid)))

    return (
        rows(held_out.expected, held_out.expected_prices, held_out.prices),
        rows(held_out.deployed, held_out.deployed_prices, held_out.deployed_prices),
        rows(held_out.seen, held_out.seen_prices, held_out.seen_prices),
    )


def paid_at_each(prices: Tensor, decisions: Tensor) -> Tensor:
    """prices [n, p], decisions [factors, n] -> [factors, n]."""
    return torch.stack([paid(prices, one) for one in decisions])


class SpendCurve:
    """What a router spends at each factor, and what the experts cost alone: means over rows, and in resamples of the rows.

    If the router itself judged the rows, its spend there is known. If the routers of folds did, they decide otherwise than the
    router that is deployed, which learned from more rows. Its spend is then theirs, plus how much more it spends than they do on
    rows that both learned from. Its spend on its own rows alone would say too little: on rows that it learned by heart, a router
    knows which cheap experts are right. If few rows are left to compare on, as undersampling may leave, theirs must do.

    decisions, errors: of the rows that were not seen. spend [factors], alone [p]; resampled, alone_resampled: [resamples, …]. None
    is negative, as estimates from a log may be.
    """

    def __init__(self, held_out: HeldOut, prices: Tensor | None) -> None:
        rows, own, seen = priced_rows(held_out, prices)
        if rows is None:
            raise ParameterError("budget", "the run kept no prices to find it with")
        self.errors, self.prices = held_out.errors.double(), rows.prices
        self.factors = factors_to_try(torch.cat([part.crossings() for part in (rows, own, seen) if part is not None]))
        self.decisions = rows.decide(self.factors)
        counts = bootstrap_weights(stream(0, "budget"), len(rows.prices))
        unseen = paid_at_each(rows.prices, self.decisions)
        self.spend, self.resampled = unseen.mean(dim=1), counts @ unseen.T
        if (
            own is not None
            and seen is not None
            and held_out.learned is not None
            and len(own.prices) > ENOUGH * len(rows.prices)
        ):
            more, known = torch.zeros_like(unseen), torch.zeros(len(rows.prices), dtype=unseen.dtype)
            more[:, held_out.learned], known[held_out.learned] = own.spent(self.factors) - seen.spent(self.factors), 1.0
            # No router spends less than the folds' do at any factor: by listed prices, than the cheapest expert costs.
            self.spend = (self.spend + more.sum(dim=1) / known.sum()).maximum(self.spend.min())
            drawn = (counts @ known).clamp(min=1 / len(known))[:, None]  # a resample may have none of them
            least = self.resampled.min(dim=1, keepdim=True).values
            self.resampled = (self.resampled + counts @ more.T / drawn).maximum(least)
        self.alone, self.alone_resampled = rows.prices.mean(dim=0), counts @ rows.prices
        for means in (self.spend, self.resampled, self.alone, self.alone_resampled):
            means.clamp_(min=0)


def bootstrap_weights(rng: np.random.Generator, n: int) -> Tensor:
    """What each of n rows weighs in each resample, [resamples, n]."""
    drawn = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(RESAMPLES)]  # faster than rng.multinomial
    return torch.from_numpy(np.stack(drawn)).double() / n


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
    confidence: with .95, the chance of overspending is at most 5 %. None: it is about one half where the budget binds.
    """
    if not 0 <= budget < float("inf"):
        raise ParameterError("budget", "must be a finite number, not negative", f"{budget * unit:g}")
    if confidence is not None and not 0.5 <= confidence < 1:
        raise ParameterError("confidence", "must be at least 0.5 and less than 1", confidence)
    curve, most = SpendCurve(held_out, prices), budget * (1 + ROUNDING)

    def kept(means: Tensor, resampled: Tensor) -> Tensor:
        """Whether the budget is, with the confidence. [m], [resamples, m] -> bool [m]"""
        return (means <= most) & (chance_above(most, resampled) <= 1 - (confidence or 0.0))

    within, affordable = kept(curve.spend, curve.resampled), kept(curve.alone, curve.alone_resampled)
    if not within.any() and not affordable.any():
        problem = why_refused(curve, budget, confidence, names, lambda amount: f"{currency}{amount * unit:g}")
        raise ParameterError("budget", problem, f"{currency}{budget * unit:g}")
    place = int(within.to(torch.uint8).argmax()) if within.any() else len(within) - 1
    guard, decisions = guard_within(curve, place, held_out, affordable, alone=not within.any())
    if guard.constant is None:
        spend, resampled = curve.spend[place], curve.resampled[:, place]
    else:
        spend, resampled = curve.alone[guard.best], curve.alone_resampled[:, guard.best]
    low, high = (float(resampled.quantile(share)) for share in INTERVAL)
    error, error_se = paired(paid(curve.errors, decisions))
    return OperatingPoint(
        budget=budget * unit,
        factor=float(curve.factors[place]),
        spend=float(spend) * unit,
        spend_interval=(low * unit, high * unit),
        overspend=float(chance_above(most, resampled)),
        error=error,
        error_se=error_se or 0.0,
        guard=guard,
        rows=len(decisions),
        currency=currency,
        crossed=held_out.learned is not None
        or held_out.deployed is not None,  # runs of an earlier l2d have the latter alone
        allowed=tuple(affordable.nonzero().flatten().tolist()),
        confidence=confidence,
    )


def chance_above(most: float, resampled: Tensor) -> Tensor:
    """The share of resamples whose mean is above `most`, as in the interval of the mean. [resamples, …] -> […]"""
    return (resampled > most).double().mean(dim=0)


def why_refused(
    curve: SpendCurve, budget: float, confidence: float | None, names: tuple[str, ...], told: Callable[[float], str]
) -> str:
    """What is wrong with a budget that neither a factor nor a single expert keeps. told: writes an amount."""
    cheapest = int(curve.alone.argmin())
    least, alone = min(float(curve.spend.min()), float(curve.alone[cheapest])), float(curve.alone[cheapest])
    if budget * (1 + ROUNDING) >= least:
        return f"cannot be kept with confidence {confidence:g}: the least mean spend, {told(least)}, is uncertain; raise it"
    if least < alone * (1 - ROUNDING):
        return f"is less than the least that can be spent by choosing for each query, {told(least)}"
    return f"is less than the price of the cheapest expert, {names[cheapest]} ({told(alone)})"


def guard_within(
    curve: SpendCurve, place: int, held_out: HeldOut, affordable: Tensor, *, alone: bool
) -> tuple[Guard, Tensor]:
    """The guard, which falls back to the best single expert that the budget allows; and the decisions under it. It has no offsets:
    they would change the spend. affordable: bool [p]. alone: fall back, since no routing is within the budget."""
    decisions, costs = curve.decisions[place], curve.errors + curve.prices
    compared = affordable if affordable.any() else curve.alone <= curve.alone.min()
    best = int((held_out.mean_errors.double() + curve.alone).masked_fill(~compared, torch.inf).argmin())
    guard = fit_guard(None, decisions, costs, best, held_out.needed)
    if not affordable.any():  # there is nothing to fall back to
        guard = replace(guard, constant=None)
    elif alone:
        guard = replace(guard, constant=best)
    return guard, guard.decide(costs, decisions)
