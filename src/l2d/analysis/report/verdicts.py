"""Every number that the paper prints, what runs have beside it, and a verdict by one rule."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from l2d.analysis.report.averages import mean_std, paired_interval
from l2d.analysis.report.compare import FEW, losses_of
from l2d.analysis.report.paper import Claim, PaperNumber, paper_blocks, paper_claims, paper_numbers
from l2d.analysis.report.protocol import papers_recipes
from l2d.analysis.report.read import FinishedCell
from l2d.analysis.report.tables import interval_text, titled, with_std
from l2d.utils.text import counted

PAPER_RUNS = 5  # "mean ± standard deviation over five runs"
NEAR = 0.05  # of the paper's number: so near counts as reproduced, however small the standard errors
VERDICTS = ("reproduced", "better", "worse", "few seeds", "not reproducible", "not run")
RULE = (
    "The rule: our mean over seeds is compared with the paper's. *Reproduced* means that they differ by at most two standard errors"
    f" of the difference, or by at most {NEAR:.0%} of the paper's number. Otherwise ours is *better* (less loss) or *worse*. Fewer"
    f" than {FEW} seeds give no verdict. Runs with the paper's recipe are judged if there are any, else runs with ours. A *cell* is"
    " a dataset with a setup, a kind of experts and a cost. Its best method has the least validation loss; the number is its test"
    " loss. *Not reproducible*: the experiments with language models use 6,000 questions of two MMLU subjects, but these have only"
    " 507."
)


@dataclass(frozen=True)
class Measured:
    """Test and validation deferral losses by seed, of the paper's experiment with one recipe: paper or fast."""

    names: tuple[str, ...]  # dataset, setup, experts, cost, method
    recipe: str
    test: dict[int, float] = field(default_factory=dict)
    validation: dict[int, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.test.values())

    @property
    def std(self) -> float:
        return statistics.stdev(self.test.values()) if len(self.test) > 1 else 0.0


@dataclass(frozen=True)
class PaperVerdict:
    """by_recipe: our results for the number. best: the method of the cell with the least validation loss."""

    number: PaperNumber
    by_recipe: Mapping[str, Measured]
    best: Measured | None

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
    blocks, found = paper_blocks(), []
    wanted = [cell for cell in cells if cell.runs and cell.block in blocks and not cell.tuned]
    recipes = papers_recipes((cell.names[:5], cell.settings) for cell in wanted)
    for cell, recipe in zip(wanted, recipes, strict=True):
        if recipe is not None:
            validation = {seed: run.validation.deferral_loss for seed, run in cell.runs.items()}
            found.append(Measured(cell.names[:5], recipe, losses_of(cell), validation))
    return found


def verdicts(measured: Sequence[Measured]) -> list[PaperVerdict]:
    """One for each number of the paper, in its order."""
    by_names: dict[tuple[str, ...], dict[str, Measured]] = defaultdict(dict)
    by_cell: dict[tuple[str, ...], list[Measured]] = defaultdict(list)
    for one in sorted(measured, key=lambda one: len(one.test)):  # if runs differ in speed alone, the most seeds count
        by_names[one.names][one.recipe] = one
        by_cell[one.names[:4]].append(one)
    numbers = [(number, number.names) for number in paper_numbers()]
    found = ((number, by_names.get(names, {}), by_cell.get(names[:4], ())) for number, names in numbers)
    return [PaperVerdict(number, by_recipe, _best(rivals)) for number, by_recipe, rivals in found]


def _best(rivals: Iterable[Measured]) -> Measured | None:
    whole = [one for one in rivals if one.validation and len(one.test) >= FEW]
    return min(whole, key=lambda one: statistics.fmean(one.validation.values()), default=None)


