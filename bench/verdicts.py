"""Each number of the paper beside ours: from finished runs to a CSV, from there to docs/verdicts.md.

python bench/verdicts.py collect RUNS_DIR    # adds the finished runs there that are the paper's experiments to
                                             # bench/results/paper_runs.csv
python bench/verdicts.py docs                # rewrites docs/verdicts.md's tables
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from l2d.analysis.report.paper import paper_blocks
from l2d.analysis.report.protocol import papers_recipes
from l2d.analysis.report.verdicts import Measured, verdicts_page
from l2d.config import titles
from l2d.config.identity import settings_of
from provenance import ROOT
from records import Row, cell_of, collect_or_docs, finished, made, made_by, merged, put, read, scores_of, write

CSV = ROOT / "bench" / "results" / "paper_runs.csv"
PAGE = ROOT / "docs" / "verdicts.md"
NAMES = ("dataset", "setup", "experts", "cost", "method")
KEYS = (*NAMES, "recipe", "precision", "seed")
RESULTS = ("validation", "test", "guarded")
FIELDS = (*KEYS, *RESULTS, "ratios", "rho", "steps_seconds", "n", "machine", "torch", "commit")


def collected(runs_dir: Path) -> list[Row]:
    blocks, rows, found = paper_blocks(), [], []
    for _, config, metrics, timing in finished(runs_dir):
        row = {**cell_of(config), "method": str(config["method"]["name"])}
        names = tuple(row[name] for name in NAMES)
        if names[:4] in blocks:
            found.append((names, config, metrics, timing))
    recipes = papers_recipes((names, settings_of(config)) for names, config, _, _ in found)
    for (names, config, metrics, timing), recipe in zip(found, recipes, strict=True):
        if recipe is None:
            continue
        kept = {
            **dict(zip(NAMES, names, strict=True)),
            "recipe": recipe,
            "precision": str(config["recipe"]["precision"]),
            "seed": str(config["seed"]),
            **scores_of(metrics),
            "ratios": " ".join(f"{ratio:.4f}" for ratio in metrics.ratios),
            "rho": " ".join(f"{value:.4g}" for value in metrics.rho),
            "steps_seconds": f"{timing['steps_seconds']:.1f}",
            "n": str(metrics.rows.test),
            **made_by(timing),
        }
        rows.append({name: kept[name] for name in FIELDS})
    return rows


def measured(rows: Sequence[Row]) -> list[Measured]:
    found: dict[tuple[str, ...], Measured] = {}
    for row in rows:
        names = tuple(row[name] for name in NAMES)
        one = found.setdefault((*names, row["recipe"]), Measured(names, row["recipe"], {}, {}))
        one.test[int(row["seed"])] = float(row["test"])
        one.validation[int(row["seed"])] = float(row["validation"])
    return list(found.values())


def foot(rows: Sequence[Row]) -> str:
    """What made the runs, by recipe."""
    by_recipe: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_recipe[row["recipe"]].append(row)
    told = [f"recipe={name}: {len(some)} runs; {made(some)}" for name, some in sorted(by_recipe.items())]
    return (
        "`python bench/verdicts.py docs`, from runs of `experiment=table1_error` and the other tables. "
        + ". ".join(told)
        + "."
    )


def main() -> None:
    options = collect_or_docs(__doc__)
    if options.command == "collect":
        write(CSV, FIELDS, KEYS, merged(read(CSV), collected(options.runs_dir), KEYS, RESULTS))
    else:
        rows = read(CSV)
        put(PAGE, "verdicts", f"{verdicts_page(measured(rows), titles())}\n{foot(rows)}")


if __name__ == "__main__":
    main()
