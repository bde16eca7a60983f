"""Which epoch is kept, when training stops, and what a killed run remembers of both."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.trainer.states import TrainerFn
from tests.assembly.test_module import Parts

from l2d.lightning.checkpoints import MONITORS, EpochCheckpoint, read_checkpoint
from l2d.utils.errors import L2DError

LOSS = "val/deferral_loss"
MODULE: Any = torch.nn.Linear(1, 1)


DAMAGES: dict[str, Callable[[Path], object]] = {
    # Unpickling it would run what the file says.
    "code": lambda path: torch.save({"epoch": 1, "hidden": Path("x")}, path),
    "no_pickle": lambda path: path.write_bytes(b"no"),
    "missing": lambda path: path.unlink(missing_ok=True),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named(damage: str, tmp_path: Path) -> None:
    DAMAGES[damage](tmp_path / "last.ckpt")
    with pytest.raises(L2DError, match=r"last\.ckpt: .*force=true"):
        read_checkpoint(tmp_path / "last.ckpt")


def in_epoch(number: int, measured: dict[str, float], others_stop: bool = False) -> Any:
    """What a checkpoint looks at of a trainer after an epoch, counted from 0. others_stop: another rank wants to."""
    agreed = SimpleNamespace(broadcast=lambda due: due, reduce_boolean_decision=lambda own, **_: own or others_stop)
    flags = {"should_stop": False, "is_global_zero": True, "fast_dev_run": False, "sanity_checking": False}
    metrics = {name: torch.tensor(value) for name, value in measured.items()}
    state = SimpleNamespace(fn=TrainerFn.FITTING)
    more = {"callback_metrics": metrics, "state": state, "strategy": agreed, "save_checkpoint": Path.touch}
    return SimpleNamespace(current_epoch=number, max_epochs=99, **flags, **more)


@pytest.mark.parametrize(("checkpoint", "epoch"), [("best", 1), ("best_loss", 2), ("last", None)])
def test_the_epoch_that_is_kept(checkpoint: str, epoch: int | None, tmp_path: Path) -> None:
    keeper = EpochCheckpoint(tmp_path, MONITORS[checkpoint])
    weight = torch.tensor(-1)  # as in training, it changes in place
    module: Any = SimpleNamespace(state_dict=lambda: {"epoch": weight})
    for number, (deferral, loss) in enumerate([(0.5, 3.0), (0.4, 2.0), (0.4, 1.0), (0.6, 1.5)]):
        weight.fill_(number)
        keeper.on_train_epoch_end(in_epoch(number, {LOSS: deferral, "val/loss": loss}), module)
    assert keeper.best_weights == ({} if epoch is None else {"epoch": torch.tensor(epoch)})
    assert keeper.best_epoch == (None if epoch is None else epoch + 1)
    again = EpochCheckpoint(tmp_path, MONITORS[checkpoint])
    again.load_state_dict(keeper.state_dict())
    assert (again.best, again.best_epoch, again.best_weights) == (keeper.best, keeper.best_epoch, keeper.best_weights)


VALUES = [0.5, 0.4, 0.4, 0.3, 0.35, 0.31]


@pytest.mark.parametrize(("patience", "stop"), [(1, 3), (2, 6), (3, None), (None, None)])
@pytest.mark.parametrize("killed_after", [None, 1, 4])
def test_patience(patience: int | None, stop: int | None, killed_after: int | None, tmp_path: Path) -> None:
    """Equal to the best is no new best. A run that is killed after an epoch counts on where it was."""
    checkpoint = EpochCheckpoint(tmp_path, LOSS, patience=patience)
    stopped = None
    for epoch, value in enumerate(VALUES, start=1):
        trainer = in_epoch(epoch - 1, {LOSS: value})
        checkpoint.on_train_epoch_end(trainer, MODULE)
        if trainer.should_stop:
            stopped = epoch
            break
        if epoch == killed_after:
            state = checkpoint.state_dict()
            checkpoint = EpochCheckpoint(tmp_path, LOSS, patience=patience)
            checkpoint.load_state_dict(state)
    assert stopped == stop
    assert checkpoint.out_of_patience == (stop is not None)
    # Killed after its last epoch, it does not train another one.
    again = EpochCheckpoint(tmp_path, LOSS, patience=patience)
    again.load_state_dict(checkpoint.state_dict())
    resumed: Any = SimpleNamespace(should_stop=False)
    again.on_train_start(resumed, MODULE)
    assert resumed.should_stop == again.out_of_patience == (stop is not None)


def test_all_ranks_act_together(tmp_path: Path) -> None:
    """Losses of ranks may differ in the last bit. One that wants to stop stops all, for what comes after fitting too."""
    checkpoint = EpochCheckpoint(tmp_path, LOSS, patience=2)
    for epoch, others_stop in enumerate([False, True]):
        trainer = in_epoch(epoch, {LOSS: 0.5 - epoch / 10}, others_stop)
        checkpoint.on_train_epoch_end(trainer, MODULE)
        assert trainer.should_stop == checkpoint.out_of_patience == others_stop
    # They save when the first one does, whatever their own clocks say. The others wait for it and write nothing.
    checkpoint, saved = EpochCheckpoint(tmp_path / "other", None), list[Path]()
    for told in (False, True):
        trainer = in_epoch(0, {})
        trainer.is_global_zero, trainer.save_checkpoint = False, saved.append
        trainer.strategy.broadcast = lambda _, told=told: told
        checkpoint.on_train_epoch_end(trainer, MODULE)
        assert saved == ([tmp_path / "other" / "last.ckpt"] if told else [])
    assert not (tmp_path / "other").exists()


def test_when_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that takes a second to write is written again after 20 seconds, or if training stops early."""
    clock = [1000.0]
    monkeypatch.setattr("l2d.lightning.checkpoints.time", SimpleNamespace(monotonic=lambda: clock[0]))
    checkpoint, saved = EpochCheckpoint(tmp_path, None), list[float]()

    def save(path: Path) -> None:
        clock[0] += 1
        saved.append(clock[0])
        path.touch()

    for epoch, now in enumerate([1000, 1010, 1020.5, 1021, 1022, 1023]):
        clock[0] = now
        trainer = in_epoch(epoch, {})
        trainer.should_stop, trainer.save_checkpoint = epoch == 4, save
        checkpoint.on_train_epoch_end(trainer, MODULE)
    assert saved == [1001, 1022, 1023]
    with pytest.raises(FileNotFoundError):
        EpochCheckpoint(tmp_path / "gone" / "checkpoints", None).on_train_epoch_end(in_epoch(0, {}), MODULE)


