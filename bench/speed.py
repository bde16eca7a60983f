"""Training speed and memory of image sets on a GPU, for docs/speed.md.

    python bench/speed.py --data-dir data                 # all measurements
    python bench/speed.py --data-dir data --only l2d bare # some of them

Speed is measured on SVHN, batches of 1,024, median epoch without the first:
- l2d: `l2d train`, recipe=fast, with an empty and then with a full compile cache.
- streamed: the same, the images in pinned host memory.
- bare: a hand-written loop, images on the GPU; all else is the same. Network and loss are compiled together.
- plain: a DataLoader, 8 workers, torchvision's RandomCrop, ToTensor and Normalize, default precision, no compilation.

svhn, cifar10, cifar100, tiny_imagenet: three epochs for speed and memory.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from l2d.assembly.build import make_router, make_splits
from l2d.config import check, compose
from l2d.core.results import read_metrics
from l2d.core.ridge import channel_statistics
from l2d.data.batches import crop_flip
from records import MADE, Results, about, given_options, markdown

BATCH, EPOCHS = 1024, 6
FIGURES = "images_per_second start_seconds steps_seconds gpu_memory_gib host_memory_gib epochs"
RESULTS = Results("speed", "what", f"dataset data n {FIGURES} {MADE}")
SETS = ("svhn", "cifar10", "cifar100", "tiny_imagenet")
Row = dict[str, Any]
Batch = tuple[torch.Tensor, torch.Tensor]


def l2d(data_dir: str, dataset: str, epochs: int, *overrides: str) -> list[Row]:
    """One row of `l2d train`, from the run's folder."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"dataset={dataset}", f"recipe.epochs={epochs}", *overrides]
        where = [f"data_dir={data_dir}", f"runs_dir={folder}", "progress=false"]
        launched = time.time()
        command = [sys.executable, "-m", "l2d", "train", *arguments, *where]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [file] = Path(folder).rglob("timing.json")
        timing, metrics = json.loads(file.read_text()), read_metrics(file.parent / "metrics.json")
    row = {key: timing[key] for key in RESULTS.fields if key in timing}
    row |= {"n": metrics.rows.train, "start_seconds": timing["first_step_at"] - launched, "epochs": metrics.epochs}
    return [row | {"command": f"l2d train {' '.join(arguments)}"}]


def cold_and_warm(data_dir: str) -> list[Row]:
    """The compile cache is a new one, so the first run fills it and the second finds it full."""
    [cold] = l2d(data_dir, "svhn", 2)
    return [cold | {"what": "cold"}, *l2d(data_dir, "svhn", EPOCHS)]


def parts(data_dir: str) -> tuple[Any, Any]:
    """Splits and router as recipe=fast builds them, but neither compiled nor on the device."""
    off = ["recipe.compile=false", "recipe.channels_last=false"]
    experiment = check(compose(["dataset=svhn", f"data_dir={data_dir}", *off]))
    splits = make_splits(experiment)
    return splits, make_router(experiment, splits)


def rate(step: Callable[[Batch], None], epoch: Callable[[], Iterable[Batch]], epochs: int) -> Row:
    """The median epoch's images per second, without the first epoch."""
    rates, images = [], 0
    for _ in range(epochs):
        torch.cuda.synchronize()
        started, images = time.perf_counter(), 0
        for batch in epoch():
            step(batch)
            images += len(batch[0])
        torch.cuda.synchronize()
        rates.append(images / (time.perf_counter() - started))
    return {"images_per_second": statistics.median(rates[1:]), "n": images, "epochs": epochs}


