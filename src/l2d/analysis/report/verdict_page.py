"""The page of verdicts in Markdown: a summary, the rule, every number of the paper, and the experts' shares."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from l2d.analysis.report import verdicts
from l2d.analysis.report.paper import PAPER
from l2d.analysis.report.tables import interval_text, titled, with_std
from l2d.analysis.report.verdicts import ALIKE, MARGIN, METHODS, RECIPES, CellVerdict, Measured, cell_verdicts, distance
from l2d.utils.errors import L2DError
from l2d.utils.text import counted, markdown

RULE = f"""**The rule.** A number is judged only by runs with the paper's recipe. *Reproduced*: the 90 % interval of our mean minus
the paper's lies within {MARGIN:.0%} of what the paper's router loses to the oracle (two one-sided tests at 5 %). *Not reproduced*:
it lies outside. Else *undecided*. Runs with `recipe=fast` are shown, not judged. Two things are compared across recipes: the
*order*, which is the sign of MILD − TDEF (open if the 95 % interval has 0 in it), and the experts' *shares*, alike if at most
{ALIKE:.0%} of the rows would have to go elsewhere. An interval covers other seeds and other test rows: a mixed model with random
seeds and rows (Satterthwaite). A difference with \\* covers seeds only: the costs of its test rows were not kept. To judge a number
without them, they get the largest variance that they can have."""
TITLES = {"paper": "paper's recipe", "fast": "recipe=fast"}
Titles = Mapping[str, Mapping[str, str]]


def verdicts_page(measured: Sequence[Measured], titles: Titles, file: Path = PAPER) -> str:
    """file: the paper's numbers."""
    cells = cell_verdicts(measured, file)
    parts = [*summary(measured, cells, file), RULE, "## Every number", numbers_table(cells, titles)]
    parts += ["## The experts' shares", shares_table(cells, titles)]
    return "\n\n".join(parts) + "\n"


def summary(measured: Sequence[Measured], cells: Sequence[CellVerdict], file: Path = PAPER) -> list[str]:
    """The numbers, the orders, the shares: a paragraph each."""
    found = verdicts.verdicts(measured, file)
    words = Counter(one.word for one in found)
    judged = [f"{words[word]} {word}" for word in verdicts.JUDGED if words[word]]
    if judged and not words["reproduced"]:
        judged.insert(0, "0 reproduced")
    rest = ", ".join(
        f"{words[word]} {word}" for word in verdicts.VERDICTS if words[word] and word not in verdicts.JUDGED
    )
    printed = "1 deferral loss" if len(found) == 1 else f"{len(found)} deferral losses"
    lines = [
        f"**Numbers.** The paper prints {printed}. With its recipe: {', '.join(judged) or 'none'}. Not judged: {rest or 'none'}."
    ]
    for recipe in RECIPES:
        orders = Counter(order for cell in cells if (order := cell.order(recipe)))
        if total := sum(orders.values()):
            said = ", ".join(f"{word} in {orders[word]}" for word in verdicts.ORDERS)
            lines.append(
                f"**Order, {TITLES[recipe]}.** MILD − TDEF in {counted(total, 'cell')}: {said}. If nothing differed, about"
                f" {0.05 * total:.1f} of {total} intervals would exclude 0 by chance.{seeds_only(cells, recipe)}"
            )
    lines += [text for recipe in RECIPES if (text := shares_summary(cells, recipe))]
    return lines


def seeds_only(cells: Sequence[CellVerdict], recipe: str) -> str:
    """How the orders come about whose intervals do not cover other test rows."""
    compared = [(order, cell.rows_known(recipe)) for cell in cells if (order := cell.order(recipe))]
    orders = Counter(order for order, known in compared if not known)
    if not (total := sum(orders.values())):
        return ""
    if total == len(compared):
        return " All of these intervals cover seeds only."
    said = ", ".join(f"{word} in {orders[word]}" for word in verdicts.ORDERS if orders[word])
    return f" The intervals of {counted(total, 'cell')} cover seeds only: {said}."


