"""Routers on tables: small ones in a sweep, and large tables of text. Writes bench/results/rows_small.csv and rows_large.csv.

    python bench/rows.py
    python bench/rows.py --only small
    python bench/rows.py --only large --sizes 400000

small: 10,000 simulated rows of 384 features, 20 epochs; six runs of one sweep, after a first run that pays for the imports, beside
a bare loop with the same network, optimizer and batches. large: simulated texts, two epochs, each size in its own process.
Both run on the CPU. Rows of other sizes, batches and machines stay in the file.
"""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from l2d.assembly.make import make
from l2d.commands import train
from l2d.config import check, compose
from l2d.networks.tabular import MLP
from provenance import ROOT, about
from records import parser_of, read, save

RESULTS = ROOT / "bench" / "results"
ROWS, FEATURES, EXPERTS = 10_000, 384, 3
SIZES = (10_000, 100_000, 400_000, 1_000_000)
SWEEP = ["method=mild_uniform,tdef,cost_regression", "seed=0,1"]
RUNS = 6
PLAIN = ("dataset=table", "evaluation=holdout", "trainer.accelerator=cpu", "progress=false")
WORDS = 5_000
BATCH = 512  # of recipe=table


def outcomes(rng: np.random.Generator, logits: np.ndarray) -> dict[str, np.ndarray]:
    right = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    return {f"correct_{name}": right[:, k].astype(np.int8) for k, name in enumerate("abc")}


def write_numbers(file: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    logits = 2 * features @ rng.normal(size=(FEATURES, EXPERTS)) / FEATURES**0.5 + np.array([1.0, 0.5, 0.0])
    columns = {f"f{i}": features[:, i] for i in range(FEATURES)}
    parquet.write_table(pa.table(columns | outcomes(rng, logits)), file)


def write_texts(file: Path, n: int) -> None:
    """Texts of 12 to 40 words, drawn like natural words: few are frequent. The first word says who is right."""
    rng = np.random.default_rng(0)
    letters = [rng.integers(0, 26, rng.integers(2, 11)) for _ in range(WORDS)]
    vocabulary = np.array(["".join(chr(97 + c) for c in word) for word in letters])
    words = np.minimum(rng.zipf(1.3, size=(n, 40)) - 1, WORDS - 1)
    lengths = rng.integers(12, 41, n)
    texts = [" ".join(vocabulary[row[:length]]) for row, length in zip(words, lengths, strict=True)]
    logits = np.stack([np.where(words[:, 0] % EXPERTS == k, 2.0, 0.0) for k in range(EXPERTS)], axis=1)
    parquet.write_table(pa.table({"query": texts} | outcomes(rng, logits)), file)


def bare(rows: int, features: int, epochs: int, batch: int = BATCH) -> float:
    """Seconds of a plain loop over random rows: the same network, recipe and batches, nothing else."""
    experiment = check(compose(["dataset=table", "dataset.path=none.csv"]))
    network = make(experiment.router, mean=[0.0] * features, std=[1.0] * features, num_outputs=EXPERTS, head="linear")
    assert isinstance(network, MLP)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    inputs, best = torch.randn(rows, features), torch.randint(EXPERTS, (rows,))
    started = time.perf_counter()
    for _ in range(epochs):
        for part in torch.randperm(rows).split(batch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(inputs[part]), best[part]).backward()
            optimizer.step()
    return time.perf_counter() - started


def sweep(*overrides: str) -> None:
    with suppress(SystemExit), redirect_stdout(StringIO()):
        train.main(["-m", *PLAIN, *overrides])


def small() -> list[dict[str, Any]]:
    """Seconds per run, and where they went."""
    with tempfile.TemporaryDirectory() as folder:
        write_numbers(file := Path(folder) / "numbers.parquet")
        where = [f"dataset.path={file}", f"runs_dir={folder}/runs"]
        sweep(*where, "method=ce")
        begun = time.time()
        sweep(*where, *SWEEP)
        whole = time.time() - begun
        timings = [json.loads(path.read_text()) for path in Path(folder, "runs").rglob("timing.json")]
    runs = [timing for timing in timings if timing["started_at"] >= begun]
    assert len(runs) == RUNS
    spent = {
        "until the first step": sum(run["first_step_at"] - run["started_at"] for run in runs),
        "training": sum(run["steps_seconds"] for run in runs),
    }
    inside = sum(run["total_seconds"] for run in runs)
    spent |= {"scoring, guard, writing": inside - sum(spent.values()), "composing, reading": whole - inside}
    epochs = len(runs[0]["epoch_seconds"])
    parts = [(part, seconds / RUNS) for part, seconds in spent.items()]
    facts = {"rows": ROWS, "features": FEATURES, "epochs": epochs, **about("python bench/rows.py --only small")}
    figures = [("a whole run", whole / RUNS), *parts, ("bare loop", bare(int(ROWS * 0.72), FEATURES, epochs))]
    return [{"what": what, "seconds": round(seconds, 3), **facts} for what, seconds in figures]


def large(n: int, batch: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_texts(file := Path(folder) / "texts.parquet", n)
        overrides = [f"dataset.path={file}", "dataset.text=query", f"runs_dir={folder}/runs"]
        overrides += ["recipe.epochs=2", f"recipe.batch_size={batch}"]
        command = [sys.executable, "-m", "l2d", "train", *PLAIN, *overrides]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [found] = Path(folder, "runs").rglob("timing.json")
        timing = json.loads(found.read_text())
    trained, features = int(n * 0.72), 512
    return {
        "rows": n,
        "batch": batch,
        "prepare_seconds": round(timing["first_step_at"] - timing["started_at"], 1),
        "rows_per_second": round(timing["images_per_second"]),
        "bare_rows_per_second": round(trained / bare(trained, features, 1, batch)),
        "memory_gib": round(timing["host_memory_gib"], 2),
        **about("python bench/rows.py --only large"),
    }


def with_the_others(file: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows measured now, and those of other sizes, batches or machines that the file has already."""

    def kind(row: dict[str, Any]) -> tuple[int, int, str]:
        return int(row["rows"]), int(row["batch"]), row["machine"]

    measured = {kind(row) for row in rows}
    return sorted([*(row for row in read(file) if kind(row) not in measured), *rows], key=kind)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=("small", "large"))
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of rows of the large tables")
    parser.add_argument("--batch", type=int, default=BATCH, help="rows in a batch of the large tables")
    options = parser.parse_args()
    if options.only != "large":
        rows = small()
        save(RESULTS / "rows_small.csv", list(rows[0]), rows)
    if options.only != "small":
        file = RESULTS / "rows_large.csv"
        rows = [large(n, options.batch) for n in options.sizes]
        save(file, list(rows[0]), with_the_others(file, rows))


if __name__ == "__main__":
    main()
