"""Running out of memory: micro-batches whose gradients add up to the same step, and a kill changes nothing."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from omegaconf import DictConfig
from safetensors.torch import load_file
from tests.conftest import TINY, tiny_for
from tests.data.sets.test_table import separable, write
from tests.running import assembled, build, train
from torch import Tensor

from l2d.assembly.module import RouterModule
from l2d.config import check, compose
from l2d.core.out_of_memory import is_out_of_memory, more_parts
from l2d.data.batches import Batch, Batches, Inputs, even_batch
from l2d.experts.classifier import Classifier
from l2d.lightning.learner import Learner
from l2d.methods.comp_sum import CompSum
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError

Patch = pytest.MonkeyPatch
Captured = pytest.CaptureFixture[str]
FILES = ("metrics.json", "history.csv", "test.npz", "model.safetensors")


def config(folder: Path, *overrides: str) -> DictConfig:
    """135 rows to train on, nine batches of 15, and an MLP: no batch normalisation, no dropout."""
    table = folder / "table.csv"
    given = ["dataset=table", f"dataset.path={table if table.exists() else write(folder, separable(210))}"]
    given += ["validation_fraction=0.2", "router.width=4", "router.dropout=0", "recipe.schedule=one_cycle"]
    given += ["recipe.batch_size=16", "recipe.optimizer.lr=0.03", "recipe.epochs=4"]
    return compose([*tiny_for(given), *given, f"runs_dir={folder / 'runs'}", *overrides])


def folder(cfg: DictConfig) -> Path:
    return RunFolder.of(check(cfg).plain).path


def cramped(most: int, after: int = 0) -> Callable[..., Tensor]:
    """A method's loss, of at most so many rows at a time, after so many batches of any size."""
    real, calls = CompSum.loss, 0

    def loss(self: CompSum, outputs: Tensor, *given: Tensor) -> Tensor:
        nonlocal calls
        calls += outputs.requires_grad
        if outputs.requires_grad and calls > after and len(outputs) > most:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate much.")
        return real(self, outputs, *given)

    return loss


@pytest.fixture
def every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("l2d.lightning.checkpoints.SHARE", float("inf"))


