"""The share of training in a sweep's time, and the losses of its runs. Writes bench/results/sweeps.csv and sweep_runs.csv.

    python bench/sweeps.py --data-dir data

cifar100: twelve runs in one process, compiled code is kept from run to run. anew: two of them, and the compiler forgets
everything between runs, but for its files on disk. reached: SVHN and CIFAR-10, three seeds. --only picks some of them; the
rows of the others stay in the files.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from records import MADE, Results, Row, about, given_options, grouped, markdown, mean_of, read
from speed import source

SWEEPS = {
    "cifar100": ["dataset=cifar100", "setup=I,III", "method=mild_uniform,plugin", "seed=0,1,2"],
    "anew": ["dataset=cifar100", "setup=III", "method=mild_uniform,plugin"],
    "reached": ["dataset=svhn,cifar10", "setup=III", "method=mild_uniform", "seed=0,1,2"],
}
TIMES = "runs wall_seconds steps_seconds start_seconds between_seconds"
SWEPT = Results("sweeps", "what", f"{TIMES} {MADE}")
LOSSES = "validation_deferral_loss deferral_loss steps_seconds validation_by_epoch seconds_by_epoch"
RUNS = Results("sweep_runs", "what dataset setup method seed", f"epochs n {LOSSES} {MADE}")
COMMAND = "python bench/sweeps.py --data-dir data"
# Table 1 (a), setup III, MILD, 200 epochs, mean of 5
PAPER = {"svhn": 0.0353, "cifar10": 0.0903, "cifar100": 0.3128}
# Runs the command with a compiler that forgets everything in memory before each run.
ANEW = """
from l2d.commands.main import console
import torch
from l2d.training import walk
walk.free_memory = torch.compiler.reset
console("train")
"""


def measure(what: str, data_dir: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A row of the sweep and the rows of its runs. steps: from each run's first step to its last. start: until the first step of
    the first run. between: from a run's last step to the next run's first, on average."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", *SWEEPS[what]]
        where = [f"data_dir={data_dir}", f"runs_dir={folder}", "progress=false"]
        program = ["-c", ANEW] if what == "anew" else ["-m", "l2d", "train"]
        launched = time.time()
        subprocess.run([sys.executable, *program, *arguments, *where], check=True, stdout=subprocess.DEVNULL)
        wall = time.time() - launched
        found = [read_run(file.parent) for file in Path(folder).rglob("timing.json")]
    runs = sorted(found, key=lambda run: run["timing"]["first_step_at"])
    timings = [run.pop("timing") for run in runs]
    between = timings[-1]["first_step_at"] - timings[0]["first_step_at"] - sum(t["steps_seconds"] for t in timings[:-1])
    start, steps = timings[0]["first_step_at"] - launched, sum(timing["steps_seconds"] for timing in timings)
    seconds = (*(round(one, 1) for one in (wall, steps, start)), round(between / (len(timings) - 1), 2))
    facts = {"what": what, **about(f"l2d train {' '.join(arguments)}")}
    return dict(zip(TIMES.split(), (len(timings), *seconds), strict=True)) | facts, [run | facts for run in runs]


def read_run(folder: Path) -> dict[str, Any]:
    timing, metrics = (json.loads((folder / f"{name}.json").read_text()) for name in ("timing", "metrics"))
    values = [row["val/deferral_loss"] for row in read(folder / "history.csv")]
    dataset, setup, _, _, method, _, seed = folder.parts[-7:]
    since = [at - timing["first_step_at"] for at in timing["epochs_end_at"]]
    names = {"dataset": dataset, "setup": setup, "method": method, "seed": seed.removeprefix("seed=")}
    return names | {
        "epochs": len(timing["epoch_seconds"]),
        "n": metrics["rows"]["train"],
        "validation_deferral_loss": round(metrics["validation"]["deferral_loss"], 4),
        "deferral_loss": round(metrics["deferral_loss"], 4),
        "steps_seconds": round(timing["steps_seconds"], 2),
        "validation_by_epoch": " ".join(f"{float(value):.4f}" for value in values if value),
        "seconds_by_epoch": " ".join(f"{seconds:.2f}" for seconds in since),
        "timing": timing,
    }


def reached_table() -> str:
    """The loss of recipe=fast, mean over seeds, and the time until it passes the paper's number."""
    runs = [row for row in RUNS.read() if row["setup"] == "III" and row["what"] != "anew"]
    cells = grouped(runs, lambda row: (row["dataset"], row["method"]))
    lines = []
    for (dataset, method), rows in cells.items():
        losses = ", ".join(f"{float(row['deferral_loss']):.4f}" for row in rows)
        steps = ", ".join(f"{float(row['steps_seconds']):.1f}" for row in rows)
        reached = ", ".join(seconds_to(row, PAPER[dataset]) for row in rows)
        means = [f"{mean_of(rows, key):.4f}" for key in ("deferral_loss", "validation_deferral_loss")]
        first = [f"{dataset}, {method}, {rows[0]['epochs']} epochs", f"{means[0]} ({losses})", means[1]]
        lines.append([*first, f"{steps} s", f"{PAPER[dataset]:.4f}", f"{reached} s"])
    head = ["setup III, error", "test deferral loss, mean (seeds 0, 1, 2)", "validation", "first to last step"]
    head += ["paper's MILD, 200 epochs", "time until validation loss is below that"]
    return markdown(head, lines) + f"\n\n{source(runs, COMMAND)}"


def seconds_to(row: Row, loss: float) -> str:
    """From the first step to the end of the first epoch whose validation loss is at most this."""
    pairs = zip(row["validation_by_epoch"].split(), row["seconds_by_epoch"].split(), strict=True)
    return next((f"{float(seconds):.1f}" for value, seconds in pairs if float(value) <= loss), "never")


def sweeps_table() -> str:
    """The share of training in a sweep."""
    anew = "two runs; compiled code is not kept in memory, only the compiler's cache on disk"
    rows, lines = {row["what"]: row for row in SWEPT.read()}, []
    for name, row in (("default", rows["cifar100"]), (anew, rows["anew"])):
        wall, steps, runs = float(row["wall_seconds"]), float(row["steps_seconds"]), int(row["runs"])
        times = [f"{wall:.0f} s", f"{steps:.0f} s", f"{1 - steps / wall:.0%}"]
        pauses = f"{row['start_seconds']} s, {row['between_seconds']} s"
        lines.append([name, row["runs"], *times, pauses, f"{runs * 3600 / wall:.0f}"])
    head = ["CIFAR-100, one process", "runs", "in all", "training steps", "outside steps"]
    head += ["before the first step, between runs", "runs per GPU-hour"]
    first = rows["cifar100"]
    text = f"`{COMMAND}` ({first['command']}); {first['machine']}; {first['versions']}; commit {first['commit']}."
    return f"{markdown(head, lines)}\n\n{text}"


if __name__ == "__main__":
    options = given_options(__doc__, data_dir="data", only=(*SWEEPS,))
    for what in options.only:
        sweep, runs = measure(what, options.data_dir)
        SWEPT.add([sweep])
        RUNS.add(runs)