def shares_summary(cells: Sequence[CellVerdict], recipe: str) -> str:
    all_of_them = (apart_from_paper(cell, recipe, method) for cell in cells for method in METHODS)
    apart = [share for share in all_of_them if share is not None]
    if not apart:
        return ""
    alike = sum(one <= ALIKE for one in apart)
    text = f"**Shares, {TITLES[recipe]}.** Alike in {alike} of {len(apart)} rows of the paper's tables."
    if nearer := [ahead for cell in cells if (ahead := mild_is_nearer(cell, recipe)) is not None]:
        text += (
            f" MILD's shares are nearer to the oracle's than TDEF's in {sum(nearer)} of {counted(len(nearer), 'cell')}."
        )
    return text


def apart_from_paper(cell: CellVerdict, recipe: str, method: str) -> float | None:
    ours, paper = cell.ours(recipe, method), cell.numbers.get(method)
    if not (ours and paper and paper.number.ratios):
        return None
    if len(ours.ratios) != len(shares := paper.number.ratios):
        raise L2DError(
            f"paper.csv: {'/'.join(ours.names)}: {len(shares)} shares, but the runs have {len(ours.ratios)} experts"
        )
    return distance(ours.ratios, shares)


def mild_is_nearer(cell: CellVerdict, recipe: str) -> bool | None:
    """None if the paper has no such cell, a method was not run, or the oracle is not known."""
    tdef, mild = (cell.ours(recipe, method) for method in METHODS)
    if not cell.numbers or tdef is None or mild is None or tdef.oracle is None or mild.oracle is None:
        return None
    return distance(mild.ratios, mild.oracle[1]) < distance(tdef.ratios, tdef.oracle[1])


def numbers_table(cells: Sequence[CellVerdict], titles: Titles) -> str:
    """A line for each cell."""
    recipes = [recipe for recipe in RECIPES if any(recipe in cell.by_recipe for cell in cells)]
    head = ["cell", "cost", "TDEF, paper", "MILD, paper", "MILD − TDEF, paper"]
    for recipe in recipes:
        head += [f"TDEF, {TITLES[recipe]}", f"MILD, {TITLES[recipe]}", "MILD − TDEF, 95 %", "order"]
    lines = []
    for cell in cells:
        paper = [cell.numbers.get(method) for method in METHODS]
        line = place(cell, titles) + [with_std(one.number.mean, one.number.std) if one else "" for one in paper]
        line.append(interval_text(cell.papers_difference))
        for recipe in recipes:
            line += [loss_text(cell, recipe, method) for method in METHODS]
            line += [difference_text(cell, recipe), cell.order(recipe) or ""]
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
    word = f" {cell.numbers[method].word}" if recipe == "paper" and method in cell.numbers else ""
    return f"{with_std(*ours.mean_std)}{seeds}{word}"


def difference_text(cell: CellVerdict, recipe: str) -> str:
    found = cell.difference(recipe)
    if found is None:
        return ""
    return interval_text(found) + ("" if cell.rows_known(recipe) else " \\*")


def shares_table(cells: Sequence[CellVerdict], titles: Titles) -> str:
    """A line for each row of shares in the paper, in percent."""
    head = ["cell", "cost", "method", "paper", "ours", "recipe", "elsewhere", "oracle", "to the oracle"]
    lines = []
    for cell, recipe, method in product(cells, RECIPES, METHODS):
        if (apart := apart_from_paper(cell, recipe, method)) is not None:
            ours = cell.by_recipe[recipe][method]
            best = ours.oracle[1] if ours.oracle else ()
            nearness = f"{distance(ours.ratios, best):.1%}" if best else ""
            shown = [percents(cell.numbers[method].number.ratios), percents(ours.ratios), recipe, f"{apart:.1%}"]
            lines.append([*place(cell, titles), method, *shown, percents(best), nearness])
    return markdown(head, lines)


def percents(shares: Sequence[float]) -> str:
    return " ".join(f"{100 * share:.1f}" for share in shares)
