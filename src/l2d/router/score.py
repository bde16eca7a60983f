"""The score of a router on rows whose costs are known, with intervals, as numbers and as a picture."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from l2d.core.costs import cheapest, paid
from l2d.core.guard import paired
from l2d.core.prices import ERRORS, Prices
from l2d.utils.text import Z

if TYPE_CHECKING:
    from l2d.utils.picture import Picture

BUDGET_SAYS = {True: " that the budget allows", False: ", which the budget does not allow", None: ""}
INTERVALS = ("interval", "gain_interval")


@dataclass(frozen=True)
class RouterScore:
    """Means over n rows; costs are error plus price, in units of one error. Intervals are 95 %; that of the loss is not below 0.
    deferral_loss: the mean cost of the experts that the router chose. gain: how much less that is than always asking the best
    single expert of these rows. shares, oracle_shares: of the rows, by expert. single_losses: of always asking each expert.
    mean_error, mean_price: the two parts of deferral_loss, if they were given apart. Costs that were not all known are doubly
    robust estimates; then there is no oracle. error_price: what an error costs, if that is known; printed, all amounts are then
    dollars. within_budget: whether the router's budget allows the best single expert; None without a budget."""

    n: int
    deferral_loss: float
    interval: tuple[float, float]
    oracle_loss: float | None
    best_single: str
    best_single_loss: float
    gain: float
    gain_interval: tuple[float, float]
    shares: dict[str, float]
    oracle_shares: dict[str, float] | None
    single_losses: dict[str, float]
    mean_error: float | None = None
    mean_price: float | None = None
    error_price: float | None = None
    within_budget: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """With None for infinite bounds: JSON has no infinity."""
        pairs = {name: [None if math.isinf(end) else end for end in getattr(self, name)] for name in INTERVALS}
        return {**asdict(self), **pairs}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "RouterScore":
        ends = {name: zip((-math.inf, math.inf), content[name], strict=True) for name in INTERVALS}
        pairs = {name: tuple(bare if end is None else end for bare, end in both) for name, both in ends.items()}
        return cls(**{**content, **pairs})

    def __str__(self) -> str:
        low, high = self.gain_interval
        sure = "better than" if low > 0 else "worse than" if high < 0 else "no clear difference from"
        prices = Prices(error_price=self.error_price)
        told, signed = prices.show, partial(prices.show, sign="+")
        first, last = (told(end) for end in self.interval)
        allowed = BUDGET_SAYS[self.within_budget]
        lines = [f"deferral loss     {told(self.deferral_loss)}  ({first} to {last}; {self.n:,} rows)"]
        if self.mean_price is not None:
            lines.append(f"  of which price  {told(self.mean_price)}")
        lines.append(f"best single       {told(self.best_single_loss)}  always {self.best_single}")
        if self.oracle_loss is not None:
            lines.append(f"oracle            {told(self.oracle_loss)}  the cheapest expert for each row")
        gain = f"{signed(self.gain)}  ({signed(low)} to {signed(high)})"
        lines.append(f"gain              {gain}: {sure} the best single expert{allowed}")
        shares = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        return "\n".join([*lines, f"shares            {shares}", *prices.notes])

    def plot(self, rows: str = "rows") -> "Picture":
        """Mean costs of router, oracle and single experts, and shares per expert. rows: what the title calls the rows."""
        from l2d.utils.picture import Picture

        figure = Picture(figsize=(10, 4), layout="constrained")
        losses, shares = figure.subplots(1, 2)
        bars = {**{f"always {name}": loss for name, loss in self.single_losses.items()}, "router": self.deferral_loss}
        if self.oracle_loss is not None:
            bars["oracle"] = self.oracle_loss
        colours = [*["tab:gray"] * len(self.single_losses), "tab:blue", "tab:green"][: len(bars)]
        losses.barh(list(bars)[::-1], list(bars.values())[::-1], color=colours[::-1])
        losses.set(xlabel="mean cost (error + price), in units of one error", title=f"{self.n:,} {rows}")
        places = range(len(self.shares))
        for shift, label, found in ((-0.2, "router", self.shares), (0.2, "oracle", self.oracle_shares)):
            if found is not None:
                heights = [100 * share for share in found.values()]
                shares.bar([k + shift for k in places], heights, width=0.4, label=label)
        shares.set_xticks(places, list(self.shares))
        shares.set(ylabel="inputs sent to it (%)", title="who is asked")
        shares.legend()
        return figure


@dataclass(frozen=True)
class Comparison:
    """The mean cost of the router whose `compare` was called minus the other's, on n rows. interval: 95 %, paired."""

    n: int
    difference: float
    interval: tuple[float, float]
    error_price: float | None = None

    def __str__(self) -> str:
        low, high = self.interval
        better = "this router is better" if high < 0 else "the other router is better" if low > 0 else ""
        sure = better or "no significant difference between this router and the other"
        told = partial(Prices(error_price=self.error_price).show, sign="+")
        return f"{told(self.difference)}  ({told(low)} to {told(high)}; {self.n:,} rows): {sure}"


def compare_decisions(first: Tensor, second: Tensor, costs: Tensor, unit: Prices = ERRORS) -> Comparison:
    """first, second int [n], costs [n, p]. unit: of printed amounts."""
    costs = costs.double()
    return Comparison(len(costs), *around(paid(costs, first) - paid(costs, second)), unit.error_price)


def score_decisions(
    decisions: Tensor,
    costs: Tensor,
    names: Sequence[str],
    prices: Tensor | None = None,
    *,
    unit: Prices = ERRORS,
    from_log: bool = False,
    allowed: Sequence[int] | None = None,
) -> RouterScore:
    """decisions int [n], costs [n, p]; prices [p] or [n, p] if they are known apart from the errors. from_log: costs are doubly
    robust. allowed: the experts within the router's budget alone; if none is, the best of all is compared. None: no budget."""
    costs = costs.double()
    alone = costs.mean(dim=0)
    best = min(allowed or range(len(names)), key=alone.tolist().__getitem__)
    chosen = paid(costs, decisions)
    loss, gain = around(chosen), around(costs[:, best] - chosen)
    price = None if prices is None else float(paid(prices.double().expand_as(costs), decisions).mean())
    return RouterScore(
        n=len(costs),
        deferral_loss=loss[0],
        interval=(max(0.0, loss[1][0]), loss[1][1]),
        oracle_loss=None if from_log else float(costs.min(dim=1).values.mean()),
        best_single=names[best],
        best_single_loss=float(alone[best]),
        gain=gain[0],
        gain_interval=gain[1],
        shares=shares_of(decisions, names),
        oracle_shares=None if from_log else shares_of(cheapest(costs), names),
        single_losses=dict(zip(names, alone.tolist(), strict=True)),
        mean_error=None if price is None else loss[0] - price,
        mean_price=price,
        error_price=unit.error_price,
        within_budget=None if allowed is None else best in allowed,
    )


def around(values: Tensor) -> tuple[float, tuple[float, float]]:
    """The mean of n values and its 95 % interval; infinite for a single value."""
    mean, error = paired(values)
    width = float("inf") if error is None else Z * error
    return mean, (mean - width, mean + width)


def shares_of(decisions: Tensor, names: Sequence[str]) -> dict[str, float]:
    counts = torch.bincount(decisions, minlength=len(names)).double() / len(decisions)
    return dict(zip(names, counts.tolist(), strict=True))
