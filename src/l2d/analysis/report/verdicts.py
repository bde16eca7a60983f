"""Verdicts on the paper's numbers, as a page: its losses, the order of MILD and TDEF, the experts' shares."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from l2d.analysis.report import averages
from l2d.analysis.report.averages import Interval, Losses, interval_of, mean_columns, mean_std
from l2d.analysis.report.compare import FEW
from l2d.analysis.report.paper import PAPER, Names, PaperNumber, paper_blocks, paper_numbers, papers_recipe
from l2d.analysis.report.read import FinishedCell
from l2d.analysis.report.tables import Titles, interval_text, titled, with_std
from l2d.utils.text import counted, markdown

PAPER_RUNS = 5  # "mean ± standard deviation over five runs"
MARGIN = 0.1  # of what the paper's router loses to the oracle: so near is reproduced
ALIKE = 0.05  # of the rows: shares that differ in so few are alike
RECIPES = ("paper", "fast")
JUDGED = ("reproduced", "not reproduced", "undecided", "few seeds")
VERDICTS = (*JUDGED, "other recipe", "not run", "not reproducible")
METHODS = ("tdef", "mild")
ORDERS = ("same order", "reversed", "open")
RULE = f"""**The rule.** A number is judged only by runs with the paper's recipe. *Reproduced*: the 90 % interval of our mean minus
the paper's lies within {MARGIN:.0%} of what the paper's router loses to the oracle (two one-sided tests at 5 %). *Not reproduced*:
it lies outside. Else *undecided*. Runs with `recipe=fast` are shown, not judged. Two things are compared across recipes: the
*order*, which is the sign of MILD − TDEF (open if the 95 % interval has 0 in it), and the experts' *shares*, alike if at most
{ALIKE:.0%} of the rows would have to go elsewhere. An interval covers other seeds and other test rows: a mixed model with random
seeds and rows (Satterthwaite). A difference with \\* covers seeds only: the costs of its test rows were not kept. To judge a number
without them, they get the largest variance that they can have."""
TITLES = {"paper": "paper's recipe", "fast": "recipe=fast"}


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


Runs = Mapping[tuple[Names, str], Measured]  # by names and recipe


def by_names(measured: Iterable[Measured]) -> Runs:
    """If runs differ in speed alone, those with the most seeds count."""
    return {(one.names, one.recipe): one for one in sorted(measured, key=lambda one: len(one.losses))}


def verdict(number: PaperNumber, runs: Runs) -> str:
    if ours := runs.get((number.names, "paper")):
        return "few seeds" if len(ours.losses) < FEW else judge(number, ours)
    if (number.names, "fast") in runs:
        return "other recipe"
    return "not reproducible" if number.names[2] == "llm" else "not run"


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
    _, low, high = interval_of(mean - number.mean, [*parts, papers_variance(number)], level=0.9)
    if -margin <= low and high <= margin:
        return "reproduced"
    return "not reproduced" if low > margin or high < -margin else "undecided"


def papers_variance(number: PaperNumber) -> tuple[float, float]:
    """The variance of the printed mean, and its degrees of freedom."""
    return number.std**2 / PAPER_RUNS, PAPER_RUNS - 1.0


@dataclass(frozen=True)
class CellVerdict:
    """TDEF and MILD in one cell of the paper (dataset, setup, experts, cost). numbers: the paper's, by method, perhaps none."""

    cell: Names
    numbers: Mapping[str, PaperNumber]
    runs: Runs

    def ours(self, recipe: str, method: str) -> Measured | None:
        return self.runs.get(((*self.cell, method), recipe))

    @property
    def papers_difference(self) -> Interval | None:
        """MILD − TDEF, with the interval that follows from the paper's standard deviations."""
        if not all(method in self.numbers for method in METHODS):
            return None
        tdef, mild = (self.numbers[method] for method in METHODS)
        return interval_of(mild.mean - tdef.mean, [papers_variance(tdef), papers_variance(mild)])

    def difference(self, recipe: str) -> Interval | None:
        """MILD − TDEF with one recipe; None without both, or with too few seeds."""
        tdef, mild = (self.ours(recipe, method) for method in METHODS)
        if tdef is None or mild is None or len(tdef.losses.keys() & mild.losses.keys()) < FEW:
            return None
        return averages.paired_interval(mild.losses, tdef.losses)

    def rows_known(self, recipe: str) -> bool:
        """True if the interval of the difference covers other test rows."""
        return all(ours.rows_known for method in METHODS if (ours := self.ours(recipe, method)))

    def order(self, recipe: str) -> str | None:
        """One of ORDERS: the sign of MILD − TDEF against the paper's, open if the interval has both."""
        paper, ours = self.papers_difference, self.difference(recipe)
        if paper is None or ours is None:
            return None
        if ours[1] <= 0 <= ours[2]:
            return "open"
        return "same order" if (ours[0] < 0) == (paper[0] < 0) else "reversed"

    def apart_from_paper(self, recipe: str, method: str) -> float | None:
        """The distance of our shares from the paper's."""
        ours, paper = self.ours(recipe, method), self.numbers.get(method)
        alike = ours and paper and len(paper.ratios) == len(ours.ratios)
        return distance(ours.ratios, paper.ratios) if ours and paper and alike else None


