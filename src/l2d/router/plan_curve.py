"""Error against price of plans, at multiples of the prices."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from l2d.networks.estimators.planner import plan_names, planner_of
from l2d.router.replanned import FACTORS, candidates, unit_of
from l2d.router.trained import TrainedRouter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SINGLE, ORACLE = "single", "oracle"
CHEAPER = (0.0, *(2 ** (step / 2) for step in range(-8, 0)))  # factors below 1


@dataclass(frozen=True)
class PlanPoint:
    """kind: single, the name of a plan, or oracle (of one choice). name: of the expert. factor: on the prices, to plan with. price:
    the mean of all calls, at the prices themselves."""

    kind: str
    name: str
    factor: float
    price: float
    error: float


def plan_points(router: TrainedRouter) -> list[PlanPoint]:
    """On the training rows, by estimates that did not see the row. None of a router that learned no plan."""
    planner = planner_of(copy.deepcopy(router.network))
    if planner is None:
        return []
    unit, experts, paid = unit_of(router), router.experts, planner.paid.clone()
    names, found = plan_names(len(experts)), list[PlanPoint]()

    def add(kind: str, name: str, factor: float, costs: torch.Tensor, spent: torch.Tensor) -> None:
        price = float(router.prices.amount(spent.double().mean() * unit))
        found.append(PlanPoint(kind, name, factor, price, float((costs - spent).double().mean() * unit)))

    for factor in (*CHEAPER, *FACTORS):
        for one in candidates(planner, paid, factor):
            if one.place >= len(experts):
                add(names[one.place - len(experts)], "", factor, one.costs, one.spent)
            elif factor == 1:
                add(SINGLE, experts[one.place], factor, one.costs, one.spent)
        if planner.asks is None:
            errors = 1 - planner.right
            best = (errors + factor * paid).argmin(dim=1, keepdim=True)
            add(ORACLE, "", factor, (errors + paid).gather(1, best)[:, 0], paid.gather(1, best)[:, 0])
    return found


def plan_curve_figure(points: Sequence[PlanPoint], router: TrainedRouter) -> "Figure":
    from matplotlib.figure import Figure

    picture = Figure(figsize=(8, 5.5), layout="constrained")
    axes = picture.subplots()
    for kind in dict.fromkeys(one.kind for one in points if one.kind != SINGLE):
        pairs = sorted((one.price, 100 * one.error) for one in points if one.kind == kind)
        axes.plot(*zip(*pairs, strict=True), ":" if kind == ORACLE else ".-", label=kind)
    for one in points:
        if one.kind == SINGLE:
            axes.plot(one.price, 100 * one.error, "ks")
            axes.annotate(one.name, (one.price, 100 * one.error), xytext=(4, 4), textcoords="offset points", fontsize=8)
    money = ", $" if router.prices.sign else ""
    axes.set(xlabel=f"{router.prices.mean_price} of all calls of a query{money}", ylabel="error (%)")
    axes.legend()
    return picture
