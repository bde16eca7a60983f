"""Verdicts on the paper's numbers: its losses, the order of MILD and TDEF, the experts' shares."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from l2d.analysis.report import averages
from l2d.analysis.report.averages import Interval, Losses, interval_of, mean_columns, mean_std
from l2d.analysis.report.compare import FEW
from l2d.analysis.report.paper import PAPER, Names, PaperNumber, paper_blocks, paper_numbers, papers_recipes
from l2d.analysis.report.read import FinishedCell

PAPER_RUNS = 5  # "mean ± standard deviation over five runs"
MARGIN = 0.1  # of what the paper's router loses to the oracle: so near is reproduced
ALIKE = 0.05  # of the rows: shares that differ in so few are alike
RECIPES = ("paper", "fast")
JUDGED = ("reproduced", "not reproduced", "undecided", "few seeds")
VERDICTS = (*JUDGED, "other recipe", "not run", "not reproducible")
METHODS = ("tdef", "mild")
ORDERS = ("same order", "reversed", "open")


@dataclass(frozen=True)
class Measured:
    """Runs of the paper's experiment with one recipe, paper or fast. losses: on the test rows. ratios: mean shares of the experts.
    oracle: its mean loss, and its shares; None if not known. tested: the number of test rows."""

    names: Names
    recipe: str
    losses: Losses
    ratios: Sequence[float]
    oracle: tuple[float, Sequence[float]] | None = None
    tested: int = 0

    @property
    def rows_known(self) -> bool:
        return all(getattr(loss, "ndim", 0) for loss in self.losses.values())

    @property
    def mean_std(self) -> tuple[float, float | None]:
        return mean_std([float(np.mean(loss)) for loss in self.losses.values()])


@dataclass(frozen=True)
class PaperVerdict:
    """A number of the paper, and our results for it by recipe."""

    number: PaperNumber
    by_recipe: Mapping[str, Measured]

    @cached_property
    def word(self) -> str:
        if ours := self.by_recipe.get("paper"):
            return "few seeds" if len(ours.losses) < FEW else judge(self.number, ours)
        if self.by_recipe:
            return "other recipe"
        return "not reproducible" if self.number.names[2] == "llm" else "not run"


def judge(number: PaperNumber, ours: Measured) -> str:
    """Two one-sided tests at 5 %: reproduced if the 90 % interval of our mean minus the paper's lies within the margin, not
    reproduced if it lies outside, else undecided. What the oracle pays no router can save, so the margin is a part of the rest. If
    the costs of test rows are not known, theirs is the largest variance that costs between 0 and 1 (2 with prices) can have."""
    oracle = 0.0 if ours.oracle is None else ours.oracle[0]
    margin = MARGIN * max(number.mean - oracle, 0.0)
    mean, parts = averages.mean_and_variances(np.stack([np.atleast_1d(loss) for loss in ours.losses.values()]))
    if not ours.rows_known and ours.tested > 1:
        most = 1 if number.names[3] == "error" else 2
        parts.append((max(mean * (most - mean), 0.0) / ours.tested, ours.tested - 1.0))
    paper = (number.std**2 / PAPER_RUNS, PAPER_RUNS - 1.0)
    _, low, high = interval_of(mean - number.mean, [*parts, paper], level=0.9)
    if -margin <= low and high <= margin:
        return "reproduced"
    return "not reproduced" if low > margin or high < -margin else "undecided"


@dataclass(frozen=True)
class CellVerdict:
    """TDEF and MILD in one cell of the paper (dataset, setup, experts, cost); numbers: the paper's, empty if it has none."""

    cell: Names
    numbers: Mapping[str, PaperVerdict]
    by_recipe: Mapping[str, Mapping[str, Measured]]

    def ours(self, recipe: str, method: str) -> Measured | None:
        return self.by_recipe.get(recipe, {}).get(method)

    @property
    def papers_difference(self) -> Interval | None:
        """MILD − TDEF, with the interval that follows from the paper's standard deviations."""
        if not all(method in self.numbers for method in METHODS):
            return None
        tdef, mild = (self.numbers[method].number for method in METHODS)
        parts = [(one.std**2 / PAPER_RUNS, PAPER_RUNS - 1.0) for one in (tdef, mild)]
        return interval_of(mild.mean - tdef.mean, parts)

    def difference(self, recipe: str) -> Interval | None:
        """MILD − TDEF with one recipe; None without both, or with too few seeds."""
        tdef, mild = (self.ours(recipe, method) for method in METHODS)
        if tdef is None or mild is None or len(tdef.losses.keys() & mild.losses.keys()) < FEW:
            return None
        return averages.paired_interval(mild.losses, tdef.losses)

    def rows_known(self, recipe: str) -> bool:
        """True if the interval of the difference covers other test rows."""
        return all(self.by_recipe[recipe][method].rows_known for method in METHODS)

    def order(self, recipe: str) -> str | None:
        """One of ORDERS: the sign of MILD − TDEF against the paper's, open if the interval has both."""
        paper, ours = self.papers_difference, self.difference(recipe)
        if paper is None or ours is None:
            return None
        if ours[1] <= 0 <= ours[2]:
            return "open"
        return "same order" if (ours[0] < 0) == (paper[0] < 0) else "reversed"


