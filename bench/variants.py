"""The kernels of a training step, and what more compilation would gain: the bare step as one CUDA graph, without launch overhead.

    python bench/variants.py                          # two minutes on one H200
    python bench/variants.py --coordinate-descent     # and two more for this one

One batch of 1,024 random 32×32 images over and over: gather, crop, flip, ResNet-18, MILD's loss, backward, fused AdamW. Writes
bench/results/variants.csv, and for the first variant the time of each kernel into bench/results/kernels.csv.
"""

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from l2d.data.augment import crop_flip, draw_augmentation
from l2d.methods.comp_sum import comp_sum_loss
from l2d.networks.vision import ResNet18
from provenance import ROOT, commit, machine, versions

RESULTS = ROOT / "bench" / "results"
N, BATCH, STEPS = 65_932, 1024, 60


class PaddedStem(ResNet18):
    """The stem's three input channels filled up to eight, which tensor cores like better."""

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        fill = (0, 0, 0, 0, 0, 5)
        pixels = (inputs.permute(0, 3, 1, 2).to(self.mean.dtype) - self.mean) / self.std
        net: Any = self.net
        stem = F.conv2d(F.pad(pixels, fill), F.pad(net.conv1.weight, fill), padding=1)
        features: torch.Tensor = net.global_pool(
            net.layer4(net.layer3(net.layer2(net.layer1(net.act1(net.bn1(stem))))))
        )
        return features


VARIANTS: dict[str, dict[str, Any]] = {
    "one_graph": {},
    "all_cudnn_algorithms": {"benchmark_limit": 0},
    "padded_stem": {"network": PaddedStem},
    "max_autotune_pointwise": {"options": {"max_autotune_pointwise": True}},
    "coordinate_descent": {"options": {"coordinate_descent_tuning": True}},
}


def measure(
    network: type[ResNet18] = ResNet18, options: dict[str, Any] | None = None, benchmark_limit: int = 10
) -> tuple[float, float, Any]:
    """Images per second, seconds until ready, and a function that replays one step."""
    torch.compiler.reset()
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, benchmark_limit
    started = time.perf_counter()
    norm = {"mean": [110.0] * 3, "std": [50.0] * 3}
    router = network(width=64, stem="3x3", zero_init=False, num_outputs=5, head="linear", **norm)
    router = router.cuda().to(memory_format=torch.channels_last)
    lr = torch.tensor(1e-3, device="cuda")
    optimizer = torch.optim.AdamW(router.parameters(), lr=lr, fused=True, capturable=True)
    images = torch.randint(0, 256, (N, 32, 32, 3), dtype=torch.uint8, device="cuda")
    costs, rho = torch.rand(N, 5, device="cuda"), torch.full((5,), 5.2, device="cuda")
    rows, draws = torch.randint(0, N, (BATCH,), device="cuda"), draw_augmentation(BATCH, 4, torch.Generator()).cuda()

    def mean_loss(rows: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return comp_sum_loss(router(crop_flip(images[rows], draws, flip=True)), costs[rows], rho).mean()

    compiled: Any = torch.compile(mean_loss, dynamic=False, options=options)

    def step() -> None:
        compiled(rows, draws).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    ready = time.perf_counter() - started
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for count in (5, STEPS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(count):
            graph.replay()
        torch.cuda.synchronize()
    return BATCH * STEPS / (time.perf_counter() - started), ready, graph.replay


def kernels(play: Any) -> list[dict[str, Any]]:
    """Milliseconds per step of every kernel."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(5):
            play()
        torch.cuda.synchronize()
    found = sorted(profiled.key_averages(), key=lambda event: -event.device_time_total)
    return [
        {"kernel": event.key[:150], "times": event.count / 5, "ms": round(event.device_time_total / 5e3, 3)}
        for event in found
    ]


def write(file: Path, rows: list[dict[str, Any]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as content:
        writer = csv.DictWriter(content, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--coordinate-descent", action="store_true", help="with the variant that compiles for two minutes"
    )
    slow = parser.parse_args().coordinate_descent
    rows = []
    for name in VARIANTS:
        if name == "coordinate_descent" and not slow:
            continue
        rate, ready, play = measure(**VARIANTS[name])
        rows.append(
            {
                "variant": name,
                "images_per_second": round(rate),
                "ready_seconds": round(ready, 1),
                "batch": BATCH,
                "steps": STEPS,
                "commit": commit(),
                "machine": machine(),
                "versions": versions(),
            }
        )
        print(f"{name}: {rate:,.0f} images/s, ready after {ready:.1f} s")
        if name == "one_graph":
            write(RESULTS / "kernels.csv", [row | rows[0] for row in kernels(play)])
    write(RESULTS / "variants.csv", rows)


if __name__ == "__main__":
    main()
