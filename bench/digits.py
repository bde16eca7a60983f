"""The five methods on digits, setup III, error: mean ± std over five seeds, with the wall-clock time of training.

Writes bench/results/digits.csv and the table in README.md. Runs that are finished are not run again.
"""

import csv
import json
import statistics
from pathlib import Path

from l2d.build import to_plain
from l2d.config import compose, groups
from l2d.runs import RunFolder
from l2d.summary import format_table
from l2d.train import train
from provenance import ROOT, commit, machine, versions

SEEDS = range(5)
SETTING = ["dataset=digits", "setup=III", "cost=error"]
RESULTS = ROOT / "bench" / "results" / "digits.csv"


def main() -> None:
    rows = [measure(method) for method in groups()["method"]]
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    text = markdown(rows)
    put_into(ROOT / "README.md", "bench-digits", text)
    cfg = compose([*SETTING, "method=mild"])
    put_into(
        ROOT / "README.md", "example", f"```\n{format_table(train(cfg))}\n\n{RunFolder.of(to_plain(cfg)).path}\n```"
    )
    print(f"\n{text}")


def measure(method: str) -> dict[str, object]:
    losses, singles, seconds = [], [], []
    for seed in SEEDS:
        cfg = compose([*SETTING, f"method={method}", f"seed={seed}"])
        metrics = train(cfg)
        losses.append(metrics["deferral_loss"])
        singles.append(metrics["baselines"]["best_single"]["deferral_loss"])
        timing = json.loads((RunFolder.of(to_plain(cfg)).path / "timing.json").read_text(encoding="utf-8"))
        seconds.append(timing["fit_seconds"])
    return {
        "method": method,
        "mean": round(statistics.mean(losses), 4),
        "std": round(statistics.stdev(losses), 4),
        "best_single": round(statistics.mean(singles), 4),
        "seeds": len(losses),
        "test_rows": metrics["rows"]["test"],
        "fit_seconds": round(statistics.median(seconds), 1),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }


def markdown(rows: list[dict[str, object]]) -> str:
    first = rows[0]
    lines = [
        "| method | test deferral loss, mean ± std | training time, median |",
        "|---|---|---|",
        *(f"| {row['method']} | {row['mean']:.4f} ± {row['std']:.4f} | {row['fit_seconds']} s |" for row in rows),
        f"| *best single expert* | {first['best_single']:.4f} | |",
        "",
        f"`make bench-digits`: digits, setup III, simulated experts, error; {first['seeds']} seeds, {first['test_rows']} test"
        f" images each; {first['machine']}; {first['versions']}; commit {first['commit']}.",
    ]
    return "\n".join(lines)


def put_into(file: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of that name."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, rest = file.read_text(encoding="utf-8").split(start, 1)
    after = rest.split(end, 1)[1]
    file.write_text(f"{before}{start}\n{text}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