def verdicts_page(measured: Sequence[Measured], titles: Mapping[str, Mapping[str, str]]) -> str:
    """Markdown: a summary, each number of the tables, MILD against TDEF, and the paper's other claims."""
    found = verdicts(measured)
    counts = {word: sum(one.word == word for one in found) for word in VERDICTS}
    summary = ", ".join(f"{number} {word}" for word, number in counts.items() if number)
    parts = [
        f"The paper prints {len(found)} deferral losses. {summary[0].upper()}{summary[1:]}.",
        RULE,
        "## MILD against TDEF",
        _against_tdef(measured, titles),
        "## Every number",
        _numbers(found, titles),
        "## Theorems, lemmas and claims",
        _claims(paper_claims()),
    ]
    return "\n\n".join(parts) + "\n"


def _numbers(found: Sequence[PaperVerdict], titles: Mapping[str, Mapping[str, str]]) -> str:
    lines = [
        "| table | dataset | setup | experts | cost | method | paper | ours, paper's recipe (seeds) | ours, recipe=fast"
        " (seeds) | verdict | best method |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        number = one.number
        dataset, setup, experts, cost, method = number.names
        shown = [_shown(one.by_recipe.get(recipe)) for recipe in ("paper", "fast")]
        row = [number.table, titled(titles, "dataset", dataset), setup, experts, cost.replace("_", " "), method]
        row += [f"{number.mean:.4f} ± {number.std:.4f}", *shown, one.word, _named(one.best)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def _against_tdef(measured: Sequence[Measured], titles: Mapping[str, Mapping[str, str]]) -> str:
    """The difference between the two in each cell that has both, paired over seeds."""
    lines = [
        "| dataset | setup | experts | cost | recipe | paper: mild − tdef | tdef | mild | mild − tdef, 95 % | what it says"
        " | best method |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    printed = {number.names: number.mean for number in paper_numbers()}
    ours = {(one.names, one.recipe): one for one in sorted(measured, key=lambda one: len(one.test))}
    blocks = dict.fromkeys([*(names[:4] for names in printed), *sorted(one.names[:4] for one in measured)])
    differences = []
    for block, recipe in product(blocks, ("paper", "fast")):
        mild, tdef = (ours.get(((*block, method), recipe)) for method in ("mild", "tdef"))
        if mild is None or tdef is None or len(mild.test.keys() & tdef.test.keys()) < FEW:
            continue
        interval = paired_interval(mild.test, tdef.test)
        assert interval is not None
        differences.append(interval)
        _, low, high = interval
        says = "MILD is better" if high < 0 else "TDEF is better" if low > 0 else "no significant difference"
        theirs = [printed[names] for names in (mild.names, tdef.names) if names in printed]
        row = [titled(titles, "dataset", block[0]), block[1], block[2], block[3].replace("_", " "), recipe]
        row += [f"{theirs[0] - theirs[1]:+.4f}" if len(theirs) == 2 else "", f"{tdef.mean:.4f}", f"{mild.mean:.4f}"]
        row += [interval_text(interval), says]
        row.append(_named(_best(one for one in measured if (one.names[:4], one.recipe) == (block, recipe))))
        lines.append(f"| {' | '.join(row)} |")
    if not differences:
        return f"No cell has both with the same recipe and {FEW} common seeds."
    fewer = sum(less < 0 for less, _, _ in differences)
    surely, surely_more = sum(high < 0 for _, _, high in differences), sum(low > 0 for _, low, _ in differences)
    summary = (
        f"MILD has less loss than TDEF in {fewer} of {counted(len(differences), 'cell')}, in {surely} of them significantly. It has"
        f" significantly more in {surely_more}. Of 40 intervals of 95 %, two exclude 0 by chance."
    )
    return summary + "\n\n" + "\n".join(lines)


def _named(best: Measured | None) -> str:
    return "" if best is None else f"{best.names[4]} {best.mean:.4f}"


def _claims(claims: Sequence[Claim]) -> str:
    lines = ["| where | what the paper says | verdict | why |", "|---|---|---|---|"]
    rows = ([text.replace("|", r"\|") for text in (one.where, one.says, one.verdict, one.why)] for one in claims)
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _shown(one: Measured | None) -> str:
    return "" if one is None else f"{with_std(*mean_std([*one.test.values()]))} ({len(one.test)})"
