"""Each number of the paper beside ours: from finished runs to a CSV, from there to docs/verdicts.md.

python bench/verdicts.py collect RUNS_DIR    # adds the finished runs there that are the paper's experiments to
                                             # bench/results/paper_runs.csv
python bench/verdicts.py docs                # rewrites the tables of docs/verdicts.md
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import records
from l2d.analysis.report.averages import paired_interval
from l2d.analysis.report.compare import FEW
from l2d.analysis.report.paper import paper_blocks, papers_recipes
from l2d.analysis.report.verdicts import VERDICTS, Measured, PaperVerdict, verdicts
from l2d.config.identity import settings_of
from records import DOCS, RAN, Results, Row

NAMES = ("dataset", "setup", "experts", "cost", "method")
KEYS, LOSSES = f"{' '.join(NAMES)} recipe precision seed", "validation test guarded"
RUNS = Results("paper_runs", KEYS, f"{LOSSES} ratios rho steps_seconds {RAN}", compared=LOSSES)
PAIRS = ("tdef, paper", "tdef, ours", "mild, paper", "mild, ours", "mild − tdef, 95 %")
HEAD = ("cell", "cost", "recipe", *PAIRS, "best method")
CLAIMS = Path(__file__).with_name("claims.csv")
Names = tuple[str, ...]


def collected(runs_dir: Path) -> list[Row]:
    found = [
        (records.row_of(config, metrics, timing), config, timing)
        for _, config, metrics, timing in records.finished(runs_dir)
        if tuple(config[group]["name"] for group in NAMES[:4]) in paper_blocks()
    ]
    recipes = papers_recipes((tuple(row[name] for name in NAMES), settings_of(config)) for row, config, _ in found)
    rows = []
    for (row, config, timing), recipe in zip(found, recipes, strict=True):
        if recipe is not None:
            row |= {"recipe": recipe, "precision": str(config["recipe"]["precision"])}
            rows.append(row | {"steps_seconds": f"{timing['steps_seconds']:.1f}"})
    return rows


def measured(rows: Sequence[Row], column: str = "test") -> list[Measured]:
    found: dict[tuple[str, ...], Measured] = {}
    for row in rows:
        names = tuple(row[name] for name in NAMES)
        one = found.setdefault((*names, row["recipe"]), Measured(names, row["recipe"], {}))
        one.test[int(row["seed"])] = float(row[column])
    return list(found.values())


def page(rows: Sequence[Row]) -> str:
    """The numbers of the image sets by cell, and the paper's other claims."""
    ours = measured(rows)
    found = verdicts(ours)
    words = Counter(one.word for one in found)
    summary = ", ".join(f"{words[word]} {word}" for word in VERDICTS if words[word])
    claims = [[row[key].replace("|", r"\|") for key in ("where", "says", "verdict")] for row in records.read(CLAIMS)]
    parts = [
        f"The paper prints {len(found)} deferral losses: {summary}.",
        "## Every number",
        numbers(ours, measured(rows, "validation"), {one.number.names: one for one in found}),
        foot(rows),
        "## Theorems, lemmas and claims",
        records.markdown(("where", "what the paper says", "verdict"), claims),
    ]
    return "\n\n".join(parts)


def numbers(ours: Sequence[Measured], validated: Sequence[Measured], judged: Mapping[Names, PaperVerdict]) -> str:
    """A line for each cell and recipe that has both methods, in the order of the paper. Language models have none. validated: the
    same runs by their validation losses, which choose the best method."""
    by_names = {(one.names, one.recipe): one for one in ours}
    cells = dict.fromkeys([*(names[:4] for names in judged), *sorted(one.names[:4] for one in ours)])
    lines, differences = [], []
    for cell, recipe in product(cells, ("paper", "fast")):
        tdef, mild = (by_names.get(((*cell, method), recipe)) for method in ("tdef", "mild"))
        if tdef is None or mild is None:
            continue
        apart = paired_interval(mild.test, tdef.test)
        assert apart is not None
        differences.append(apart)
        here = [one for one in validated if (one.names[:4], one.recipe) == (cell, recipe) and len(one.test) >= FEW]
        best = by_names[min(here, key=lambda one: one.mean).names, recipe]
        places = [" ".join((records.title_of(cell[0]), *cell[1:3])), cell[3].replace("_", " "), recipe]
        compared = [text for one in (tdef, mild) for text in beside(one, judged.get(one.names))]
        shown = f"{apart[0]:+.4f} [{apart[1]:+.4f}, {apart[2]:+.4f}]"
        lines.append([*places, *compared, shown, f"{best.names[4]} {best.mean:.4f}"])
    fewer = sum(mean < 0 for mean, _, _ in differences)
    surely, surely_more = sum(high < 0 for _, _, high in differences), sum(low > 0 for _, low, _ in differences)
    summary = (
        f"MILD has less loss than TDEF in {fewer} of {len(differences)} cells, in {surely} of them significantly, and significantly"
        f" more in {surely_more}. Of 40 intervals of 95 %, two exclude 0 by chance."
    )
    return f"{summary}\n\n{records.markdown(HEAD, lines)}"


def beside(one: Measured, judged: PaperVerdict | None) -> tuple[str, str]:
    """The paper's number, and ours with the verdict if it is this recipe that is judged."""
    if judged is None:
        return "", f"{one.mean:.4f}"
    word = judged.word if judged.judged is one else ""
    return f"{judged.number.mean:.4f}", f"{one.mean:.4f} {word}".strip()


def foot(rows: Sequence[Row]) -> str:
    """The runs of each recipe, and what made them."""
    by_recipe = records.grouped(rows, lambda row: row["recipe"])
    runs = [f"recipe={name}: {len(some)} runs; {records.made(some)}" for name, some in sorted(by_recipe.items())]
    return f"`python bench/verdicts.py docs`, from runs of `experiment=table1_error` and the other tables. {'. '.join(runs)}."


def docs() -> None:
    records.put(DOCS / "verdicts.md", "verdicts", page(RUNS.read()))


if __name__ == "__main__":
    records.collect_or_docs(__doc__, RUNS, collected, docs)
