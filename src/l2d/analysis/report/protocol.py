"""Whether a run is the paper's: only beside such a run does the paper's number belong."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from l2d.config import check, compose, groups
from l2d.config.identity import settings_of

RECIPES = ("paper", "fast")
# The experiment of conf/experiment/ for each kind of experts and cost of the paper's tables.
TABLES = {
    ("synthetic", "error"): "table1_error",
    ("synthetic", "error_plus_cost"): "table1_cost",
    ("trained", "error"): "table2_error",
    ("trained", "error_plus_cost"): "table2_cost",
}
# How a step is computed, not what is learned.
SPEED = ("recipe.precision", "recipe.channels_last", "recipe.compile", "recipe.fused")


def papers_recipe(names: Sequence[str], settings: Mapping[str, Any]) -> str | None:
    """paper or fast, if a run is the paper's experiment with that recipe; else None.

    names: its dataset, setup, experts, cost and method. settings: what can change its result.
    """
    for recipe in RECIPES:
        expected = _expected(*names, recipe)
        said = {key: value for key, value in settings.items() if not key.startswith(SPEED)}
        if expected and all(expected.get(key) == value for key, value in said.items()):
            return recipe
    return None


@cache
def _expected(dataset: str, setup: str, experts: str, cost: str, method: str, recipe: str) -> dict[str, Any]:
    """The settings of the paper's experiment; empty if it has none."""
    experiment = TABLES.get((experts, cost))
    chosen, known = {"dataset": dataset, "setup": setup, "method": method, "recipe": recipe}, groups()
    if experiment is None or any(name not in known[group] for group, name in chosen.items()):
        return {}
    given = [f"{group}={name}" for group, name in chosen.items()]
    return settings_of(check(compose([f"experiment={experiment}", *given])).plain)
