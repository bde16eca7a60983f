"""Writes the marked parts of docs/speed.md and a table of docs/scaling.md, from bench/results/*.csv: python bench/speed_docs.py"""

import statistics
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from l2d.networks.vision import ResNet18
from records import ROOT, Row, grouped, markdown, mean_of, read

RESULTS = ROOT / "bench" / "results"
# Table 1 (a), setup III, MILD, 200 epochs, mean of 5
PAPER = {"svhn": 0.0353, "cifar10": 0.0903, "cifar100": 0.3128}


@cache
def gflop_per_image() -> float:
    """Forward and backward of ResNet-18 on one 32×32 image, two per multiply-add."""
    statistics_of_colours = {"mean": [0.0] * 3, "std": [1.0] * 3}
    network = ResNet18(width=64, stem="3x3", zero_init=False, **statistics_of_colours, num_outputs=5, head="linear")
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)).sum().backward()
    return counter.get_total_flops() / 2 / 1e9


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
    rates = {name: float(by[what][0]["images_per_second"]) for what, name in names.items() if what in by}
    rows = [[name, f"{rate:,.0f}", f"{ours / rate:.3f}"] for name, rate in rates.items()]
    gflop, peak = gflop_per_image(), float(by["matmul"][0]["tflops"])
    reached = ours * gflop / 1e3
    return (
        markdown(("SVHN, batches of 1,024, median epoch", "images/s", "`l2d train` ÷ this"), rows)
        + f"\n\n{source([by[what][0] for what in names if what in by], 'python bench/speed.py')}\n\n"
        + f"A training step is {gflop:.2f} GFLOP an image, so {ours:,.0f} images/s are {reached:.0f} TFLOP/s, "
        + f"{reached / peak:.0%} of the {peak:.0f} TFLOP/s of a bf16 matrix product of 8,192 × 8,192 in the same measurement "
        + f"({reached / 790:.0%} of the 790 of larger products)."
    )


def reached() -> str:
    """The loss of recipe=fast, mean over seeds, and the time until it passes the paper's number."""
    runs = [row for row in read(RESULTS / "sweep_runs.csv") if row["setup"] == "III" and row["what"] != "anew"]
    cells = grouped(runs, lambda row: (row["dataset"], row["method"]))
    lines = []
    for (dataset, method), rows in cells.items():
        losses = [float(row["deferral_loss"]) for row in rows]
        passed = [seconds_to(row, PAPER[dataset]) for row in rows]
        shown = f"{statistics.mean(losses):.4f} ({', '.join(f'{loss:.4f}' for loss in losses)})"
        lines.append([f"{dataset}, {method}, {rows[0]['epochs']} epochs", shown])
        lines[-1].append(f"{mean_of(rows, 'validation_deferral_loss'):.4f}")
        lines[-1].append(", ".join(f"{float(row['steps_seconds']):.1f}" for row in rows) + " s")
        reached = ("never" if seconds is None else f"{seconds:.1f}" for seconds in passed)
        lines[-1] += [f"{PAPER[dataset]:.4f}", ", ".join(reached) + " s"]
    head = ["setup III, error", "test deferral loss, mean (seeds 0, 1, 2)", "validation", "first to last step"]
    head += ["paper's MILD, 200 epochs", "time until validation loss is below that"]
    rows = [row for part in cells.values() for row in part]
    return markdown(head, lines) + f"\n\n{source(rows, 'python bench/sweeps.py --data-dir data')}"


def seconds_to(row: Row, loss: float) -> float | None:
    """From the first step to the end of the first epoch whose validation loss is at most this."""
    pairs = zip(row["validation_by_epoch"].split(), row["seconds_by_epoch"].split(), strict=True)
    return next((float(seconds) for value, seconds in pairs if float(value) <= loss), None)


def sweeps() -> str:
    """The share of training in a sweep."""
    anew = "two runs; compiled code is not kept in memory, only the compiler's cache on disk"
    names = {"cifar100": "default", "anew": anew}
    rows = {row["what"]: row for row in read(RESULTS / "sweeps.csv")}
    lines = []
    for what, name in names.items():
        row = rows[what]
        wall, steps, runs = float(row["wall_seconds"]), float(row["steps_seconds"]), int(row["runs"])
        times = [f"{wall:.0f} s", f"{steps:.0f} s", f"{1 - steps / wall:.0%}"]
        pauses = f"{row['start_seconds']} s, {row['between_seconds']} s"
        lines.append([name, row["runs"], *times, pauses, f"{runs * 3600 / wall:.0f}"])
    head = ["CIFAR-100, one process", "runs", "in all", "training steps", "outside steps"]
    head += ["before the first step, between runs", "runs per GPU-hour"]
    first = rows["cifar100"]
    text = f"`python bench/sweeps.py --data-dir data` ({first['command']}); {first['machine']}; {first['versions']}; "
    return markdown(head, lines) + f"\n\n{text}commit {first['commit']}."


def start(by: dict[str, list[Row]]) -> str:
    """From the command to the first step."""
    rows = {"empty compile cache": by["cold"][0], "full compile cache": by["l2d"][0]}
    lines = [[name, f"{float(row['start_seconds']):.1f} s"] for name, row in rows.items()]
    text = source(list(rows.values()), "python bench/speed.py")
    return markdown(("from the command to the end of the first step", "SVHN"), lines) + f"\n\n{text}"


def memory(by: dict[str, list[Row]]) -> str:
    """Peak memory of each set."""
    rows = [by[name][0] for name in ("svhn", "cifar10", "cifar100", "tiny_imagenet")]
    lines = []
    for row in rows:
        name = row["dataset"] + (" (random pixels)" if row["data"] != "real" else "")
        sizes = [f"{float(row[key]):.2f} GiB" for key in ("gpu_memory_gib", "host_memory_gib")]
        lines.append([name, f"{int(row['n']):,}", f"{float(row['images_per_second']):,.0f}", *sizes])
    head = ("recipe=fast", "training images", "images/s", "GPU memory, peak", "host memory, peak")
    return markdown(head, lines) + f"\n\n{source(rows, 'python bench/speed.py')}"


def large() -> str:
    """Preparation, training and memory by the number of rows."""
    rows = sorted(read(RESULTS / "rows_large.csv"), key=lambda row: (int(row["rows"]), int(row["batch"])))
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


def sharing() -> str:
    """Runs at once on one GPU."""
    rows = read(RESULTS / "sharing.csv")
    first, keys = rows[0], ("runs_at_once", "images_per_second", "svhn_runs_per_gpu_hour", "seconds")
    lines = [[f"{int(row[key]):,}" if key.startswith("images") else row[key] for key in keys] for row in rows]
    text = "`bench/sharing.py` of that commit: 16 runs of Table 1 (a), recipe=fast; "
    text += f"{first['machine']}, {first['cpu_cores']} CPU cores; "
    text += f"{first['versions']}; commit {first['commit']}. The shorter the time measured, the rougher the figure."
    head = ("runs at once", "images/s, all together", "SVHN runs per GPU-hour", "measured for, s")
    return markdown(head, lines) + f"\n\n{text}"


def parts() -> dict[str, str]:
    """The tables of docs/speed.md by their marks."""
    by = grouped(read(RESULTS / "speed.csv"), lambda row: row["what"])
    found = {"speed": speed(by), "start": start(by), "memory": memory(by)}
    return found | {"reached": reached(), "sweeps": sweeps(), "large": large()}
