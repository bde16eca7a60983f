"""Pictures of plans: the one that is followed as a tree; error against price of all, at multiples of the prices."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from l2d.core.plan import number_of
from l2d.networks.estimators.planner import Planner, plan_names, planner_of
from l2d.router.replanned import FACTORS, candidates, unit_of
from l2d.router.trained import TrainedRouter
from l2d.utils.errors import L2DError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from l2d.utils.picture import Picture

LEAST = 0.01  # of the rows: rarer branches are left out
SINGLE, ORACLE = "single", "oracle"
CHEAPER = (0.0, *(2 ** (step / 2) for step in range(-8, 0)))  # factors below 1
Path = tuple[str, ...]


def paths_of(planner: Planner, name: str, experts: Sequence[str]) -> dict[Path, tuple[int, float]]:
    """The number of training rows on each path, and the share of right answers at its end."""
    rows, plan = planner.training_rows, planner.plans[name]
    n, p = rows.right.shape
    asked, paths, ends = torch.zeros(n, p, dtype=torch.bool), dict[int, Path](), dict[Path, list[float]]()
    going = torch.arange(n)
    while len(going):
        view, mine = rows.view.take(going), asked[going]
        chances = rows.chances[number_of(mine), going]
        moves, answers = plan(view, mine, chances, torch.zeros_like(mine))
        for place, (row, move, answer) in enumerate(zip(going.tolist(), moves.tolist(), answers.tolist(), strict=True)):
            if move < 0:
                end = (*paths[row], f"give {experts[answer]}'s answer")
                ends.setdefault(end, []).append(float(rows.right[row, answer]))
                continue
            agrees = bool((view.same[place, move] & mine[place]).any())
            said = "" if not mine[place].any() else ": agrees with an earlier answer" if agrees else ": another answer"
            said = ": no answer" if view.kinds[place, move] < 0 else said
            paths[row] = (*paths.get(row, ()), f"ask {experts[move]}{said}")
        on = moves >= 0
        going, moves = going[on], moves[on]
        asked[going, moves] = True
    return {path: (len(right), sum(right) / len(right)) for path, right in ends.items()}


def tree_lines(paths: Mapping[Path, tuple[int, float]]) -> list[str]:
    n, counts = sum(count for count, _ in paths.values()), Counter[Path]()
    for path, (count, _) in paths.items():
        for depth in range(1, len(path) + 1):
            counts[path[:depth]] += count

    def below(parent: Path) -> list[str]:
        found = []
        children = [path for path in counts if path[:-1] == parent and counts[path] >= LEAST * n]
        for path in sorted(children, key=lambda one: -counts[one]):
            right = f", {paths[path][1]:.0%} right" if path in paths else ""
            line = f"{'    ' * len(parent)}{path[-1]}  ({counts[path] / n:.0%} of the rows{right})"
            found += [line, *below(path)]
        return found

    return below(())


def plot_plan(planner: Planner, name: str, experts: Sequence[str]) -> "Picture":
    from l2d.utils.picture import Picture

    if planner.asks is not None:
        raise L2DError("a plan that a log taught has no tree, since rows do not have all answers; see candidates.txt")
    lines = tree_lines(paths_of(planner, name, experts))
    figure = Picture(figsize=(0.09 * max(map(len, lines)) + 0.5, 0.25 * len(lines) + 0.8))
    figure.text(0.02, 0.98, "\n".join([f"the plan: {name}", "", *lines]), va="top", family="monospace", fontsize=9)
    return figure


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
