"""How much of a sweep's time is training: twelve runs of one image set in one process. Writes bench/results/sweeps.csv.

    python bench/sweeps.py --data-dir data

kept: as it is, compiled code is kept from run to run. anew: four of the runs, and each run compiles anew, as if it were alone.
Random pixels stand in for CIFAR-100 if data_dir does not hold it: only time and memory are measured.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from l2d.data.sets.prepared import is_prepared
from provenance import ROOT, commit, machine, versions

RESULTS = ROOT / "bench" / "results" / "sweeps.csv"
SWEEPS = {
    "kept": ["setup=I,III", "method=mild,tdef,plugin", "seed=0,1"],
    "anew": ["setup=III", "method=mild,plugin", "seed=0,1"],
}
COLUMNS = (
    *("what", "dataset", "data", "n", "runs", "wall_seconds", "steps_seconds", "start_seconds", "between_seconds"),
    *("gpu_memory_first", "gpu_memory_last", "command", "commit", "machine", "versions"),
)
# Runs the command with a compiler that forgets everything before each run.
ANEW = """
import sys
from l2d.commands import train
import torch
from l2d.training import walk
walk.free_memory = torch.compiler.reset
train.main(sys.argv[1:])
"""


def measure(what: str, data_dir: str, *more: str) -> dict[str, Any]:
    """steps: from each run's first step to its last. start: until the first step of the first run. between: from a run's last step
    to the next run's first, on average."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "dataset=cifar100", *SWEEPS[what], *more]
        where = [f"data_dir={data_dir}", f"runs_dir={folder}", "progress=false"]
        program = ["-m", "l2d", "train"] if what == "kept" else ["-c", ANEW]
        launched = time.time()
        subprocess.run([sys.executable, *program, *arguments, *where], check=True, stdout=subprocess.DEVNULL)
        wall = time.time() - launched
        files = [json.loads(file.read_text()) for file in Path(folder).rglob("timing.json")]
    timings = sorted(files, key=lambda timing: timing["first_step_at"])
    between = timings[-1]["first_step_at"] - timings[0]["first_step_at"] - sum(t["steps_seconds"] for t in timings[:-1])
    return {
        "what": what,
        "runs": len(timings),
        "wall_seconds": round(wall, 1),
        "steps_seconds": round(sum(timing["steps_seconds"] for timing in timings), 1),
        "start_seconds": round(timings[0]["first_step_at"] - launched, 1),
        "between_seconds": round(between / (len(timings) - 1), 2),
        "gpu_memory_first": timings[0]["gpu_memory_gib"],
        "gpu_memory_last": timings[-1]["gpu_memory_gib"],
        "command": f"l2d train {' '.join(arguments)}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--only", choices=SWEEPS, help="one of the two; the file then has only its row")
    parser.add_argument("overrides", nargs="*", help="more overrides for all runs, such as recipe.compile=false")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        known = is_prepared(Path(arguments.data_dir) / "cifar100")
        if not known:
            from speed import write_random_pixels

            write_random_pixels(Path(folder), "cifar100")
        where, asked = arguments.data_dir if known else folder, [arguments.only] if arguments.only else SWEEPS
        rows = [measure(what, where, *arguments.overrides) for what in asked]
    facts = {"dataset": "cifar100", "data": "" if known else "random pixels", "n": 45_000}
    facts |= {"commit": commit(), "machine": machine(), "versions": versions()}
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | facts for row in rows)


if __name__ == "__main__":
    main()
