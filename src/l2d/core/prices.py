"""Prices of experts as one value: how much, in which unit, and how they are printed. Nothing else knows units; no torch here."""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from l2d.utils.errors import ParameterError, unknown
from l2d.utils.text import Z

T = TypeVar("T", bound=Any)
PriceList = Sequence[float] | Mapping[str, float]

NO_SCALE = (0, 1)  # prices that do not count, or that are in units of one error already
HARDLY = 0.02  # of the worst expert's mean error: prices below it seldom change a choice


@dataclass(frozen=True)
class PriceUnit:
    """The unit of the prices in data. None: not known."""

    scale: float | None = None  # the factor on prices in the run that wrote a log, to units of one error
    currency: str | None = None  # "$" if they are dollars, "" if not

    @classmethod
    def of_rows(cls, scales: Iterable[float], dollars: bool) -> "PriceUnit":
        """scales: NaN where not known; the last one that changes prices counts. dollars: whether the data call their prices so."""
        found = [scale for scale in scales if scale not in NO_SCALE and not math.isnan(scale)]
        return cls(found[-1] if found else None, "$" if dollars else None)

    @classmethod
    def from_log(cls, entry: Mapping[str, Any]) -> "PriceUnit":
        """entry: of a run. Logs of earlier versions have no currency."""
        return cls(entry["price_scale"], entry.get("currency"))

    @property
    def log_entry(self) -> dict[str, Any]:
        return {"price_scale": self.scale, "currency": self.currency}

    @property
    def error_price(self) -> float | None:
        """The price of a wrong answer in the run that wrote the log; None if it is one error, or not known."""
        return None if self.scale is None or self.scale in NO_SCALE else 1 / self.scale

    @property
    def dollars(self) -> bool:
        return self.currency == "$"

    def fits(self, other: "PriceUnit") -> bool:
        """True if prices in both may be added up. Without a currency, nothing is known of it."""
        return None in (self.currency, other.currency) or self.currency == other.currency

    def __str__(self) -> str:
        return "dollars" if self.dollars else "units of one error"


