"""Several runs on one GPU at once: is it faster? Workers with lists of different lengths: 4, 3, 2 and 1 are at work in turn.

    python bench/sharing.py --data-dir data --runs-dir runs

The runs are cells of Table 1, recipe=fast, and stay in runs_dir. Images/s at k: the images trained on while exactly k workers were
at work, by the time of their epochs. Loading, compilation, validation and test count as time. Every worker trains an epoch before
the clock starts. Writes bench/results/sharing.csv.
"""

import json
import multiprocessing
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from l2d.core.results import read_metrics
from provenance import ROOT, about
from records import parser_of, save

# The longer a worker's list, the later it is alone.
LISTS = [
    ["svhn III tdef 0", "svhn III tdef 1", "svhn III tdef 2", "svhn I mild 2", "cifar10 I mild 1", "cifar10 I tdef 1"],
    ["svhn I tdef 0", "svhn I mild 0", "svhn I tdef 1", "svhn I mild 1", "svhn I tdef 2"],
    ["cifar10 III tdef 2", "cifar10 I mild 0", "cifar10 I tdef 0"],
    ["cifar10 III tdef 0", "cifar10 III tdef 1"],
]  # fmt: skip


def work(cells: list[str], data_dir: str, runs_dir: str, ready: "multiprocessing.synchronize.Barrier") -> None:
    from records import trained

    def run(cell: str, *overrides: str) -> None:
        dataset, setup, method, seed = cell.split()
        choice = [f"dataset={dataset}", f"setup={setup}", f"method={method}", f"seed={seed}"]
        trained([*choice, f"data_dir={data_dir}", "progress=false", *overrides])

    with tempfile.TemporaryDirectory() as folder:
        run(cells[0], "recipe.epochs=1", f"runs_dir={folder}")
    ready.wait(timeout=300)
    for cell in cells:
        run(cell, f"runs_dir={runs_dir}")


SVHN_RUN = 65_931 * 15  # images in one run of recipe=fast
Span = tuple[float, float]


def epochs_of(timing: dict[str, Any], images: int) -> list[tuple[float, float, int]]:
    """(start, end, images) of each epoch; what lies between epochs (validation, checkpoints) is spread evenly."""
    later = timing["epoch_seconds"][1:]
    pause = (timing["last_step_at"] - timing["first_step_at"] - sum(later)) / max(1, len(later) + 1)
    moment, found = timing["last_step_at"], []
    for seconds in reversed(later):
        found.append((moment - seconds, moment, images))
        moment -= seconds + pause
    return [(timing["first_step_at"], max(moment, timing["first_step_at"]), images), *reversed(found)]


def rates(workers: list[Span], epochs: list[tuple[float, float, int]]) -> dict[int, tuple[float, float]]:
    """By the number of workers at work at once: images/s and for how many seconds. Images are spread evenly over an epoch."""
    moments = sorted({moment for span in (*workers, *((s, e) for s, e, _ in epochs)) for moment in span})
    images, seconds = dict[int, float](), dict[int, float]()
    for left, right in pairwise(moments):
        if k := sum(start <= left and right <= end for start, end in workers):
            done = sum(n * (right - left) / (end - start) for start, end, n in epochs if start <= left and right <= end)
            images[k] = images.get(k, 0.0) + done
            seconds[k] = seconds.get(k, 0.0) + right - left
    return {k: (images[k] / seconds[k], seconds[k]) for k in sorted(images)}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--runs-dir", required=True, help="a new folder: finished runs would not be measured")
    arguments = parser.parse_args()
    if Path(arguments.runs_dir).exists() and any(Path(arguments.runs_dir).iterdir()):
        parser.error(f"--runs-dir {arguments.runs_dir}: is not empty")
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(len(LISTS))
    given = (arguments.data_dir, arguments.runs_dir, ready)
    workers = [context.Process(target=work, args=(cells, *given)) for cells in LISTS]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        parser.exit(1, "a worker failed\n")
    spans, epochs = [], []
    for cells in LISTS:
        own = []
        for cell in cells:
            dataset, setup, method, seed = cell.split()
            [file] = Path(arguments.runs_dir).glob(f"{dataset}/{setup}/*/*/{method}/*/seed={seed}/timing.json")
            timing = json.loads(file.read_text())
            own.append((timing["started_at"], timing["started_at"] + timing["total_seconds"]))
            epochs += epochs_of(timing, read_metrics(file.parent / "metrics.json").rows.train)
        spans.append((own[0][0], own[-1][1]))
    rows = [
        {
            "runs_at_once": k,
            "images_per_second": round(rate),
            "svhn_runs_per_gpu_hour": round(rate * 3600 / SVHN_RUN),
            "seconds": round(seconds, 1),
            "cpu_cores": os.cpu_count(),
            **about("python bench/sharing.py"),
        }
        for k, (rate, seconds) in rates(spans, epochs).items()
    ]
    save(ROOT / "bench" / "results" / "sharing.csv", list(rows[0]), rows)
    for row in rows:
        print(f"{row['runs_at_once']} at once: {row['images_per_second']:,} images/s over {row['seconds']} s")


if __name__ == "__main__":
    main()