def measured_in(cells: Iterable[FinishedCell], file: Path = PAPER) -> list[Measured]:
    """The cells that are the paper's experiments, with any method."""
    blocks = paper_blocks(file)
    wanted = [cell for cell in cells if cell.runs and cell.block in blocks and not cell.tuned]
    recipes = papers_recipes((cell.names[:5], cell.settings) for cell in wanted)
    return [
        Measured(
            cell.names[:5],
            recipe,
            cell.losses[0],
            mean_columns(run.ratios for run in cell.runs.values()),
            oracle_of(cell),
            min(run.rows.test for run in cell.runs.values()),
        )
        for cell, recipe in zip(wanted, recipes, strict=True)
        if recipe is not None
    ]


def oracle_of(cell: FinishedCell) -> tuple[float, Sequence[float]] | None:
    found = [run.baselines.oracle for run in cell.runs.values() if run.baselines.oracle is not None]
    if not found:
        return None
    return statistics.fmean(one.deferral_loss for one in found), mean_columns(one.ratios for one in found)


def verdicts(measured: Sequence[Measured], file: Path = PAPER) -> list[PaperVerdict]:
    """One for each number of the paper, in its order."""
    by_names: dict[Names, dict[str, Measured]] = defaultdict(dict)
    for one in sorted(measured, key=lambda one: len(one.losses)):  # if runs differ in speed alone, the most seeds count
        by_names[one.names][one.recipe] = one
    return [PaperVerdict(number, by_names.get(number.names, {})) for number in paper_numbers(file)]


def cell_verdicts(measured: Sequence[Measured], file: Path = PAPER) -> list[CellVerdict]:
    """One for each cell of the image tables, in the paper's order; then the other cells that were run."""
    numbers: dict[Names, dict[str, PaperVerdict]] = defaultdict(dict)
    for found in verdicts(measured, file):
        if found.number.names[2] != "llm":
            numbers[found.number.names[:4]][found.number.names[4]] = found
    ran: dict[Names, dict[str, dict[str, Measured]]] = defaultdict(lambda: defaultdict(dict))
    for one in sorted(measured, key=lambda one: len(one.losses)):
        ran[one.names[:4]][one.recipe][one.names[4]] = one
    cells = dict.fromkeys([*numbers, *sorted(ran)])
    return [CellVerdict(cell, numbers.get(cell, {}), ran.get(cell, {})) for cell in cells]


def distance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The share of the rows that would have to go elsewhere to make two lists of shares equal."""
    return sum(abs(one - other) for one, other in zip(ours, theirs, strict=True)) / 2