class Falling(pl.LightningModule):
    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self.layer, self.values = torch.nn.Linear(1, 1), values

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        return self.layer(batch).square().mean()

    def validation_step(self, _: torch.Tensor, __: int) -> None:
        self.log(LOSS, self.values[self.current_epoch])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run(folder: Path, epochs: int, resumed: bool) -> tuple[pl.Trainer, EpochCheckpoint]:
    checkpoint = EpochCheckpoint(folder, LOSS, patience=2)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    trainer = pl.Trainer(accelerator="cpu", max_epochs=epochs, callbacks=[checkpoint], log_every_n_steps=1, **quiet)  # type: ignore[arg-type]
    loader: Any = Parts([torch.ones(2, 1)])  # type: ignore[list-item]
    trainer.fit(Falling(VALUES), loader, loader, ckpt_path=folder / "last.ckpt" if resumed else None, weights_only=True)
    return trainer, checkpoint


def test_patience_with_lightning_itself(tmp_path: Path) -> None:
    """Ended after 5 of 6 epochs, resumed, out of patience in the sixth; resumed once more it trains nothing."""
    first, paused = run(tmp_path, 5, resumed=False)
    assert (first.current_epoch, paused.out_of_patience) == (5, False)
    second, done = run(tmp_path, 6, resumed=True)
    assert (second.current_epoch, done.out_of_patience, done.best_epoch) == (6, True, 4)
    state = read_checkpoint(tmp_path / "last.ckpt")  # nothing but tensors and plain values
    assert state["callbacks"]["EpochCheckpoint"]["out_of_patience"]
    third, again = run(tmp_path, 6, resumed=True)
    assert (third.global_step, again.out_of_patience) == (6, True)
