"""What only a real device shows: compilation, pinned memory, running out of memory, half precision.

Needs neither fixtures nor pytest: `PYTHONPATH=src python tests/lightning/test_gpu.py` runs all of them.
"""

import contextlib
import io
import re
import sys
import traceback
import warnings
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from l2d.assembly.module import RouterModule
from l2d.config import Recipe
from l2d.core.out_of_memory import free_memory
from l2d.data.arrays import Arrays
from l2d.data.batches import Batches, Inputs, place
from l2d.experts.classifier import Classifiers
from l2d.experts.request import ComputeOptions
from l2d.lightning.learner import Learner, make_trainer, on_gpu
from l2d.methods.comp_sum import CompSum
from l2d.networks.network import Network
from l2d.networks.tabular import MLP

with contextlib.suppress(ImportError):
    import pytest

    pytestmark = pytest.mark.gpu

P = 3
GPU = torch.device("cuda")


class Images(Network):
    """A small network with what ResNets are made of, from uint8 images [B, H, W, C]. timm may be missing."""

    expects = "images"

    def __init__(self, *, width: int = 16, num_outputs: int = P, head: str = "linear") -> None:  # noqa: ARG002
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(width, num_outputs)

    def features(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.net(inputs.permute(0, 3, 1, 2).float() / 255)
        return features


def image_set(n: int, side: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    """Images whose brightness says which expert is right: inputs, costs, labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(P, (n,), generator=generator)
    noise = torch.randint(0, 60, (n, side, side, 3), generator=generator)
    return (noise + 60 * labels[:, None, None, None]).to(torch.uint8), 1 - torch.eye(P)[labels], labels


class Losses(pl.Callback):
    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, _: pl.Trainer, __: pl.LightningModule, outputs: Any, *___: Any) -> None:
        self.values.append(float(outputs["loss"]))


def losses_of(compile_mode: str, precision: str = "32-true", epochs: int = 3) -> list[float]:
    """The losses of a seeded run: four full batches and a smaller one an epoch, and validation between epochs."""
    torch.manual_seed(0)
    inputs, costs, labels = image_set(587)
    rows = torch.arange(len(inputs))
    method = CompSum(costs=costs, num_classes=P, decision="argmax", rewards="sum_others", rho=1.0, tau=1.0)
    optimizer = partial(torch.optim.AdamW, lr=1e-3, fused=True)
    speed: dict[str, Any] = {"schedule": "one_cycle", "channels_last": True, "compile_mode": compile_mode}
    router = RouterModule(network=Images(), method=method, optimizer=optimizer, **speed)
    losses = Losses()
    options: dict[str, Any] = {"accelerator": "gpu", "devices": 1, "precision": precision, "callbacks": [losses]}
    options |= {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "num_sanity_val_steps": 0}
    trainer = make_trainer(max_epochs=epochs, log_every_n_steps=1, **options)
    placed = place(inputs, GPU, "true")
    train = Batches(placed, rows, costs, labels, 120, seed=0, augment="crop_flip", pad=2)
    assert train.sizes == [118, 118, 118, 118, 115]
    trainer.fit(router, train, Batches(placed, rows[:100], costs[:100], labels[:100], 64))
    return losses.values


def agree(found: list[float], expected: list[float], tolerance: float) -> None:
    assert len(found) == len(expected) > 10
    for step, (one, other) in enumerate(zip(found, expected, strict=True), start=1):
        assert abs(one - other) <= tolerance * abs(other), f"step {step}: {one} and {other}"


def test_compiled_steps_are_the_eager_ones() -> None:
    """Also where full and smaller batches, compiled and not, take turns."""
    eager = losses_of("false")
    assert eager[-1] < eager[0]
    torch.compiler.reset()
    agree(losses_of("default"), eager, 1e-3)


def test_a_second_run_reuses_compiled_code() -> None:
    torch.compiler.reset()
    first = losses_of("default")
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    agree(losses_of("default"), first, 1e-3)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled > 0


def test_memory_does_not_grow_from_run_to_run() -> None:
    taken = []
    for _ in range(6):
        losses_of("default", epochs=1)
        free_memory()
        taken.append(torch.cuda.memory_allocated())
    assert taken[-1] <= taken[1], taken


def test_half_precision_training_is_near_full_precision() -> None:
    torch.compiler.reset()
    agree(losses_of("default", "bf16-mixed"), losses_of("false"), 5e-2)


def test_streamed_batches_are_the_resident_ones() -> None:
    """Through pinned memory, with augmentation; and texts, which are cut to a batch's longest."""
    images, costs, labels = image_set(70)
    texts = torch.full((70, 40), -1, dtype=torch.int32)
    for row in range(70):
        texts[row, : 1 + row % 40] = row
    for inputs, options in ((images, {"augment": "crop_flip", "pad": 2}), (texts, {})):
        rows = torch.arange(3, 70)
        resident, streamed = (
            Batches(Inputs(inputs, GPU, kept), rows, costs[rows], labels[rows], 16, seed=1, **options)  # type: ignore[arg-type]
            for kept in (True, False)
        )
        assert resident.inputs.tensor.is_cuda
        assert not streamed.inputs.tensor.is_cuda
        for one, other in zip(resident, streamed, strict=True):
            assert all(part.is_cuda for part in (*one, *other))
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_set_that_does_not_fit_is_streamed() -> None:
    free, _ = torch.cuda.mem_get_info()
    small = torch.zeros(10, 4)
    assert place(small, GPU, "auto").resident
    large = torch.empty(1, dtype=torch.uint8).expand(free // 2 + 1)  # nothing is allocated
    assert not place(large, GPU, "auto").resident


def test_out_of_memory_halves_the_batch() -> None:
    """A classifier for which the device has room for half of a batch at a time, or a quarter, but not for a whole one."""
    inputs, _, labels = image_set(512, side=64)
    plain: dict[str, Any] = {"precision": "32-true", "channels_last": False, "compile": "false", "fused": False}
    plain |= {"schedule": "constant", "augment": "none", "patience": None}
    recipe = Recipe(epochs=1, batch_size=512, optimizer=partial(torch.optim.SGD, lr=0.01), **plain)
    arrays = Arrays(inputs, labels, inputs[:8], labels[:8], num_classes=P)
    compute = ComputeOptions(accelerator="gpu", data_on_device="true")

    def trained() -> tuple[str, int]:
        """What was said, and how much memory it took."""
        free_memory()
        torch.cuda.reset_peak_memory_stats()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            found, _ = Classifiers(arrays, partial(Images, width=64), recipe, compute).answers(
                torch.arange(512), torch.arange(8), False, 0, "expert"
            )
        assert len(found) == 8
        return said.getvalue(), torch.cuda.max_memory_allocated()

    said, peak = trained()
    assert said == ""
    free_memory()
    total = torch.cuda.get_device_properties(GPU).total_memory
    try:
        # Part of the peak is workspace that cuDNN can do without, so where the room ends is found out.
        for share in (0.7, 0.5, 0.35, 0.25):
            torch.cuda.set_per_process_memory_fraction(share * peak / total)
            said, less = trained()
            if said:
                break
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    numbers = [int(number) for number in re.findall(r"\d+", said.splitlines()[0])]
    assert numbers == [512, 512, 2, 256], said
    assert less < share * peak
    # There is room again, and nothing of the failed step is left.
    assert trained()[0] == ""


def test_scores_are_in_full_precision() -> None:
    """In half precision scores tie, and ties decide for the last expert."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"mean": [0.0] * 8, "std": [1.0] * 8, "num_outputs": P, "head": "linear"}
    network = MLP(width=32, depth=2, dropout=0.0, **shape).to(GPU).eval()
    rows = torch.randn(2000, 8, device=GPU)
    with torch.no_grad():
        full = network(rows)
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cuda", dtype):
                scores = network(rows)
            assert scores.dtype == torch.float32
            assert (scores - full).abs().max() < 0.05
            top = scores.sort(dim=1).values
            assert (top[:, -1] > top[:, -2]).all()


def test_the_devices_random_stream_is_in_the_checkpoint() -> None:
    """Dropout on the device of a resumed run draws what an unbroken one would have drawn."""
    plain: dict[str, Any] = {"schedule": "constant", "channels_last": False, "compile_mode": "false"}
    learner = Learner(network=nn.Linear(1, 1), optimizer=partial(torch.optim.SGD, lr=0.1), **plain).to(GPU)
    checkpoint: dict[str, Any] = {}
    learner.on_save_checkpoint(checkpoint)
    expected = torch.rand(3, device=GPU)
    torch.rand(7, device=GPU)
    learner.on_load_checkpoint(checkpoint)
    assert torch.equal(torch.rand(3, device=GPU), expected)
    assert on_gpu("auto")


def main() -> None:
    """All tests of this file, without pytest. Status 1 if one failed, or if there is no device."""
    if not torch.cuda.is_available():
        sys.exit("no CUDA device: nothing was tested")
    warnings.simplefilter("ignore")
    found = {name: test for name, test in globals().items() if name.startswith("test_")}
    failed = []
    for name, test in found.items():
        try:
            test()
        except Exception:
            traceback.print_exc()
            failed.append(name)
        print(f"{'FAILED' if name in failed else 'passed'} {name}", flush=True)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {len(failed)} of {len(found)} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
