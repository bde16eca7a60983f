"""A picture of the plan that is followed, as a tree."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from l2d.core.plan import number_of
from l2d.networks.estimators.planner import Planner
from l2d.utils.errors import L2DError

if TYPE_CHECKING:
    from l2d.utils.picture import Picture

LEAST = 0.01  # of the rows: rarer branches are left out
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
