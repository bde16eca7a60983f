"""Keeps the mean spend within a budget: prices are multiplied by the least factor that does, by a bootstrap of the rows."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.guard import Guard, HeldOut, fit_guard, paired
from l2d.core.prices import ERRORS, Prices
from l2d.utils.errors import ParameterError
from l2d.utils.plain import from_plain
from l2d.utils.seeding import stream
from l2d.utils.text import Z

FACTORS = 300  # that are tried, from 1 to where every row goes to the cheapest expert
RESAMPLES = 1_000
INTERVAL = (0.025, 0.975)
ROUNDING = 1e-6  # of prices in 32 bits
ENOUGH = 0.25  # of all rows, on which the router is compared with those of the folds
BEYOND = 1e-4  # relative step past a factor at which rows change their expert: 32 bits must not fall back before it


@dataclass(frozen=True)
class OperatingPoint:
    """A router's expected spend and error within a budget, per query. Money is in the unit of the budget."""

    budget: float
    factor: float  # on the prices, to decide by
    spend: float  # the mean price of the chosen experts
    spend_interval: tuple[float, float]  # 95 %
    overspend: float  # how likely the mean spend exceeds the budget
    error: float
    error_se: float
    guard: Guard  # what is deployed; if it falls back, then to an expert within the budget
    rows: int  # how many say so
    crossed: bool = False  # routers of folds made the errors: they learned from fewer rows than the deployed one
    allowed: tuple[int, ...] = ()  # the experts, counted from 0, that are within the budget alone
    confidence: float | None = None  # as it was asked for
    max_error: float | None = None  # kept instead of a budget (core/risk.py), which is then the expected spend
    unit: Prices = field(default=ERRORS, compare=False)  # prints the amounts

    def as_dict(self) -> dict[str, Any]:
        kept = asdict(self)
        del kept["unit"]  # what its amounts need to be printed
        return kept | {"currency": self.unit.sign, "with_latency": bool(self.unit.latency_price)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "OperatingPoint":
        dollars, latency = content.get("currency", ""), float(content.get("with_latency", False))
        unit = Prices(error_price=1.0 if dollars else None, latency_price=latency)
        return replace(from_plain(cls, dict(content)), unit=unit)

    def __str__(self) -> str:
        spend, low, high = map(self.unit.short, (self.spend, *self.spend_interval))
        judges = "judged by routers of the other folds" if self.crossed else "that the router did not see"
        if self.max_error is not None:
            return (
                f"error of at most {self.max_error:g}, kept with confidence {self.confidence:g}: prices are multiplied by"
                f" {self.factor:.4g}; expected spend {spend} (95 % interval {low} to {high}); error rate {self.error:.4f}"
                f" ({self.rows:,} rows {judges})"
            )
        what = " for money and latency" if self.unit.latency_price else ""
        deployed = self.guard.constant is None
        factor = f"prices are multiplied by {self.factor:.4g}" if deployed else "everything goes to one expert"
        return (
            f"budget {self.unit.sign}{self.budget:g} per query{what}: {factor}; expected spend"
            f" {spend} (95 % interval {low} to {high}); chance of overspending {self.overspend:.0%}; error rate"
            f" {self.error:.4f} ± {Z * self.error_se:.4f} (95 %; {self.rows:,} rows {judges})"
        )


@dataclass(frozen=True)
class PricedRows:
    """A router's expectations on n rows. [n, p] all"""

    expected: Tensor  # errors
    expected_prices: Tensor  # to decide by
    prices: Tensor  # to pay

    def decide(self, factors: Tensor) -> Tensor:
        """[factors, n]. Ties go to the last expert. Experts are reversed, since argmin takes the first."""
        errors, prices = (part.flip(-1).contiguous() for part in (self.expected, self.expected_prices))
        found = [torch.addcmul(errors, prices, factor).argmin(dim=-1) for factor in factors]
        return errors.shape[-1] - 1 - torch.stack(found)

    def spent(self, decisions: Tensor) -> Tensor:
        return paid(self.prices.expand(*decisions.shape, -1), decisions)

    def crossings(self) -> Tensor:
        """The factors at which some row changes its expert: (e_j − e_k)/(β_k − β_j) over rows and pairs."""
        prices, found = self.expected_prices, [torch.ones(1, dtype=torch.float64)]
        for k, j in permutations(range(prices.shape[1]), 2):
            dearer = prices[:, k] > prices[:, j]
            less = self.expected[dearer, j] - self.expected[dearer, k]
            found.append(less / (prices[dearer, k] - prices[dearer, j]))
        return torch.cat(found)


def priced_rows(held_out: HeldOut, prices: Tensor | None) -> tuple[PricedRows | None, ...]:
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


@dataclass(frozen=True)
class SpendCurve:
    """A router's spend at each factor, and the price of each expert alone. No mean is negative, as estimates from a log may be."""

    factors: Tensor
    decisions: Tensor  # on the rows that were not seen [factors, n]
    errors: Tensor  # there [n, p]
    prices: Tensor
    spend: Tensor  # means [factors]
    resampled: Tensor  # the same in resamples of the rows [resamples, factors]
    alone: Tensor  # [p]
    alone_resampled: Tensor


def spend_curve(held_out: HeldOut, prices: Tensor | None) -> SpendCurve:
    """If the routers of folds judged the rows, the router's spend is theirs, plus how much more it spends than they do on rows that
    both learned from, if there are enough. (On rows that it learned by heart, a router spends too little.)"""
    rows, own, seen = priced_rows(held_out, prices)
    if rows is None:
        raise ParameterError("budget", "the run kept no prices to find it with")
    factors = factors_to_try(torch.cat([part.crossings() for part in (rows, own, seen) if part is not None]))
    decisions = rows.decide(factors)
    counts = bootstrap_weights(stream(0, "budget"), len(rows.prices))
    unseen = rows.spent(decisions)
    spend, resampled = unseen.mean(dim=1), counts @ unseen.T
    learned = held_out.learned
    if own is not None and seen is not None and learned is not None and len(own.prices) > ENOUGH * len(rows.prices):
        more, known = torch.zeros_like(unseen), torch.zeros(len(rows.prices), dtype=unseen.dtype)
        more[:, learned], known[learned] = own.spent(own.decide(factors)) - seen.spent(seen.decide(factors)), 1.0
        # No router spends less than the folds' do at any factor: by listed prices, than the cheapest expert costs.
        spend = (spend + more.sum(dim=1) / known.sum()).maximum(spend.min())
        drawn = (counts @ known).clamp(min=1 / len(known))[:, None]  # a resample may have none of them
        least = resampled.min(dim=1, keepdim=True).values
        resampled = (resampled + counts @ more.T / drawn).maximum(least)
    means = [spend, resampled, rows.prices.mean(dim=0), counts @ rows.prices]
    return SpendCurve(factors, decisions, held_out.errors.double(), rows.prices, *(mean.clamp(min=0) for mean in means))


def bootstrap_weights(rng: np.random.Generator, n: int) -> Tensor:
    """The weight of each of n rows in each resample, [resamples, n]."""
    drawn = [np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(RESAMPLES)]  # faster than rng.multinomial
    return torch.from_numpy(np.stack(drawn)).double() / n


def factors_to_try(crossings: Tensor) -> Tensor:
    """Quantiles of the factors at which some row changes its expert, from 1 on."""
    crossings = crossings[crossings > 1].unique()
    if len(crossings) > FACTORS:
        crossings = crossings[torch.linspace(0, len(crossings) - 1, FACTORS).round().long()]
    top = crossings[-1:] if len(crossings) else torch.ones(1, dtype=torch.float64)
    return torch.cat([torch.ones(1, dtype=torch.float64), crossings * (1 + BEYOND), top * 2])


def keep_within(held_out: HeldOut, prices: Prices, budget: float, confidence: float | None) -> OperatingPoint:
    """The least factor on the prices that keeps the mean spend within the budget, an amount as in training. prices: without a list,
    each row has its own. confidence: with .95, the chance of overspending is at most 5 %; None: about one half where it binds."""
    if not 0 <= budget < float("inf"):
        raise ParameterError("budget", "must be a finite number, not negative", f"{budget:g}")
    curve = spend_curve(held_out, None if prices.listed is None else torch.tensor(prices.listed))
    most = prices.in_errors(budget) * (1 + ROUNDING)

    def kept(means: Tensor, resampled: Tensor) -> Tensor:
        """Which of them keep the budget, with the confidence. [m], [resamples, m] -> bool [m]"""
        return (means <= most) & ((resampled > most).double().mean(dim=0) <= 1 - (confidence or 0.0))

    within, affordable = kept(curve.spend, curve.resampled), kept(curve.alone, curve.alone_resampled)
    if not within.any() and not affordable.any():
        least = float(torch.cat([curve.spend, curve.alone]).min())
        problem = "is less than" if most < least else f"cannot be kept with confidence {confidence:g}; raise it above"
        told = f"{problem} the least mean spend, {prices.sign}{prices.amount(least):g}"
        raise ParameterError("budget", told, f"{prices.sign}{budget:g}")
    place = int(within.to(torch.uint8).argmax()) if within.any() else len(within) - 1
    guard, decisions = guard_within(curve, place, held_out, affordable, alone=not within.any())
    if guard.constant is None:
        spend, resampled = curve.spend[place], curve.resampled[:, place]
    else:
        spend, resampled = curve.alone[guard.best], curve.alone_resampled[:, guard.best]
    low, high = (float(resampled.quantile(share)) for share in INTERVAL)
    error, error_se = paired(paid(curve.errors, decisions))
    return OperatingPoint(
        budget=budget,
        factor=float(curve.factors[place]),
        spend=prices.amount(float(spend)),
        spend_interval=(prices.amount(low), prices.amount(high)),
        overspend=float((resampled > most).double().mean()),
        error=error,
        error_se=error_se or 0.0,
        guard=guard,
        rows=len(decisions),
        # Runs of an earlier l2d have the latter alone.
        crossed=held_out.learned is not None or held_out.deployed is not None,
        allowed=tuple(affordable.nonzero().flatten().tolist()),
        confidence=confidence,
        unit=prices,
    )


def guard_within(
    curve: SpendCurve, place: int, held_out: HeldOut, affordable: Tensor, *, alone: bool
) -> tuple[Guard, Tensor]:
    """The guard, which falls back to the best single expert that the budget allows, and the decisions under it. Offsets would
    change the spend. affordable: bool [p]. alone: fall back, since no routing is within the budget."""
    decisions, costs = curve.decisions[place], curve.errors + curve.prices
    compared = affordable if affordable.any() else curve.alone <= curve.alone.min()
    best = int((held_out.mean_errors.double() + curve.alone).masked_fill(~compared, torch.inf).argmin())
    guard = fit_guard(None, decisions, costs, best, held_out.needed)
    if not affordable.any():  # there is nothing to fall back to
        guard = replace(guard, constant=None)
    elif alone:
        guard = replace(guard, constant=best)
    return guard, guard.decide(costs, decisions)