def bare(data_dir: str) -> list[Row]:
    data, router = parts(data_dir)
    network = router.network.cuda().to(memory_format=torch.channels_last)
    method = router.method.cuda()
    torch.backends.cudnn.benchmark = True

    def losses(images: torch.Tensor, costs: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = method.loss(network(images), costs, costs)
        return loss

    compiled: Any = torch.compile(losses, dynamic=False)
    optimizer = router.make_optimizer(network.parameters())
    images, costs = data.train.inputs.cuda(), data.train.costs.float().cuda()

    def epoch() -> Iterator[Batch]:
        order = torch.randperm(len(images), device="cuda")
        draws = torch.randint(-4, 5, (len(images), 2), device="cuda")
        for rows in order[: len(images) // BATCH * BATCH].split(BATCH):
            yield crop_flip(images[rows], draws[rows], flip=False), costs[rows]

    def step(batch: Batch) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(*batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return [rate(step, epoch, EPOCHS)]


class Images(Dataset[Batch]):
    """One image at a time, as torchvision's datasets give them."""

    def __init__(self, data: Any) -> None:
        mean, std = (torch.tensor(values) / 255 for values in channel_statistics(data.train.source, data.train.rows))
        self.images, self.costs = data.train.inputs.numpy(), data.train.costs.float()
        crop = transforms.RandomCrop(32, padding=4)
        self.transform = transforms.Compose([crop, transforms.ToTensor(), transforms.Normalize(mean, std)])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Batch:
        return self.transform(Image.fromarray(self.images[index])), self.costs[index]


def plain(data_dir: str) -> list[Row]:
    data, router = parts(data_dir)
    network, method = router.network.cuda(), router.method.cuda()
    torch.backends.cudnn.benchmark = False
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    workers: dict[str, Any] = {"num_workers": 8, "pin_memory": True, "persistent_workers": True}
    loader = DataLoader(Images(data), BATCH, shuffle=True, drop_last=True, **workers)

    def step(batch: Batch) -> None:
        images, costs = (tensor.cuda(non_blocking=True) for tensor in batch)
        loss = method.loss(network.head(network.net(images)), costs, costs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return [rate(step, lambda: loader, 4)]


MEASUREMENTS: dict[str, Callable[[str], list[Row]]] = {
    "l2d": cold_and_warm,
    "bare": bare,
    "plain": plain,
    "streamed": lambda data_dir: l2d(data_dir, "svhn", EPOCHS, "trainer.data_on_device=false"),
    **{name: partial(l2d, dataset=name, epochs=3) for name in SETS},
}


def by_what() -> dict[str, Row]:
    """The first row of each measurement."""
    return {row["what"]: row for row in reversed(RESULTS.read())}


def source(rows: list[Row], command: str = "python bench/speed.py") -> str:
    """Command, n, machine, versions and commits of a table."""
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    n = ", ".join(sorted({f"{int(row['n']):,}" for row in rows if row.get("n")}))
    return f"`{command}`; n = {n} training images; {rows[0]['machine']}; {rows[0]['versions']}; commit {commits}."


def speed_table() -> str:
    """Images per second, each beside l2d train's."""
    by = by_what()
    ours = float(by["l2d"]["images_per_second"])
    names = {
        "l2d": "`l2d train`, recipe=fast",
        "bare": "bare loop: same data, augmentation, optimizer and precision; network, head and loss compiled together",
        "plain": "DataLoader, torchvision's RandomCrop, ToTensor, Normalize, 8 workers, default precision",
        "streamed": "`l2d train`, images in pinned host memory (`trainer.data_on_device=false`)",
    }
    rates = {name: float(by[what]["images_per_second"]) for what, name in names.items()}
    rows = [[name, f"{rate:,.0f}", f"{ours / rate:.3f}"] for name, rate in rates.items()]
    head = ("SVHN, batches of 1,024, median epoch", "images/s", "`l2d train` ÷ this")
    return markdown(head, rows) + f"\n\n{source([by[what] for what in names])}"


def start_table() -> str:
    """From the command to the first step."""
    rows = [by_what()[what] for what in ("cold", "l2d")]
    seconds = [f"{float(row['start_seconds']):.1f} s" for row in rows]
    lines = [("empty compile cache", seconds[0]), ("full compile cache", seconds[1])]
    return markdown(("from the command to the end of the first step", "SVHN"), lines) + f"\n\n{source(rows)}"


def memory_table() -> str:
    """Peak memory of each set."""
    rows, lines = [by_what()[name] for name in SETS], []
    for row in rows:
        name = row["dataset"] + (" (random pixels)" if row["data"] != "real" else "")
        sizes = [f"{float(row[key]):.2f} GiB" for key in ("gpu_memory_gib", "host_memory_gib")]
        lines.append([name, f"{int(row['n']):,}", f"{float(row['images_per_second']):,.0f}", *sizes])
    head = ("recipe=fast", "training images", "images/s", "GPU memory, peak", "host memory, peak")
    return markdown(head, lines) + f"\n\n{source(rows)}"


if __name__ == "__main__":
    options = given_options(__doc__, data_dir="data", only=(*MEASUREMENTS,))
    with tempfile.TemporaryDirectory() as compiled:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = compiled
        for what in options.only:
            known = {"what": what, "dataset": what if what in SETS else "svhn", "data": "real"}
            rows = [
                dict.fromkeys(RESULTS.fields, "") | about("") | known | row
                for row in MEASUREMENTS[what](options.data_dir)
            ]
            RESULTS.add({key: round(x, 4) if isinstance(x, float) else x for key, x in row.items()} for row in rows)