@pytest.mark.parametrize(("n", "size"), [(135, 16), (64, 16), (37, 37), (103, 20), (9, 8), (70, 64)])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_are_the_batches(n: int, size: int, parts: int) -> None:
    """Each batch's rows, in its order, in even parts that count by their rows; a last, smaller batch may come in fewer."""
    rows = torch.arange(n)
    inputs = Inputs(rows[:, None].float(), torch.device("cpu"), True)
    whole, cut = (Batches(inputs, rows, rows[:, None], rows, size, seed=0, parts=number) for number in (1, parts))
    assert whole.batch_size == cut.batch_size == even_batch(n, size)
    assert cut.sizes == [len(labels) for _, _, labels in cut]
    assert len(cut) == len(cut.weights) == len(cut.sizes)
    pieces = list(zip(cut, cut.weights, strict=True))
    for place, (_, _, labels) in enumerate(whole):
        taken = pieces[place * parts : (place + 1) * parts]  # as many as Lightning adds up
        assert torch.cat([part for (_, _, part), _ in taken]).tolist() == labels.tolist()
        expected = [len(part) * parts / len(labels) for (_, _, part), _ in taken]
        assert [weight for _, weight in taken] == pytest.approx(expected)
        assert max(len(part) for (_, _, part), _ in taken) <= -(-whole.batch_size // parts)
    assert -(-len(cut) // parts) == len(whole)


class Steps(pl.Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[int, float, Tensor]] = []

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: object) -> None:
        assert isinstance(module, Learner)
        weights = torch.cat([weight.detach().flatten() for weight in module.network.parameters()])
        if not self.seen or self.seen[-1][0] != trainer.global_step:
            self.seen.append((trainer.global_step, trainer.optimizers[0].param_groups[0]["lr"], weights))
        else:
            assert torch.equal(weights, self.seen[-1][2])  # nothing moves between two steps


@pytest.mark.slow
@pytest.mark.measured
def test_the_steps_are_the_same(tmp_path: Path) -> None:
    """Their number, rates, and weights after each, up to rounding. Six batches of 20 rows, and one of 15 in fewer parts."""
    found = []
    for parts in (1, 2, 4):
        data, router = build(config(tmp_path, "recipe.batch_size=22", "recipe.epochs=2"), parts)
        steps = Steps()
        quiet: Any = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        quiet |= {"enable_model_summary": False, "num_sanity_val_steps": 0, "accumulate_grad_batches": parts}
        trainer = pl.Trainer(accelerator="cpu", max_epochs=2, callbacks=[steps], **quiet)
        trainer.fit(router, datamodule=data)
        found.append(([seen for seen in steps.seen if seen[0]], float(trainer.callback_metrics["train/loss"])))
    (whole, loss), *others = found
    assert len(whole) == 14
    assert len({rate for _, rate, _ in whole}) > 10
    for steps_, loss_ in others:
        assert [(step, rate) for step, rate, _ in steps_] == [(step, rate) for step, rate, _ in whole]
        for (_, _, one), (_, _, other) in zip(steps_, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        assert loss_ == pytest.approx(loss, rel=1e-5)


def said(output: str) -> list[tuple[int, ...]]:
    """The numbers of each such line: rows tried at a time, rows of a batch, micro-batches, rows of the largest."""
    lines = [line for line in output.splitlines() if line.startswith("out of memory")]
    return [tuple(map(int, re.findall(r"\d+", line))) for line in lines]


@pytest.mark.slow
@pytest.mark.usefixtures("every_epoch")
def test_a_run_goes_on_in_parts_to_the_same_router(tmp_path: Path, monkeypatch: Patch, capsys: Captured) -> None:
    """From the third epoch on."""
    whole, cut = (config(tmp_path, "recipe.batch_size=40", f"runs_dir={tmp_path / name}") for name in "ab")
    train(whole)
    assert RunFolder(folder(whole)).timing()["batch_parts"] == 1
    assert not said(capsys.readouterr().out)
    with monkeypatch.context() as patch:
        patch.setattr(CompSum, "loss", cramped(9, after=10))
        train(cut)
    assert said(capsys.readouterr().out) == [(34, 34, 2, 17), (17, 34, 4, 9)]
    assert RunFolder(folder(cut)).timing()["batch_parts"] == 4
    assert yaml.safe_load((folder(cut) / "config.yaml").read_text())["recipe"]["batch_size"] == 40
    expected, found = (load_file(folder(cfg) / "model.safetensors") for cfg in (whole, cut))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    assert (folder(whole) / "model.safetensors").read_bytes() != (folder(cut) / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("every_epoch")
def test_scoring_by_fewer_rows(tmp_path: Path, monkeypatch: Patch, capsys: Captured) -> None:
    """What was trained is not trained again, if there was time for a checkpoint."""
    whole, cut = (config(tmp_path, f"runs_dir={tmp_path / name}") for name in "ab")
    train(whole)
    real, seen = RouterModule.predict_step, 0

    def step(self: RouterModule, batch: Batch, *indices: int) -> Tensor:
        nonlocal seen
        seen = max(seen, len(batch[0]))
        if len(batch[0]) > 32:
            raise torch.OutOfMemoryError("no")
        return real(self, batch, *indices)

    with monkeypatch.context() as patch:
        patch.setattr("l2d.data.batches.EVAL_BATCH", 64)
        patch.setattr(RouterModule, "predict_step", step)
        train(cut)
    assert seen == 42  # the test rows
    output = capsys.readouterr().out
    assert (15, 15, 2, 8) in said(output)
    assert f"epoch 4: {folder(cut)}" in output  # resumed
    assert (folder(cut) / "history.csv").read_bytes() == (folder(whole) / "history.csv").read_bytes()
    with np.load(folder(whole) / "test.npz") as expected, np.load(folder(cut) / "test.npz") as found:
        np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-5)


@pytest.mark.slow
def test_experts_are_trained_in_parts(tmp_path: Path, monkeypatch: Patch, capsys: Captured) -> None:
    small = ["experts.network.width=2", "experts.recipe.epochs=1", "experts.recipe.batch_size=256"]
    cfg = compose([*TINY, "setup=severe", "experts=trained", *small, f"runs_dir={tmp_path}"])
    real, sizes = Classifier.losses, []

    def losses(self: Classifier, inputs: Tensor, *given: Tensor) -> Tensor:
        if len(inputs) > 100:
            raise torch.OutOfMemoryError("no")
        sizes.append(len(inputs))
        return real(self, inputs, *given)

    monkeypatch.setattr(Classifier, "losses", losses)
    assert len(assembled(cfg).panel.names) == 2
    # One expert has five batches of 233 rows, the other one of 142.
    assert said(capsys.readouterr().out) == [(233, 233, 2, 117), (117, 233, 4, 59), (142, 142, 2, 71)]
    assert sorted({*sizes}) == [58, 59, 71]
    monkeypatch.setattr(Classifier, "losses", Mock(side_effect=torch.OutOfMemoryError("no")))
    with pytest.raises(L2DError, match=r"^experts\.recipe\.batch_size=256: .* \d rows"):
        assembled(cfg, renew_experts=True)


@pytest.mark.parametrize(
    ("rows", "parts", "tried", "found"),
    [(8, 1, 8, 2), (9, 1, 9, 2), (7, 1, 7, None), (16, 2, 8, 4), (15, 2, 8, None), (17, 2, 9, 4)],
)
def test_how_far_a_batch_is_cut(rows: int, parts: int, tried: int, found: int | None, capsys: Captured) -> None:
    """To four rows in the smallest micro-batch, and no further. tried: rows in the largest that ran out of memory."""
    full = RuntimeError("out of memory")
    if found is None:
        with pytest.raises(L2DError, match=rf"^recipe\.batch_size=9: .* {tried} rows"):
            more_parts(full, "recipe.batch_size=9", rows, parts)
    else:
        assert more_parts(full, "recipe.batch_size=9", rows, parts) == found
        assert said(capsys.readouterr().out) == [(tried, rows, found, -(-rows // found))]


@pytest.mark.parametrize(
    ("message", "is_it"),
    [
        ("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes", True),
        ("MPS backend out of memory (MPS allocated: 1 GB)", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED", False),
    ],
)
def test_every_devices_own_words_are_known(message: str, is_it: bool) -> None:
    assert is_out_of_memory(RuntimeError(message)) is is_it