def measured_in(cells: Iterable[FinishedCell], file: Path = PAPER) -> list[Measured]:
    """The cells that are the paper's experiments, with any method."""
    blocks = paper_blocks(file)
    wanted = [cell for cell in cells if cell.runs and cell.block in blocks and not cell.tuned]
    return [measure(cell, recipe) for cell in wanted if (recipe := papers_recipe(cell.names[:5], cell.settings))]


def measure(cell: FinishedCell, recipe: str) -> Measured:
    runs = cell.runs.values()
    oracles, ratios = [one for run in runs if (one := run.baselines.oracle)], mean_columns(run.ratios for run in runs)
    least = statistics.fmean(one.deferral_loss for one in oracles) if oracles else 0.0
    oracle = (least, mean_columns(one.ratios for one in oracles)) if oracles else None
    return Measured(cell.names[:5], recipe, cell.losses[0], ratios, oracle, min(run.rows.test for run in runs))


def cell_verdicts(measured: Sequence[Measured], file: Path = PAPER) -> list[CellVerdict]:
    """One for each cell of the image tables, in the paper's order; then the other cells that were run."""
    printed: dict[Names, dict[str, PaperNumber]] = defaultdict(dict)
    for number in paper_numbers(file):
        if number.names[2] != "llm":
            printed[number.names[:4]][number.names[4]] = number
    runs, others = by_names(measured), sorted({one.names[:4] for one in measured} - printed.keys())
    return [CellVerdict(cell, printed.get(cell, {}), runs) for cell in [*printed, *others]]


def distance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The share of the rows that would have to go elsewhere to make two lists of shares equal."""
    return sum(abs(one - other) for one, other in zip(ours, theirs, strict=True)) / 2


def verdicts_page(measured: Sequence[Measured], titles: Titles, file: Path = PAPER) -> str:
    """file: the paper's numbers."""
    cells = cell_verdicts(measured, file)
    parts = [*summary(measured, cells, file), RULE, "## Every number", numbers_table(cells, titles)]
    parts += ["## The experts' shares", shares_table(cells, titles)]
    return "\n\n".join(parts) + "\n"


def summary(measured: Sequence[Measured], cells: Sequence[CellVerdict], file: Path = PAPER) -> list[str]:
    found, runs = paper_numbers(file), by_names(measured)
    words = Counter(verdict(number, runs) for number in found)
    judged = [f"{words[word]} {word}" for word in JUDGED if words[word] or word == "reproduced"]
    rest = ", ".join(f"{words[word]} {word}" for word in VERDICTS if words[word] and word not in JUDGED)
    told = f"With its recipe: {', '.join(judged)}. Not judged: {rest or 'none'}."
    paragraphs = [tell(cells, recipe) for tell in (order_summary, shares_summary) for recipe in RECIPES]
    return [f"**Numbers.** The paper prints {len(found)} deferral losses. {told}", *filter(None, paragraphs)]


