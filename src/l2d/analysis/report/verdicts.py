"""Every number that the paper prints, what runs have beside it, and a verdict by one rule."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from l2d.analysis.report.averages import mean_std
from l2d.analysis.report.compare import FEW, losses_of
from l2d.analysis.report.paper import Names, PaperNumber, paper_blocks, paper_numbers, papers_recipes
from l2d.analysis.report.read import FinishedCell
from l2d.analysis.report.tables import titled, with_std
from l2d.utils.text import markdown

PAPER_RUNS = 5  # "mean ± standard deviation over five runs"
NEAR = 0.05  # of the paper's number: so near counts as reproduced, however small the standard errors
VERDICTS = ("reproduced", "better", "worse", "few seeds", "not reproducible", "not run")
RULE = (
    "The rule: our mean over seeds is compared with the paper's. *Reproduced* means that they differ by at most two standard errors"
    f" of the difference, or by at most {NEAR:.0%} of the paper's number. Otherwise ours is *better* (less loss) or *worse*. Fewer"
    f" than {FEW} seeds give no verdict. Runs with the paper's recipe are judged if there are any, else runs with ours."
    " *Not reproducible*: the experiments with language models use 6,000 questions of two MMLU subjects, but these have only"
    " 507."
)
HEAD = ["table", "dataset", "setup", "experts", "cost", "method", "paper"]
HEAD += ["ours, paper's recipe (seeds)", "ours, recipe=fast (seeds)", "verdict"]


@dataclass(frozen=True)
class Measured:
    """Test deferral losses by seed, of the paper's experiment with one recipe: paper or fast."""

    names: Names
    recipe: str
    test: dict[int, float]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.test.values())

    @property
    def std(self) -> float:
        return statistics.stdev(self.test.values()) if len(self.test) > 1 else 0.0


@dataclass(frozen=True)
class PaperVerdict:
    """by_recipe: our results for the number."""

    number: PaperNumber
    by_recipe: Mapping[str, Measured]

    @property
    def judged(self) -> Measured | None:
        return self.by_recipe.get("paper") or self.by_recipe.get("fast")

    @property
    def word(self) -> str:
        ours = self.judged
        if ours is None:
            return "not reproducible" if self.number.names[2] == "llm" else "not run"
        if len(ours.test) < FEW:
            return "few seeds"
        apart = ours.mean - self.number.mean
        error = math.sqrt(self.number.std**2 / PAPER_RUNS + ours.std**2 / len(ours.test))
        if abs(apart) <= max(2 * error, NEAR * self.number.mean):
            return "reproduced"
        return "better" if apart < 0 else "worse"


def measured_in(cells: Iterable[FinishedCell]) -> list[Measured]:
    """The cells that are the paper's experiments, with any method."""
    blocks = paper_blocks()
    wanted = [cell for cell in cells if cell.runs and cell.block in blocks and not cell.tuned]
    recipes = papers_recipes((cell.names[:5], cell.settings) for cell in wanted)
    pairs = zip(wanted, recipes, strict=True)
    return [Measured(cell.names[:5], recipe, losses_of(cell)) for cell, recipe in pairs if recipe is not None]


def verdicts(measured: Sequence[Measured]) -> list[PaperVerdict]:
    """One for each number of the paper, in its order."""
    by_names: dict[Names, dict[str, Measured]] = defaultdict(dict)
    for one in sorted(measured, key=lambda one: len(one.test)):  # if runs differ in speed alone, the most seeds count
        by_names[one.names][one.recipe] = one
    return [PaperVerdict(number, by_names.get(number.names, {})) for number in paper_numbers()]


def verdicts_page(measured: Sequence[Measured], titles: Mapping[str, Mapping[str, str]]) -> str:
    """Markdown: a summary, and each number of the paper."""
    found = verdicts(measured)
    counts = {word: sum(one.word == word for one in found) for word in VERDICTS}
    summary = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    rows = []
    for one in found:
        dataset, setup, experts, cost, method = one.number.names
        names = [one.number.table, titled(titles, "dataset", dataset), setup, experts, cost.replace("_", " "), method]
        shown = [_shown(one.by_recipe.get(recipe)) for recipe in ("paper", "fast")]
        rows.append([*names, with_std(one.number.mean, one.number.std), *shown, one.word])
    return f"The paper prints {len(found)} deferral losses: {summary}.\n\n{RULE}\n\n{markdown(HEAD, rows)}\n"


def _shown(one: Measured | None) -> str:
    return "" if one is None else f"{with_std(*mean_std([*one.test.values()]))} ({len(one.test)})"
