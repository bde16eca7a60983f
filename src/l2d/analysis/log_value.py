"""The value of a router on the rows of a log: against the policy that ran, and against each expert alone."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.guard import paired
from l2d.core.off_policy import Logged, doubly_robust, policy_value, value_of, weights_of
from l2d.core.results import Estimate
from l2d.core.ridge import expected_by
from l2d.data.text.encoders import packed_state
from l2d.logs.rows import LoggedRows
from l2d.router.router import Router
from l2d.router.trained import allowed_experts, decide_inputs, inputs_of, plan_of
from l2d.utils.errors import L2DError
from l2d.utils.text import listed

LEAST = 10  # rows on which a policy's choice was asked; fewer say nothing


@dataclass(frozen=True)
class PolicyValue:
    """Mean cost per query."""

    name: str
    doubly_robust: Estimate
    snips: Estimate | None  # None for the policy that ran, whose costs are known
    gain: Estimate | None  # how much less the router costs, paired and doubly robust; None for the router itself
    asked: int  # the rows on which the log knows what the policy costs


@dataclass(frozen=True)
class LogValue:
    """The router, the policy that ran, the experts alone. Prices are in the unit of those in training, None if none are counted."""

    router: PolicyValue
    ran: PolicyValue
    singles: list[PolicyValue]  # in the experts' order
    unknown: list[str]  # experts that were hardly asked; `singles` lacks them
    price: Estimate | None  # the mean of the router's choices, doubly robust
    paid: Estimate | None  # the mean under the policy that ran
    best_single: PolicyValue  # the cheapest within the router's budget; if none is within it, the cheapest of all
    within_budget: bool | None  # True if one is; None without a budget


def fresh_rows(rows: LoggedRows, run: Path) -> tuple[LoggedRows, int]:
    """Leave out the rows that trained the router, if its run names them. Return also how many these are."""
    file = run / "test.npz"
    if not file.is_file():
        return rows, 0
    with np.load(file, allow_pickle=False) as found:
        trained = np.isin(rows.ids, found["train_ids"].astype(str) if "train_ids" in found else [])
    if trained.all():
        said = "l2d train printed its value by cross-validation; here it needs later rows"
        raise L2DError(f"{rows.file}: all its ids are those of rows that trained this router; {said}")
    return rows.take(~trained), int(trained.sum())


def rows_with_prices(rows: LoggedRows, router: Router, own_prices: bool = False) -> tuple[LoggedRows, int]:
    """Return the rows whose price (and latency) is known, if the run counts it, and how many others there are."""
    known = ~np.isnan(prices_of_rows(rows, router, own_prices, expert_numbers(rows, router)))
    if not known.any():
        latency = " and a latency" if router.prices.latency_price else ""
        raise L2DError(f"{rows.file}: no row has a price{latency}; report it with the outcome")
    return rows.take(known), int((~known).sum())


def log_value(router: Router, rows: LoggedRows, *, own_prices: bool = False) -> LogValue:
    """rows: whose expert was drawn, and whose price is known. own_prices: count the router's prices, not those of the log."""
    if plan_of(router)[0] is not None:
        instead = "l2d train dataset=log method=plan prints what a plan is worth on a log"
        raise L2DError(f"{rows.file}: this router follows a plan, which may ask several experts; {instead}")
    inputs = inputs_of_log(rows, router)
    known, prices, asked, propensities = spread_costs(rows, router, own_prices)
    logged = Logged(expected_by(inputs, known), weights_of(asked, propensities))
    robust = doubly_robust(known, logged)
    decisions = decide_inputs(router, inputs)
    chosen = paid(robust, decisions)

    def judge(name: str, choices: Tensor) -> PolicyValue:
        own = paid(robust, choices)
        value = value_of(choices, robust, logged)
        gain = None if choices is decisions else Estimate(*paired(own - chosen))
        return PolicyValue(name, value.doubly_robust, value.snips, gain, int(paid(asked, choices).sum()))

    singles = [judge(f"always {name}", torch.full_like(decisions, k)) for k, name in enumerate(router.experts)]
    unknown = [name for name, one in zip(router.experts, singles, strict=True) if one.asked < LEAST]
    found = judge("router", decisions)
    if missed := [name for name in unknown if bool((decisions == router.experts.index(name)).any())]:
        hardly = f"{missed[0]} was asked on fewer than {LEAST} of {len(rows):,} rows, and the router chooses it"
        raise L2DError(f"{rows.file}: {hardly}; serve longer, or with a larger --explore")
    again = rows.calls is not None and any(len(calls) > 1 for calls in rows.calls)
    name = "the first answers" if again else "the policy that ran"  # of plans, later answers are not in `known`
    ran = PolicyValue(name, policy_value(known), None, Estimate(*paired(known[asked] - chosen)), len(rows))
    price = spent = None
    if router.prices.counted:
        prices = router.prices.amount(prices)
        expected = doubly_robust(prices, Logged(expected_by(inputs, prices), logged.weights))
        price, spent = Estimate(*paired(paid(expected, decisions))), policy_value(prices)
    judged = {k: one for k, one in enumerate(singles) if one.asked >= LEAST}
    allowed = [one for k, one in judged.items() if k in (allowed_experts(router) or ())]
    best = min(allowed or judged.values(), key=lambda one: one.doubly_robust.value)
    within = None if allowed_experts(router) is None else bool(allowed)
    return LogValue(found, ran, [*judged.values()], unknown, price, spent, best, within)