def order_summary(cells: Sequence[CellVerdict], recipe: str) -> str:
    """Empty if there are none."""
    orders = Counter(order for cell in cells if (order := cell.order(recipe)))
    if not (total := orders.total()):
        return ""
    said = ", ".join(f"{word} in {orders[word]}" for word in ORDERS)
    chance = f"If nothing differed, about {0.05 * total:.1f} of {total} intervals would exclude 0 by chance."
    return f"**Order, {TITLES[recipe]}.** MILD − TDEF in {counted(total, 'cell')}: {said}. {chance}"


def shares_summary(cells: Sequence[CellVerdict], recipe: str) -> str:
    all_of_them = (cell.apart_from_paper(recipe, method) for cell in cells for method in METHODS)
    apart = [share for share in all_of_them if share is not None]
    if not apart:
        return ""
    text = f"**Shares, {TITLES[recipe]}.** Alike in {sum(one <= ALIKE for one in apart)} of {len(apart)} rows"
    text += " of the paper's tables."
    pairs = [[cell.ours(recipe, method) for method in METHODS] for cell in cells if cell.numbers]
    known = [[distance(one.ratios, one.oracle[1]) for one in pair if one and one.oracle] for pair in pairs]
    if nearer := [far[1] < far[0] for far in known if len(far) == len(METHODS)]:
        share = f"{sum(nearer)} of {counted(len(nearer), 'cell')}"
        text += f" MILD's shares are nearer to the oracle's than TDEF's in {share}."
    return text


def numbers_table(cells: Sequence[CellVerdict], titles: Titles) -> str:
    recipes = [recipe for recipe in RECIPES if any(known == recipe for cell in cells for _, known in cell.runs)]
    head = ["cell", "cost", "TDEF, paper", "MILD, paper", "MILD − TDEF, paper"]
    for recipe in recipes:
        head += [f"TDEF, {TITLES[recipe]}", f"MILD, {TITLES[recipe]}", "MILD − TDEF, 95 %", "order"]
    lines = []
    for cell in cells:
        paper = [cell.numbers.get(method) for method in METHODS]
        line = place(cell, titles) + [with_std(one.mean, one.std) if one else "" for one in paper]
        line.append(interval_text(cell.papers_difference))
        for recipe in recipes:
            line += [loss_text(cell, recipe, method) for method in METHODS]
            seeds_alone = "" if (found := cell.difference(recipe)) is None or cell.rows_known(recipe) else " \\*"
            line += [interval_text(found) + seeds_alone, cell.order(recipe) or ""]
        lines.append(line)
    return markdown(head, lines)


def place(cell: CellVerdict, titles: Titles) -> list[str]:
    dataset, setup, experts, cost = cell.cell
    return [f"{titled(titles, 'dataset', dataset)} {setup} {experts}", cost.replace("_", " ")]


def loss_text(cell: CellVerdict, recipe: str, method: str) -> str:
    ours = cell.ours(recipe, method)
    if ours is None:
        return ""
    seeds = f" ({len(ours.losses)})" if len(ours.losses) != 3 else ""
    word = f" {verdict(cell.numbers[method], cell.runs)}" if recipe == "paper" and method in cell.numbers else ""
    return f"{with_std(*mean_std([float(np.mean(loss)) for loss in ours.losses.values()]))}{seeds}{word}"


def shares_table(cells: Sequence[CellVerdict], titles: Titles) -> str:
    """A line for each row of shares in the paper, in percent."""
    head = ["cell", "cost", "method", "paper", "ours", "recipe", "elsewhere", "oracle", "to the oracle"]
    lines = []
    for cell, recipe, method in product(cells, RECIPES, METHODS):
        ours, apart = cell.ours(recipe, method), cell.apart_from_paper(recipe, method)
        if ours is not None and apart is not None:
            best = ours.oracle[1] if ours.oracle else ()
            nearness = f"{distance(ours.ratios, best):.1%}" if best else ""
            shown = [percents(cell.numbers[method].ratios), percents(ours.ratios), recipe, f"{apart:.1%}"]
            lines.append([*place(cell, titles), method, *shown, percents(best), nearness])
    return markdown(head, lines)


def percents(shares: Sequence[float]) -> str:
    return " ".join(f"{100 * share:.1f}" for share in shares)
