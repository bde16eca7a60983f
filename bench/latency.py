"""The time of a trained router on a CPU, from queries in Python to choices: python bench/latency.py

Each router is trained for one epoch first, since the weights do not change the time. A call is `Router.route` on a batch of
different queries: hashing or embedding the texts, the network, p̂ and the decision. Loading is timed by itself.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch looks: the encoder would go to a GPU

import torch

from l2d.assembly.make import make_dataset
from l2d.config import check, compose
from l2d.router.router import Router
from records import Results, about, grouped, markdown, trained

BATCHES, SECONDS = (1, 8, 64, 512), 3.0
FIGURES = "n ms_per_call ms_per_query ms_slowest load_seconds threads commit machine versions"
CALLS = Results("latency", "router dataset batch", FIGURES)
ROUTERS = {
    "mlp": ["dataset=mmlu_sim", "dataset.questions=1600"],
    "minilm": ["dataset=mmlu_sim", "dataset.questions=1600", "router=minilm"],
    "resnet18_slim": ["dataset=digits"],
}
Row = dict[str, Any]


def prepared(overrides: list[str], folder: Path) -> tuple[Path, Any]:
    """The folder of a run of one epoch, and at least 512 inputs to ask it about."""
    where = [f"runs_dir={folder / 'runs'}", f"data_dir={folder / 'data'}", "progress=false", "trainer.accelerator=cpu"]
    overrides = [*overrides, *where, "recipe.epochs=1"]
    run, _ = trained(overrides)
    arrays = make_dataset(check(compose(overrides))).load(folder / "data")
    queries = arrays.texts[1] if arrays.texts is not None else arrays.train_inputs.numpy()
    return run.path, queries


def measure(path: Path, queries: Any) -> list[Row]:
    """The median call of each batch size, over at least three calls and SECONDS. The first call is not timed."""
    started = time.perf_counter()
    router = Router.load(path)
    router.route(queries[:1])
    load_seconds = time.perf_counter() - started
    rows = []
    for batch in BATCHES:
        starts = range(0, len(queries) - batch + 1, batch)
        router.route(queries[:batch])
        times: list[float] = []
        while len(times) < 3 or sum(times) < SECONDS:
            start = starts[len(times) % len(starts)]
            begun = time.perf_counter()
            router.route(queries[start : start + batch])
            times.append(time.perf_counter() - begun)
        middle = 1000 * statistics.median(times)
        row = {"batch": batch, "n": len(times), "ms_per_call": round(middle, 3), "load_seconds": round(load_seconds, 2)}
        rows.append(row | {"ms_per_query": round(middle / batch, 4), "ms_slowest": round(1000 * max(times), 3)})
    return rows


def table(rows: Sequence[Row]) -> str:
    """Milliseconds per query by router and batch size."""
    lines = []
    ordered = sorted(rows, key=lambda row: (list(ROUTERS).index(row["router"]), int(row["batch"])))
    for name, some in grouped(ordered, lambda row: row["router"]).items():
        here = {int(row["batch"]): row for row in some}
        times = [f"{float(here[batch]['ms_per_query']):.3g} ms" for batch in BATCHES]
        lines.append([f"`{name}` ({here[1]['dataset']})", *times, f"{float(here[1]['load_seconds']):.1f} s"])
    first, calls = ordered[0], min(int(row["n"]) for row in rows)
    where = f"{first['machine']}, {first['threads']} threads; {first['versions']}; commit {first['commit']}"
    head = ("router", *(f"{batch} at a time" for batch in BATCHES), "loading")
    return f"{markdown(head, lines)}\n\nPer query, median of at least {calls} calls; {where}."


if __name__ == "__main__":
    made = {"threads": torch.get_num_threads(), **about("python bench/latency.py")}
    for name, overrides in ROUTERS.items():
        dataset = overrides[0].removeprefix("dataset=")
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(*prepared(overrides, Path(folder)))
        CALLS.add({"router": name, "dataset": dataset, **row, **made} for row in rows)