def expert_numbers(rows: LoggedRows, router: Router) -> np.ndarray:
    """int [n]: the place of each row's expert among the router's."""
    if others := sorted({*rows.experts.tolist()} - {*router.experts}):
        raise L2DError(f"{rows.file}: its experts {listed(others)} are not the router's ({', '.join(router.experts)})")
    return np.array([router.experts.index(name) for name in rows.experts.tolist()])


def inputs_of_log(rows: LoggedRows, router: Router) -> Tensor:
    """As the router's network takes them. Raises L2DError if the log has something else."""
    about = router.description
    if rows.texts is not None:
        if about.kind != "text":
            raise L2DError(f"{rows.file}: it has texts, but this router sees {about.sees}")
        return inputs_of(router, rows.texts.tolist())
    assert rows.features is not None
    made = (about.encoder, packed_state(router.encoder))
    same = rows.about is None or (rows.about.encoder, rows.about.reading) == made
    if not same or (rows.features.shape[1], rows.seen.columns) != (math.prod(about.shape), about.seen.columns):
        said = "but the log has numbers that another router saw; serve with --keep text"
        raise L2DError(f"{rows.file}: this router sees {about.sees}, {said}")
    inputs = torch.from_numpy(rows.features).reshape(-1, *about.shape)
    return inputs.to(torch.uint8) if about.kind == "image" else inputs


def spread_costs(rows: LoggedRows, router: Router, own_prices: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[n, p]: costs, and the prices in them (NaN if not asked), in units of one error; who was asked; propensities."""
    place = torch.from_numpy(expert_numbers(rows, router))[:, None]
    prices = prices_of_rows(rows, router, own_prices, place[:, 0].numpy())

    def spread(values: np.ndarray, other: float) -> Tensor:
        found = torch.full((len(rows), len(router.experts)), other, dtype=torch.float64)
        return found.scatter(1, place, torch.from_numpy(values)[:, None])

    asked = spread(np.ones(len(rows)), 0.0).bool()
    return spread(rows.errors + prices, torch.nan), spread(prices, torch.nan), asked, spread(rows.propensities, 1.0)


def prices_of_rows(rows: LoggedRows, router: Router, own_prices: bool, experts: np.ndarray) -> np.ndarray:
    """The price of each answer, in units of one error, as the run counts it; 0 if it counts no prices. Where the log has none, the
    router's price of the expert [n], by its number; NaN if it has none."""
    prices = router.prices.listed
    own = np.full(len(rows), np.nan) if prices is None else np.array(prices)[experts]
    if own_prices:
        return own
    if not router.prices.counted:
        return np.zeros(len(rows))
    second = router.prices.latency_price
    found = rows.prices + second * rows.latencies if second else rows.prices
    return np.where(np.isnan(found), own, router.prices.in_errors(found))
