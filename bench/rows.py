"""Routers on large tables of text. Writes bench/results/rows_large.csv.

    python bench/rows.py
    python bench/rows.py --sizes 400000

Simulated texts, two epochs, each size in its own process on the CPU, beside a bare loop with the same network, optimizer and
batches. Rows of other sizes, batches and machines stay in the file. Small tables: bench/auto.py.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from l2d.assembly.make import make
from l2d.config import check, compose
from l2d.networks.tabular import MLP
from records import Results, Row, about, given_options, markdown

FIGURES = "prepare_seconds rows_per_second bare_rows_per_second memory_gib command versions"
LARGE = Results("rows_large", "rows batch machine commit", FIGURES)
EXPERTS = 3
SIZES = (10_000, 100_000, 400_000, 1_000_000)
PLAIN = ("dataset=table", "evaluation=holdout", "trainer.accelerator=cpu", "progress=false")
WORDS = 5_000
BATCH = 512  # of recipe=table


def write_texts(file: Path, n: int) -> None:
    """Texts of 12 to 40 words, drawn like natural words: few are frequent. The first word says who is right."""
    rng = np.random.default_rng(0)
    letters = [rng.integers(0, 26, rng.integers(2, 11)) for _ in range(WORDS)]
    vocabulary = np.array(["".join(chr(97 + c) for c in word) for word in letters])
    words = np.minimum(rng.zipf(1.3, size=(n, 40)) - 1, WORDS - 1)
    lengths = rng.integers(12, 41, n)
    texts = [" ".join(vocabulary[row[:length]]) for row, length in zip(words, lengths, strict=True)]
    logits = np.stack([np.where(words[:, 0] % EXPERTS == k, 2.0, 0.0) for k in range(EXPERTS)], axis=1)
    right = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    outcomes = {f"correct_{name}": right[:, k].astype(np.int8) for k, name in enumerate("abc")}
    parquet.write_table(pa.table({"query": texts} | outcomes), file)


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
        **about("python bench/rows.py"),
    }


def table(rows: Sequence[Row]) -> str:
    """Preparation, training and memory by the number of rows."""
    rows = sorted(rows, key=lambda row: (int(row["rows"]), int(row["batch"])))
    lines = []
    for row in rows:
        rates = [f"{int(row[key]):,}" for key in ("rows_per_second", "bare_rows_per_second")]
        place = [f"{row['memory_gib']} GiB", row["machine"].removesuffix(", 2 cores").removesuffix(" Processor")]
        prepared = f"{float(row['prepare_seconds']):.1f} s"
        lines.append([f"{int(row['rows']):,}", f"{int(row['batch']):,}", prepared, *rates, *place])
    head = ("rows of text (simulated)", "batch", "prepared in", "trained rows/s", "bare loop, rows/s", "memory, peak")
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    where = "; ".join(sorted({f"{row['machine']}; {row['versions']}" for row in rows}))
    return markdown((*head, "two cores of"), lines) + f"\n\n`{rows[0]['command']}`; {where}; commit {commits}."


if __name__ == "__main__":
    options = given_options(__doc__, sizes=SIZES, batch=BATCH)
    LARGE.add(large(n, options.batch) for n in options.sizes)
