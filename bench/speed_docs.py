"""Writes the marked parts of docs/speed.md, from bench/results/*.csv."""

import csv
import re
import statistics
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from l2d.networks.vision import ResNet18
from provenance import ROOT
from records import put

RESULTS = ROOT / "bench" / "results"
DOCS = ROOT / "docs" / "speed.md"
# Table 1 (a), setup III, MILD, 200 epochs, mean of 5
PAPER = {"svhn": 0.0353, "cifar10": 0.0903, "cifar100": 0.3128}
Row = dict[str, Any]


@cache
def gflop_per_image() -> float:
    """Forward and backward of ResNet-18 on one 32×32 image, two per multiply-add."""
    network = ResNet18(
        width=64, stem="3x3", zero_init=False, mean=[0.0] * 3, std=[1.0] * 3, num_outputs=5, head="linear"
    )
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).sum().backward()
    return counter.get_total_flops() / 2 / 1e9


def table(head: str, rows: list[list[str]]) -> str:
    columns = head.count("|") + 1
    return "\n".join([f"| {head} |", "|---" * columns + "|", *(f"| {' | '.join(row)} |" for row in rows)])


def source(rows: list[Row], command: str) -> str:
    """Command, n, machine, versions and commits of a table."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    n = ", ".join(sorted({f"{int(row['n']):,}" for row in rows if row.get("n")}))
    return f"`{command}`; n = {n} training images; {rows[0]['machine']}; {rows[0]['versions']}; commit {commits}."


def speed(by: dict[str, list[Row]]) -> str:
    """Images per second, each beside l2d train's."""
    ours = float(by["l2d"][0]["images_per_second"])
    names = {
        "l2d": "`l2d train`, recipe=fast",
        "bare": "bare loop: same data, augmentation, optimizer and precision; network, head and loss compiled together",
        "plain": "DataLoader, torchvision's RandomCrop, ToTensor, Normalize, 8 workers, default precision",
        "plain_uint8": "the same, but workers return uint8 and the GPU normalises",
        "streamed": "`l2d train`, images in pinned host memory (`trainer.data_on_device=false`)",
        "deterministic": "`l2d train`, `trainer.deterministic=true`",
    }
    rows = []
    for what, name in names.items():
        if what not in by:
            rows.append([name, "not measured", ""])
            continue
        rate = float(by[what][0]["images_per_second"])
        rows.append([name, f"{rate:,.0f}", f"{ours / rate:.3f}" if what != "l2d" else ""])
    gflop, peak = gflop_per_image(), float(by["matmul"][0]["tflops"])
    reached = ours * gflop / 1e3
    return (
        table("SVHN, batches of 1,024, median epoch | images/s | `l2d train` ÷ this", rows)
        + f"\n\n{source([by[what][0] for what in names if what in by], 'python bench/speed.py')}\n\n"
        + f"A training step is {gflop:.2f} GFLOP an image, so {ours:,.0f} images/s are {reached:.0f} TFLOP/s, "
        + f"{reached / peak:.0%} of the {peak:.0f} TFLOP/s of a bf16 matrix product of 8,192 × 8,192 in the same measurement "
        + f"({reached / 790:.0%} of the 790 of larger products)."
    )


