"""Training speed on a GPU: l2d.train beside a bare loop on the same data and the plain way, in one run.

    python bench/speed.py --data-dir data --dataset svhn

- bare: a hand-written loop, images on the GPU, the same network, augmentation, loss, precision and compilation, nothing else.
- plain: a DataLoader with torchvision transforms and 8 workers, default precision, no compilation.
- l2d: `python -m l2d.train` with recipe=fast, from timing.json: the median epoch, the first left out.

All with batches of 1,024. Writes bench/results/speed.csv.
"""

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision import transforms

from l2d.build import build
from l2d.config import compose
from l2d.data.augment import crop_flip, draw
from provenance import ROOT, commit, machine, versions

BATCH = 1024
Batch = tuple[torch.Tensor, torch.Tensor]


def parts(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Data and router as recipe=fast builds them, but neither compiled nor on the device."""
    plain = ["recipe.compile=false", "recipe.channels_last=false"]
    return build(compose([f"dataset={arguments.dataset}", f"data_dir={arguments.data_dir}", *plain]))


def rate(step: Callable[[Batch], None], epochs: Iterable[Iterable[Batch]]) -> float:
    """Images per second of the median epoch, the first left out."""
    rates = []
    for epoch in epochs:
        torch.cuda.synchronize()
        started, images = time.perf_counter(), 0
        for batch in epoch:
            step(batch)
            images += len(batch[0])
        torch.cuda.synchronize()
        rates.append(images / (time.perf_counter() - started))
    return statistics.median(rates[1:])


def bare(arguments: argparse.Namespace) -> float:
    data, router = parts(arguments)
    network = router.network.cuda().to(memory_format=torch.channels_last)
    method = router.method.cuda()
    torch.backends.cudnn.benchmark = True
    compiled: Any = torch.compile(network, dynamic=False, mode="reduce-overhead")
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-3, fused=True)
    images, costs = data.train.inputs.cuda(), data.train.costs.float().cuda()
    flip = data.augment == "crop_flip"

    def epochs() -> Iterator[Iterator[Batch]]:
        for _ in range(arguments.epochs):
            order = torch.randperm(len(images), device="cuda")
            draws = draw(len(images), 4, torch.Generator()).cuda()
            full = order[: len(images) // BATCH * BATCH]
            yield ((crop_flip(images[rows], draws[: len(rows)], flip), costs[rows]) for rows in full.split(BATCH))

    def step(batch: Batch) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = method.loss(compiled(batch[0]), batch[1], batch[1]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return rate(step, epochs())


class Transformed(torch.utils.data.Dataset[Batch]):
    """One image at a time through torchvision's transforms, as tutorials do it."""

    def __init__(self, data: Any) -> None:
        self.rows = TensorDataset(data.train.inputs, data.train.costs.float())
        steps = [transforms.ToPILImage(), transforms.RandomCrop(32, padding=4)]
        steps += [transforms.RandomHorizontalFlip()] if data.augment == "crop_flip" else []
        self.transform = transforms.Compose([*steps, transforms.PILToTensor()])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Batch:
        image, costs = self.rows[index]
        return self.transform(image.numpy()).permute(1, 2, 0), costs


def plain(arguments: argparse.Namespace) -> float:
    data, router = parts(arguments)
    network, method = router.network.cuda(), router.method.cuda()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-3)
    workers: dict[str, Any] = {"num_workers": 8, "pin_memory": True, "persistent_workers": True}
    loader = DataLoader(Transformed(data), BATCH, shuffle=True, drop_last=True, **workers)

    def step(batch: Batch) -> None:
        images, costs = (tensor.cuda(non_blocking=True) for tensor in batch)
        loss = method.loss(network(images), costs, costs).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return rate(step, [loader] * 3)


def l2d(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        where = [f"dataset={arguments.dataset}", f"data_dir={arguments.data_dir}", f"runs_dir={folder}"]
        command = [sys.executable, "-m", "l2d.train", *where]
        launched = time.time()
        subprocess.run(
            [*command, f"recipe.epochs={arguments.epochs}", *arguments.override], check=True, stdout=subprocess.DEVNULL
        )
        timing: dict[str, Any] = json.loads(next(Path(folder).rglob("timing.json")).read_text())
    return timing | {"start_seconds": timing["first_step_at"] - launched}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--dataset", default="svhn", choices=["svhn", "cifar10", "cifar100"])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "speed.csv")
    parser.add_argument("override", nargs="*", help="more overrides for l2d.train")
    arguments = parser.parse_args()
    # twice: the second finds the first one's compilations in the cache
    cold, warm = l2d(arguments), l2d(arguments)
    rates = {"l2d": warm["images_per_second"], "bare": bare(arguments), "plain": plain(arguments)}
    row = {
        "dataset": arguments.dataset,
        **{f"{name}_images_per_second": round(value) for name, value in rates.items()},
        "ratio_to_bare": round(rates["l2d"] / rates["bare"], 3),
        "ratio_to_plain": round(rates["l2d"] / rates["plain"], 2),
        "start_seconds_cold": round(cold["start_seconds"], 1),
        "start_seconds_warm": round(warm["start_seconds"], 1),
        "gpu_memory_gib": round(warm["gpu_memory_gib"], 2),
        "host_memory_gib": round(warm["host_memory_gib"], 2),
        "epochs": arguments.epochs,
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    new = not arguments.out.exists()
    with arguments.out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(row)
    for key, value in row.items():
        print(f"{key:>24}  {value}")


if __name__ == "__main__":
    main()
