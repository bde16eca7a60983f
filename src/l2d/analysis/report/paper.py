"""A paper's numbers (by default paper.csv), and the runs that are its experiments: its numbers are shown beside these only."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from l2d.config import check, compose, groups, to_plain
from l2d.config.identity import settings_of
from l2d.utils.errors import L2DError

BLOCK = ("dataset", "setup", "experts", "cost")  # methods are compared within a block
PAPER = Path(__file__).with_name("paper.csv")
COLUMNS = ("table", *BLOCK, "method", "mean", "std", "ratios")
Names = tuple[str, ...]  # dataset, setup, experts, cost, method
# The experiment of conf/experiment/ for each kind of experts and cost of the paper's tables.
TABLES = {
    ("synthetic", "error"): "table1_error",
    ("synthetic", "error_plus_cost"): "table1_cost",
    ("trained", "error"): "table2_error",
    ("trained", "error_plus_cost"): "table2_cost",
}
_groups = cache(groups)
# How a step is computed, not what is learned.
FAST = ("recipe.precision", "recipe.channels_last", "recipe.compile", "recipe.fused")
SPEED = (*FAST, *(f"experts.{key}" for key in FAST), "trainer.")


@dataclass(frozen=True)
class PaperNumber:
    """A printed deferral loss. table: 1 to 4, rho, noise20 or extreme. ratios: the experts' shares, empty if not printed."""

    table: str
    names: Names
    mean: float
    std: float
    ratios: tuple[float, ...] = ()


@cache
def paper_numbers(file: Path = PAPER) -> tuple[PaperNumber, ...]:
    """Every printed mean, in the paper's order."""
    with file.open(newline="", encoding="utf-8") as lines:
        rows = csv.DictReader(lines)
        if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
            raise L2DError(f"{file}: no column {', '.join(missing)}; expected {','.join(COLUMNS)}")
        found = []
        for row in (row for row in rows if row["mean"]):
            names, ratios = tuple(row[key] for key in COLUMNS[1:6]), (float(x) / 100 for x in row["ratios"].split())
            found.append(PaperNumber(row["table"], names, float(row["mean"]), float(row["std"]), tuple(ratios)))
        return tuple(found)


def paper_blocks(file: Path = PAPER) -> set[tuple[str, ...]]:
    """The (dataset, setup, experts, cost) with numbers in the paper. Those with trained experts are also run with synthetic ones:
    Table 4 cannot have been made with trained ones, so it is tried both ways."""
    printed = {number.names[:4] for number in paper_numbers(file)}
    return printed | {(*names[:2], "synthetic", names[3]) for names in printed if names[2] == "trained"}


@cache
def paper_results(file: Path = PAPER) -> dict[Names, PaperNumber]:
    """The numbers of Tables 1 to 4. The first table to give a cell counts."""
    return {number.names: number for number in reversed(paper_numbers(file)) if number.table.isdigit()}


def papers_recipe(names: Names, settings: Mapping[str, Any]) -> str | None:
    """fast or paper; None for a run that is not the paper's. settings: those that can change its result."""
    said = {key: value for key, value in settings.items() if not key.startswith(SPEED)}
    for recipe in ("fast", "paper"):  # composing takes time, and few runs have the paper's recipe
        known = _expected(names, recipe)
        if known is not None and all(known.get(key) == value for key, value in said.items()):
            return recipe
    return None


@cache
def _expected(names: Names, recipe: str) -> dict[str, Any] | None:
    """The settings of the paper's experiment; None without one."""
    dataset, setup, experts, cost, method = names
    chosen = {"dataset": dataset, "setup": setup, "method": method, "recipe": recipe}
    if (experts, cost) not in TABLES or any(name not in _groups()[group] for group, name in chosen.items()):
        return None
    frame = [f"experiment={TABLES[experts, cost]}", *(f"{group}={name}" for group, name in chosen.items())]
    return settings_of(check(to_plain(compose(frame))).plain)
