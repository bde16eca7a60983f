"""The five methods on digits, setup III, error: mean ± std over five seeds, with the wall-clock time of training.

Writes bench/results/digits.csv, the table in docs/digits.md and the example in docs/guide.md.
"""

import statistics
import tempfile
from typing import Any

from l2d.runs.summary import format_table
from records import DOCS, ROOT, about, markdown, put, save, trained

SEEDS = range(5)
SETTING = ["dataset=digits", "setup=III", "cost=error"]
METHODS = ("ce", "cwce", "ldam", "mild", "tdef")  # the paper's
RESULTS = ROOT / "bench" / "results" / "digits.csv"


def measure(method: str, runs_dir: str) -> dict[str, Any]:
    runs = [trained([*SETTING, f"method={method}", f"seed={seed}", f"runs_dir={runs_dir}"]) for seed in SEEDS]
    timings = (run.timing() for run, _ in runs)
    seconds = [timing["last_step_at"] - timing["first_step_at"] for timing in timings]
    losses = [metrics.deferral_loss for _, metrics in runs]
    singles = [metrics.baselines.best_single.deferral_loss for _, metrics in runs]
    row = {"method": method, "mean": round(statistics.mean(losses), 4), "std": round(statistics.stdev(losses), 4)}
    row |= {"best_single": round(statistics.mean(singles), 4), "seeds": len(losses), "test_rows": runs[0][1].rows.test}
    return row | {"fit_seconds": round(statistics.median(seconds), 1)}


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
    made = about("make bench-digits")  # now: the tree may change while this runs
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(method, folder) | made for method in METHODS]
        _, metrics = trained([*SETTING, "method=mild", f"runs_dir={folder}"])  # its run of seed 0
    save(RESULTS, [name for name in rows[0] if name != "command"], rows)
    put(DOCS / "digits.md", "bench-digits", table(rows))
    put(DOCS / "guide.md", "example", f"```\n{format_table(metrics)}\n```")