def reached(_: dict[str, list[Row]]) -> str:
    """What recipe=fast gives, mean over seeds, and when it passes the paper's number."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in read(RESULTS / "sweep_runs.csv"):
        if row["setup"] == "III" and row["what"] != "anew":
            cells.setdefault((row["dataset"], row["method"]), []).append(row)
    lines = []
    for (dataset, method), rows in cells.items():
        losses = [float(row["deferral_loss"]) for row in rows]
        passed = [seconds_to(row, PAPER[dataset]) for row in rows]
        lines.append(
            [
                f"{dataset}, {method}, {rows[0]['epochs']} epochs",
                f"{statistics.mean(losses):.4f} ({', '.join(f'{loss:.4f}' for loss in losses)})",
                f"{statistics.mean(float(row['validation_deferral_loss']) for row in rows):.4f}",
                ", ".join(f"{float(row['steps_seconds']):.1f}" for row in rows) + " s",
                f"{PAPER[dataset]:.4f}",
                ", ".join("never" if seconds is None else f"{seconds:.1f}" for seconds in passed) + " s",
            ]
        )
    head = "setup III, error | test deferral loss, mean (seeds 0, 1, 2) | validation | first to last step"
    head += " | paper's MILD, 200 epochs | time until validation loss is below that"
    rows = [row for part in cells.values() for row in part]
    return table(head, lines) + f"\n\n{source(rows, 'python bench/sweeps.py --data-dir data')}"


def seconds_to(row: Row, loss: float) -> float | None:
    """From the first step to the end of the first epoch whose validation loss is at most this."""
    pairs = zip(row["validation_by_epoch"].split(), row["seconds_by_epoch"].split(), strict=True)
    return next((float(seconds) for value, seconds in pairs if float(value) <= loss), None)


def sweeps(_: dict[str, list[Row]]) -> str:
    """How much of a sweep is training."""
    names = {
        "cifar100": "default",
        "anew": "two runs; compiled code is not kept in memory, only the compiler's cache on disk",
    }
    rows = {row["what"]: row for row in read(RESULTS / "sweeps.csv")}
    lines = []
    for what, name in names.items():
        if what not in rows:
            lines.append([name, *["not measured"] * 6])
            continue
        row = rows[what]
        wall, steps, runs = float(row["wall_seconds"]), float(row["steps_seconds"]), int(row["runs"])
        lines.append(
            [
                name,
                row["runs"],
                f"{wall:.0f} s",
                f"{steps:.0f} s",
                f"{1 - steps / wall:.0%}",
                f"{row['start_seconds']} s, {row['between_seconds']} s",
                f"{runs * 3600 / wall:.0f}",
            ]
        )
    head = (
        "CIFAR-100, one process | runs | in all | training steps | outside steps | before the first step, between runs"
    )
    head += " | runs per GPU-hour"
    first = rows["cifar100"]
    text = f"`python bench/sweeps.py --data-dir data` ({first['command']}); {first['machine']}; {first['versions']}; "
    return table(head, lines) + f"\n\n{text}commit {first['commit']}."


def start(by: dict[str, list[Row]]) -> str:
    """From the command to the first step."""
    lines = [
        [name, f"{float(by[what][0]['start_seconds']):.1f} s"]
        for what, name in (("cold", "empty compile cache"), ("l2d", "full compile cache"))
    ]
    rows = [by[what][0] for what in ("cold", "l2d")]
    return (
        table("from the command to the end of the first step | SVHN", lines)
        + f"\n\n{source(rows, 'python bench/speed.py')}"
    )


def memory(by: dict[str, list[Row]]) -> str:
    """Peak memory of each set."""
    rows = [by[name][0] for name in ("svhn", "cifar10", "cifar100", "tiny_imagenet")]
    lines = [
        [
            row["dataset"] + (" (random pixels)" if row["data"] != "real" else ""),
            f"{int(row['n']):,}",
            f"{float(row['images_per_second']):,.0f}",
            f"{float(row['gpu_memory_gib']):.2f} GiB",
            f"{float(row['host_memory_gib']):.2f} GiB",
        ]
        for row in rows
    ]
    head = "recipe=fast | training images | images/s | GPU memory, peak | host memory, peak"
    return table(head, lines) + f"\n\n{source(rows, 'python bench/speed.py')}"


def kernels(_: dict[str, list[Row]]) -> str:
    """The kernels of one step by kind."""
    rows = read(RESULTS / "kernels.csv")
    times = {
        "convolutions (cuDNN)": 0.0,
        "batch normalisation, ReLU, additions (compiled)": 0.0,
        "everything else": 0.0,
    }
    for row in rows:
        conv = re.search("fprop|dgrad|wgrad|onvolution", row["kernel"])
        kind = 1 if row["kernel"].startswith("triton") else 0 if conv else 2
        times[list(times)[kind]] += float(row["ms"])
    whole = 1024e3 / float(read(RESULTS / "variants.csv")[0]["images_per_second"])
    rest = whole - sum(times.values())
    step = 1024 * gflop_per_image() / times["convolutions (cuDNN)"]
    lines = [[kind, f"{ms:.1f} ms"] for kind, ms in times.items()]
    lines.append(["shorter kernels and gaps", f"{rest:.1f} ms"])
    text = f"`python bench/variants.py`, the {len(rows)} longest kernels of a step of 1,024 images; "
    text += f"the convolutions run at {step:.0f} TFLOP/s."
    return table("kernels of one step | time", lines) + f"\n\n{text}"


def variants(_: dict[str, list[Row]]) -> str:
    """More compilation, for the bare step."""
    rows = read(RESULTS / "variants.csv")
    lines = [
        [row["variant"], f"{int(row['images_per_second']):,}", f"{row['ready_seconds'] or 'compiled already'}"]
        for row in rows
    ]
    first = rows[0]
    text = (
        f"`python bench/variants.py --coordinate-descent`; {first['steps']} steps of {first['batch']} random images; "
    )
    text += f"{first['machine']}; {first['versions']}; commit {first['commit']}."
    return table("bare step as one CUDA graph | images/s | ready after, s", lines) + f"\n\n{text}"


def small(_: dict[str, list[Row]]) -> str:
    """Where the time of a small run goes."""
    rows = read(RESULTS / "rows_small.csv")
    whole = float(rows[0]["seconds"])
    lines = [[row["what"], f"{float(row['seconds']):.2f} s", f"{float(row['seconds']) / whole:.0%}"] for row in rows]
    first = rows[0]
    head = f"{int(first['rows']):,} rows × {first['features']} features (simulated), {first['epochs']} epochs | per run | of a run"
    return table(head, lines) + f"\n\n{on_cpu(rows)}"


def large(_: dict[str, list[Row]]) -> str:
    """Preparation, training and memory by the number of rows."""
    if not (RESULTS / "rows_large.csv").exists():
        return "Large tables of text: not measured yet (`python bench/rows.py --only large`)."
    rows = read(RESULTS / "rows_large.csv")
    lines = [
        [
            f"{int(row['rows']):,}",
            f"{int(row['batch']):,}",
            f"{float(row['prepare_seconds']):.1f} s",
            f"{float(row['prepare_seconds']) / int(row['rows']) * 1e6:.0f} µs",
            f"{int(row['rows_per_second']):,}",
            f"{int(row['bare_rows_per_second']):,}",
            f"{int(row['rows_per_second']) / int(row['bare_rows_per_second']):.2f}",
            f"{row['memory_gib']} GiB",
            row["machine"].removesuffix(", 2 cores"),
        ]
        for row in rows
    ]
    head = (
        "rows of text (simulated) | batch | prepared in | per row | trained rows/s | bare loop, rows/s | ratio"
        " | memory, peak | two cores of"
    )
    return table(head, lines) + f"\n\n{on_cpu(rows)}"


def on_cpu(rows: list[Row]) -> str:
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    where = "; ".join(sorted({f"{row['machine']}; {row['versions']}" for row in rows}))
    return f"`{rows[0]['command']}`; {where}; commit {commits}."


PARTS: dict[str, Callable[[dict[str, list[Row]]], str]] = {
    "speed": speed,
    "reached": reached,
    "sweeps": sweeps,
    "start": start,
    "memory": memory,
    "kernels": kernels,
    "variants": variants,
    "small": small,
    "large": large,
}


def sharing(_: dict[str, list[Row]]) -> str:
    """Runs at once on one GPU."""
    rows = read(RESULTS / "sharing.csv")
    lines = [
        [row["runs_at_once"], f"{int(row['images_per_second']):,}", row["svhn_runs_per_gpu_hour"], row["seconds"]]
        for row in rows
    ]
    first = rows[0]
    text = f"`python bench/sharing.py`: 16 runs of Table 1 (a), recipe=fast; {first['machine']}, {first['cpu_cores']} CPU cores; "
    text += f"{first['versions']}; commit {first['commit']}. The shorter the time measured, the rougher the figure."
    head = "runs at once | images/s, all together | SVHN runs per GPU-hour | measured for, s"
    return table(head, lines) + f"\n\n{text}"


def write_docs(rows: list[Row]) -> None:
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(row["what"], []).append(row)
    parts = {name: part(by) for name, part in PARTS.items()}  # all of them, before any is written
    put(DOCS.with_name("scaling.md"), "sharing", sharing(by))
    for name, text in parts.items():
        put(DOCS, name, text)


def read(file: Path) -> list[Row]:
    with file.open(newline="", encoding="utf-8") as content:
        return list(csv.DictReader(content))


if __name__ == "__main__":
    write_docs(read(RESULTS / "speed.csv"))
