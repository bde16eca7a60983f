"""docs/verdicts.md: the paper's numbers beside ours, from paper_runs.csv, and its other statements, from claims.csv."""

from collections.abc import Sequence
from pathlib import Path

import beyond
import paper_runs
import records
from l2d.analysis.report.verdicts import RULE, Measured, cell_verdicts, numbers_table, shares_table, summary
from l2d.config import titles
from records import Row

NAMES = ("dataset", "setup", "experts", "cost", "method")
CLAIMS = Path(__file__).with_name("claims.csv")


def measured() -> list[Measured]:
    """The runs of the paper's experiments: experts as the paper trains them."""
    rows, arrays = paper_runs.stored()
    found = []
    wanted = [row for row in rows if row["cross_fit"] in ("", "1") and row["label_weight"] in ("", "1")]
    by_names = records.grouped(wanted, lambda row: tuple(row[key] for key in (*NAMES, "recipe")))
    for (*names, recipe), some in by_names.items():
        losses, shares, tested = paper_runs.losses(some, arrays), records.mean_shares(some), int(some[0]["n"])
        found.append(Measured(tuple(names), recipe, losses, shares, oracle(some), tested))
    return found


def oracle(rows: Sequence[Row]) -> tuple[float, Sequence[float]] | None:
    if not all(row["oracle"] for row in rows):
        return None
    return records.mean_of(rows, "oracle"), records.mean_shares(rows, "oracle_ratios")


def parts() -> dict[str, str]:
    """The generated parts of the document by their marks."""
    found = measured()
    cells = cell_verdicts(found)
    lines = [*summary(found, cells), beyond.headline()]
    return {
        "summary": "\n\n".join(lines),
        "rule": RULE,
        "numbers": f"{numbers_table(cells, titles())}\n\n{foot(paper_runs.RUNS.read())}",
        "shares": shares_table(cells, titles()),
        "statements": statements(),
    }


def statements() -> str:
    """The paper's other statements."""
    rows = [[row[key].replace("|", r"\|") for key in ("where", "says", "verdict")] for row in records.read(CLAIMS)]
    return records.markdown(("where", "what the paper says", "what we find"), rows)


def foot(rows: Sequence[Row]) -> str:
    """The runs of each recipe, and what made them."""
    by_recipe = records.grouped(rows, lambda row: row["recipe"])
    told = ((name, paper_runs.count(some), records.made(some)) for name, some in sorted(by_recipe.items()))
    runs = [f"recipe={name}: {count} runs; {made}" for name, count, made in told]
    return f"`bench/verdicts.py`, from runs of `experiment=table1_error` and the other tables. {'. '.join(runs)}."
