"""The five methods on digits, setup III, error: mean ± std over five seeds, with the wall-clock time of training.

Writes bench/results/digits.csv, the table in docs/digits.md and the example in docs/guide.md. Runs are kept by commit in
runs/bench/: an interrupted benchmark resumes, and never reuses runs of other code.
"""

import statistics
from typing import Any

from l2d.runs.summary import format_table
from provenance import ROOT, commit, machine, versions
from records import DOCS, cell_title, grouped, markdown, put, save, trained

SEEDS = range(5)
SETTING = ["dataset=digits", "setup=III", "cost=error"]
METHODS = ("ce", "cwce", "ldam", "mild", "tdef")  # the paper's
RESULTS = ROOT / "bench" / "results" / "digits.csv"
CELL = ("setup", "experts", "cross_fit", "cost")
TABLES = RESULTS.with_name("digits_tables.csv")
COMPARED = ("tdef", "mild_cheapest", "tdef_uniform", "mild_uniform")


def main() -> None:
    code = commit()  # now: the tree may change while this runs
    rows = [measure(method, code) for method in METHODS]
    save(RESULTS, list(rows[0]), rows)
    put(DOCS / "digits.md", "bench-digits", table(rows))
    _, metrics = trained([*SETTING, "method=mild", *kept(code)])
    put(DOCS / "guide.md", "example", f"```\n{format_table(metrics)}\n```")


def kept(code: str) -> list[str]:
    """Where the runs of a commit are. With uncommitted changes every run is re-run: the commit does not identify the code."""
    return [f"runs_dir={ROOT / 'runs' / 'bench' / code}", f"force={str(code.endswith('+changes')).lower()}"]


def measure(method: str, code: str) -> dict[str, Any]:
    losses, singles, seconds = [], [], []
    for seed in SEEDS:
        run, metrics = trained([*SETTING, f"method={method}", f"seed={seed}", *kept(code)])
        losses.append(metrics.deferral_loss)
        singles.append(metrics.baselines.best_single.deferral_loss)
        timing = run.timing()
        if len(timing["epoch_seconds"]) == metrics.epochs:  # not resumed
            seconds.append(timing["last_step_at"] - timing["first_step_at"])
    row = {"method": method, "mean": round(statistics.mean(losses), 4), "std": round(statistics.stdev(losses), 4)}
    row |= {"best_single": round(statistics.mean(singles), 4), "seeds": len(losses), "test_rows": metrics.rows.test}
    row |= {"fit_seconds": round(statistics.median(seconds), 1)}
    return row | {"commit": code, "machine": machine(), "versions": versions()}


def table(rows: list[dict[str, Any]]) -> str:
    first = rows[0]
    shown = ((row["method"], f"{float(row['mean']):.4f} ± {float(row['std']):.4f}", row["fit_seconds"]) for row in rows)
    lines = [[method, loss, f"{seconds} s"] for method, loss, seconds in shown]
    lines.append(["*best single expert*", f"{float(first['best_single']):.4f}", ""])
    made = (
        f"`make bench-digits`: digits, setup III, simulated experts, error; {first['seeds']} seeds, {first['test_rows']} test"
        f" images each; {first['machine']}; {first['versions']}; commit {', '.join(sorted({row['commit'] for row in rows}))}."
    )
    return f"{markdown(('method', 'test deferral loss, mean ± std', 'training time, median'), lines)}\n\n{made}"


def tables_table(rows: list[dict[str, str]]) -> str:
    """A line for each setup, kind of experts and cost: the methods' losses, and their differences to TDEF."""
    lines = []
    for cell, members in grouped(rows, lambda row: tuple(row[key] for key in CELL)).items():
        lines.append([f"{cell_title('digits', *cell[:3])}, {'errors' if cell[3] == 'error' else 'prices'}"])
        by_method = {row["method"]: row for row in members}
        for method in COMPARED:
            row = by_method.get(method)
            apart = f"; {row['difference_to_tdef']}" if row and row["difference_to_tdef"] else ""
            lines[-1].append(f"{row['deferral_loss']} ± {row['std']}{apart}" if row else "")
    return markdown(["test deferral loss; difference to tdef, 95 %", *COMPARED], lines)


if __name__ == "__main__":
    main()
