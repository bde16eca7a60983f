"""The five methods on digits, setup III, error: mean ± std over five seeds, with the wall-clock time of training.

Writes bench/results/digits.csv, the table in docs/digits.md and the example in docs/guide.md. Runs are kept by commit in
runs/bench/: an interrupted benchmark resumes, and never reuses runs of other code.
"""

import statistics
from typing import Any

from l2d.runs.summary import format_table
from records import DOCS, ROOT, commit, machine, markdown, put, save, trained, versions

SEEDS = range(5)
SETTING = ["dataset=digits", "setup=III", "cost=error"]
METHODS = ("ce", "cwce", "ldam", "mild", "tdef")  # the paper's
RESULTS = ROOT / "bench" / "results" / "digits.csv"


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


if __name__ == "__main__":
    code = commit()  # now: the tree may change while this runs
    rows = [measure(method, code) for method in METHODS]
    save(RESULTS, list(rows[0]), rows)
    put(DOCS / "digits.md", "bench-digits", table(rows))
    _, metrics = trained([*SETTING, "method=mild", *kept(code)])
    put(DOCS / "guide.md", "example", f"```\n{format_table(metrics)}\n```")
