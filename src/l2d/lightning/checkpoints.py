"""Checkpoints from which a killed run resumes, and early stopping."""

import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically

# The metric that checkpoint=... minimises; None: the last epoch is kept.
MONITORS = {"last": None, "best": "val/deferral_loss", "best_loss": "val/loss"}
SHARE = 0.05  # of the training time, at most, for writing checkpoints


class EpochCheckpoint(pl.callbacks.Checkpoint):
    """last.ckpt after every epoch, or every few if writing would take more than 5 % of the time. folder: None writes no file.
    monitor: it also holds the weights of the epoch with the least value of this metric (the first of equals). patience: training
    ends after so many epochs without a new best. Lightning's ModelCheckpoint is not atomic across filesystems."""

    def __init__(self, folder: Path | None, monitor: str | None, patience: int | None = None) -> None:
        self.folder, self.monitor = folder, monitor
        self.best, self.best_weights = float("inf"), dict[str, Tensor]()
        self.best_epoch: int | None = None
        self.patience, self.out_of_patience = patience if monitor else None, False
        self.written_at, self.write_seconds = time.monotonic(), 0.0

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Lightning restores a killed run's count of epochs without a new best, but not that it had decided to stop."""
        trainer.should_stop = trainer.should_stop or self.out_of_patience

    def on_train_epoch_end(self, trainer: pl.Trainer, router: pl.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if self.monitor and (current := float(trainer.callback_metrics[self.monitor])) < self.best:
            self.best, self.best_epoch = current, epoch
            self.best_weights = {name: value.detach().cpu().clone() for name, value in router.state_dict().items()}
        if self.patience:
            waited = epoch - (self.best_epoch or 0) >= self.patience
            self.out_of_patience = trainer.strategy.reduce_boolean_decision(waited, all=False)  # one rank stops all
            trainer.should_stop = trainer.should_stop or self.out_of_patience
        if self.folder is None:
            return
        due = trainer.should_stop or time.monotonic() - self.written_at >= self.write_seconds / SHARE
        if trainer.strategy.broadcast(due):  # every rank must take part, or none
            self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        assert self.folder is not None
        started = time.monotonic()
        last = self.folder / "last.ckpt"
        if trainer.is_global_zero:
            self.folder.mkdir(exist_ok=True)  # not its parents: a run folder that is gone is an error
            write_atomically(last, trainer.save_checkpoint)
        else:
            trainer.save_checkpoint(last)  # waits for rank 0, writes nothing
        self.written_at = time.monotonic()
        self.write_seconds = self.written_at - started

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("best", "best_epoch", "best_weights", "out_of_patience")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        vars(self).update(state_dict)


def read_checkpoint(path: Path) -> dict[str, Any]:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise L2DError(f"{path}: damaged checkpoint ({type(error).__name__}); force=true starts anew") from error
