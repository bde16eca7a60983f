"""The runs that are the paper's experiments: the paper's number is shown beside these only."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from l2d.config import check, compose, groups
from l2d.config.identity import settings_of
from l2d.runs.cells import compose_all

Names = tuple[str, ...]  # dataset, setup, experts, cost, method
RECIPES = ("fast", "paper")
# The experiment of conf/experiment/ for each kind of experts and cost of the paper's tables.
TABLES = {
    ("synthetic", "error"): "table1_error",
    ("synthetic", "error_plus_cost"): "table1_cost",
    ("trained", "error"): "table2_error",
    ("trained", "error_plus_cost"): "table2_cost",
}
_composed = cache(compose)
# How a step is computed, not what is learned.
FAST = ("recipe.precision", "recipe.channels_last", "recipe.compile", "recipe.fused")
SPEED = (*FAST, *(f"experts.{key}" for key in FAST), "trainer.")


def papers_recipes(runs: Iterable[tuple[Names, Mapping[str, Any]]]) -> list[str | None]:
    """The recipe of each run, fast or paper, if it is the paper's experiment with that recipe; else None. A run: its names, and
    the settings that can change its result."""
    left = [(names, {key: value for key, value in said.items() if not key.startswith(SPEED)}) for names, said in runs]
    found: list[str | None] = [None] * len(left)
    for recipe in RECIPES:  # one after the other: composing takes time, and few runs have the paper's recipe
        open_ones = [number for number, recipe_of_it in enumerate(found) if recipe_of_it is None]
        expected = _expected({left[number][0] for number in open_ones}, recipe)
        for number in open_ones:
            names, said = left[number]
            if names in expected and all(expected[names].get(key) == value for key, value in said.items()):
                found[number] = recipe
    return found


def _expected(wanted: Iterable[Names], recipe: str) -> dict[Names, dict[str, Any]]:
    """The settings of the paper's experiments, for those of the names that have one."""
    known, frames = groups(), {}
    for names in sorted(wanted):
        dataset, setup, experts, cost, method = names
        chosen = {"dataset": dataset, "setup": setup, "method": method, "recipe": recipe}
        if (experts, cost) in TABLES and all(name in known[group] for group, name in chosen.items()):
            experiment = f"experiment={TABLES[experts, cost]}"
            frames[names] = (experiment, *(f"{group}={name}" for group, name in chosen.items()))
    configs = compose_all(list(frames.values()), lambda overrides: _composed(tuple(overrides)))
    return {names: settings_of(check(configs[frame]).plain) for names, frame in frames.items()}