@dataclass(frozen=True)
class Prices:
    """Losses and `listed` are in units of one error; amounts that people give or read are in the unit of the prices in training."""

    listed: tuple[float, ...] | None = None  # one per expert; None: of each query, or part of whole costs
    scale: float | None = 1.0  # an amount times scale is in units of one error; 0: prices do not count; None: no prices
    factor: float = 1.0  # on the prices, to decide by, so that a budget is kept
    error_price: float | None = None  # the dollars that a wrong answer costs; None if amounts are no dollars
    latency_price: float = 0.0  # of a second of latency, which prices then contain

    @classmethod
    def of(cls, config: Mapping[str, Any], listed: tuple[float, ...] | None = None, factor: float = 1.0) -> "Prices":
        """The prices of a run, from its resolved config. One price per expert contains no latency."""
        cost = config["cost"]
        latency = 0.0 if listed is not None else cost.get("latency_price", 0.0)
        given = cost.get("scale")  # of a cost of the user's own it may be anything
        scale = float(given) if isinstance(given, int | float) else None
        return cls(listed, scale, factor, cost.get("error_price"), latency)

    @classmethod
    def shared(cls, configs: Iterable[Mapping[str, Any]]) -> "Prices":
        """The unit of list prices in runs that may differ in cost.scale: dollars only if an error costs the same in all of them."""
        found = [cls.of(config) for config in configs]
        errors, latencies = {one.error_price for one in found}, {one.latency_price for one in found}
        error_price = errors.pop() if len(errors) == 1 else None
        return cls(error_price=error_price, latency_price=latencies.pop() if len(latencies) == 1 else 0.0)

    @property
    def counted(self) -> bool:
        return any(self.listed or ()) or bool(self.scale)

    @property
    def left_out(self) -> bool:
        """True if cost.scale=0 leaves prices out of the costs, and none were given later."""
        return self.scale == 0 and not self.counted

    @property
    def weight(self) -> float:
        """The weight of an amount in a decision: expected cost = error + weight · price."""
        return (self.scale or 1.0) * self.factor

    def in_errors(self, amount: T) -> T:
        """An amount in units of one error; without a scale, it has no other unit. A number, an array or a tensor."""
        return amount * (self.scale or 1.0)

    def amount(self, price: T) -> T:
        """A price in units of one error, as people read it. A number, an array or a tensor."""
        return price / (self.scale or 1.0)

    def in_costs(self, amount: T) -> T:
        """The part of an amount in the costs, in units of one error."""
        return amount * 0.0 if self.left_out else self.in_errors(amount)

    @property
    def per_training_price(self) -> float:
        return 1.0 if self.scale is None else self.scale

    @property
    def sign(self) -> str:
        return "" if self.error_price is None else "$"

    @property
    def unit(self) -> PriceUnit:
        """Without a currency if there are no prices."""
        return PriceUnit(self.per_training_price, self.sign if self.counted else None)

    def amount_of(self, expert: int) -> float | None:
        """The price of an expert, counted from 0, as people read it; None if it is not known before the query."""
        return self.amount(self.listed[expert]) if self.listed is not None and self.counted else None

    def with_list(self, listed: tuple[float, ...]) -> "Prices":
        """Other prices, one per expert; they contain no latency and keep within no budget."""
        return replace(self, listed=listed, factor=1.0, latency_price=0.0)

    def listed_from(self, given: PriceList, experts: Sequence[str]) -> list[float]:
        """One price per expert in units of one error, from amounts in their order or by name."""
        return [self.in_errors(price) for price in prices_in_order(given, experts)]

    @property
    def mean_price(self) -> str:
        return "mean price + latency" if self.latency_price else "mean price"

    @property
    def notes(self) -> list[str]:
        if self.error_price is None:
            return self.latency_notes
        wrong = f"a wrong answer costs ${self.error_price:g} (cost.error_price)"
        return [f"losses and prices are dollars a query; {wrong}", *self.latency_notes]

    @property
    def latency_notes(self) -> list[str]:
        second = f"{self.sign}{self.latency_price:g}"
        return [f"prices contain latency: a second costs {second} (cost.latency_price)"] if self.latency_price else []

    def show(self, loss: float, sign: str = "") -> str:
        """A loss, or a price in units of one error, as text. sign: "+" shows the sign of gains too."""
        return f"{loss:{sign}.4f}" if self.error_price is None else self.money(loss * self.error_price, sign)

    def show_amount(self, amount: float, sign: str = "") -> str:
        return f"{amount:{sign}.4f}" if self.error_price is None else self.money(amount, sign)

    def short(self, amount: float) -> str:
        return f"{self.sign}{amount:.4g}"

    def money(self, amount: float, sign: str = "") -> str:
        """Dollars, with four digits more than the price of an error begins with, at least cents."""
        digits = max(2, 4 - math.floor(math.log10(self.error_price or 1.0)))
        number = f"{amount:{sign}.{digits}f}"
        return f"{number[0]}${number[1:]}" if number[0] in "+-" else f"${number}"

    def plus_minus(self, standard_error: float | None) -> str:
        """Half of the 95 % interval of a loss; nothing if there is only one row."""
        return "" if standard_error is None else f" ± {self.show(Z * standard_error)}"


ERRORS = Prices()  # amounts in units of one error


def prices_in_order(prices: Any, experts: Sequence[str]) -> list[float]:
    there = f"the experts are {', '.join(experts)}"
    if hasattr(prices, "to_dict") and {*map(str, prices.index)} == {*experts}:  # a Series
        prices = prices.to_dict()
    if isinstance(prices, Mapping):
        named = {str(name): price for name, price in prices.items()}  # a table's columns may be numbers
        if wrong := [name for name in named if name not in experts]:
            raise ParameterError("prices", unknown("expert", wrong[0], experts), wrong[0])
        if lacking := [name for name in experts if name not in named]:
            raise ParameterError("prices", f"none for {', '.join(lacking)}; {there}")
        prices = [named[name] for name in experts]
    try:
        if isinstance(prices, str | bytes | Set):
            raise TypeError
        given = [float(price) for price in prices]
    except (TypeError, ValueError, OverflowError):
        raise ParameterError("prices", f"must be numbers, one for each expert; {there}", prices) from None
    if len(given) != len(experts):
        problem = f"expected {len(experts)} prices, one per expert ({', '.join(experts)}); got {len(given)}"
        raise ParameterError("prices", problem, given)
    if not all(0 <= price < float("inf") for price in given):
        raise ParameterError("prices", "must be finite and not negative", given)
    return given


def price_hint(
    config: Mapping[str, Any], prices: Sequence[float], errors: Sequence[float], said: str = "cost.error_price=0.02"
) -> str:
    """A line for runs whose prices hardly count, if nobody said what an error costs; else empty. prices, errors: means."""
    known, dearest, worst = Prices.of(config), max(prices, default=0.0), max(errors, default=0.0)
    if known.error_price is not None or known.scale != 1 or not 0 < dearest < HARDLY * worst:
        return ""
    counts = f"mean errors reach {worst:.2g} and mean prices only {dearest:.2g}, so prices hardly count"
    return f"cost.error_price: not given; {counts}; if they are money, say what a wrong answer costs, such as {said}"
