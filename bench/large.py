"""Training and judging on files larger than memory. Writes bench/results/large.csv.

    python bench/large.py
    python bench/large.py --sizes 10000000 --workers 2

Simulated numbers: 64 features, four experts, method=linear, as Parquet files of a million rows; workers=0 is training in memory, on
one file. Each case in its own process on the CPU. CPU time and memory are those of all processes, Ray's own included; memory that
several share counts once (PSS). load: of the machine when the case began. Rows of other cases stay in the file.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import parquet

from l2d.config import check, compose
from l2d.runs.folder import RunFolder
from records import Results, Row, about, given_options, markdown, trained

SHOWN = ("seconds", "cpu_seconds", "memory_gib", "deferral_loss", "load")
RESULTS = Results("large", "rows workers machine commit", f"{' '.join(SHOWN)} command versions")
FEATURES, EXPERTS, GROUP, FILE = 64, 4, 250_000, 1_000_000
PLAIN = ("dataset=table", "method=linear", "progress=false", "evaluation=cross_validate", "trainer.accelerator=cpu")


def write_files(folder: Path, n: int) -> None:
    """Numbers, and experts that are right where a direction of their own says so."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(FEATURES, EXPERTS)) / FEATURES**0.5
    for number, start in enumerate(range(0, n, FILE)):
        inputs = rng.normal(size=(min(FILE, n - start), FEATURES)).astype(np.float32)
        right = rng.random((len(inputs), EXPERTS)) < (0.6 + 0.25 * inputs @ directions).clip(0, 1)
        columns = {f"x{k}": inputs[:, k] for k in range(FEATURES)}
        columns |= {f"correct_e{k}": right[:, k].astype(np.int8) for k in range(EXPERTS)}
        plain = {"row_group_size": GROUP, "compression": "none", "use_dictionary": False}
        parquet.write_table(pa.table(columns), folder / f"part-{number:04}.parquet", **plain)


def case(overrides: Sequence[str], workers: int) -> None:
    """What the process of a case does."""
    if not workers:
        trained(overrides)
        return
    import ray

    from l2d.large.train import train_large

    ray.init(num_cpus=workers, include_dashboard=False, object_store_memory=1 << 28, log_to_driver=False)
    experiment = check(compose(overrides))
    train_large(experiment, RunFolder.of(experiment.plain))


def watched(process: psutil.Popen) -> tuple[float, float]:
    """CPU seconds, and the most memory in GiB, of a process and all that it starts, until it ends."""
    spent, most = dict[int, float](), 0.0
    while process.poll() is None:
        memory = 0
        with suppress(psutil.Error):
            for one in [process, *process.children(recursive=True)]:
                spent[one.pid] = sum(one.cpu_times()[:2])
                memory += one.memory_full_info().pss
        most = max(most, memory / 2**30)
        time.sleep(1)
    return sum(spent.values()), most


def measured(folder: Path, n: int, workers: int) -> dict[str, Any]:
    path = folder if workers else next(folder.glob("*.parquet"))
    with tempfile.TemporaryDirectory(dir=folder.parent) as runs:
        overrides = [*PLAIN, f"dataset.path={path}", f"runs_dir={runs}"]
        begun, load = time.monotonic(), os.getloadavg()[0]
        child = [sys.executable, __file__, "--case", str(workers), *overrides]
        cpu, memory = watched(psutil.Popen(child, stdout=subprocess.DEVNULL))
        seconds, [found] = time.monotonic() - begun, Path(runs).rglob("metrics.json")
        loss = json.loads(found.read_text())["deferral_loss"]
    figures = (round(seconds), round(cpu), f"{memory:.2f}", f"{loss:.6f}", f"{load:.1f}")
    row = {"rows": n, "workers": workers, **dict(zip(SHOWN, figures, strict=True))}
    return row | about("python bench/large.py")


def table(rows: Sequence[Row]) -> str:
    names = ["rows", "workers", "seconds", "CPU seconds", "memory, GiB", "deferral loss", "load before"]
    ordered = sorted(rows, key=lambda row: (int(row["rows"]), int(row["workers"])))
    shown = [[f"{int(row['rows']):,}", row["workers"], *(row[key] for key in SHOWN)] for row in ordered]
    last = ordered[-1]
    hours = int(last["cpu_seconds"]) / int(last["rows"]) * 1e9 / 3600
    note = f"Simulated; 0 workers: in memory. `{last['command']}`; {last['machine']}, shared with other work; {last['versions']}"
    paper = f"At the last row's CPU time, 10⁹ such rows take {hours:.0f} CPU hours, {hours / 64:.1f} h on 64 cores (an estimate)"
    return f"{markdown(names, shown)}\n\n{note}; commit {last['commit']}. {paper}."


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        case(sys.argv[3:], int(sys.argv[2]))
        sys.exit()
    options = given_options(__doc__, sizes=(10**5, 10**6, 10**7), workers=(0, 1, 2))
    for n in options.sizes:
        with tempfile.TemporaryDirectory() as place:
            (folder := Path(place) / "files").mkdir()
            write_files(folder, n)
            RESULTS.add([measured(folder, n, workers) for workers in options.workers if workers or n <= FILE])
