"""Checkpoints that a killed run can go on from."""

import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.utils.errors import L2DError
from l2d.utils.files import write_atomically

# What checkpoint=... goes by; none where the last epoch is kept.
MONITORS = {"last": None, "best": "val/deferral_loss", "best_loss": "val/loss"}
# Of the time spent training, at most this share goes into writing checkpoints.
SHARE = 0.05


class EpochCheckpoint(pl.callbacks.Checkpoint):
    """last.ckpt after every epoch, or, where epochs are shorter than twenty writes, after as many as keep writing below 5 %.

    monitor: the weights of the epoch where this was least (the first of equals) travel inside last.ckpt, so that there is never one
    without the other. patience: epochs without a new best after which training is over. stop_after: the
    epoch after which training stops, to be gone on with later.
    Lightning's ModelCheckpoint moves files in from another folder, which is not atomic across filesystems.
    """

    def __init__(
        self, folder: Path, monitor: str | None, stop_after: int | None = None, patience: int | None = None
    ) -> None:
        self.folder, self.monitor, self.stop_after, self.patience = folder, monitor, stop_after, patience
        self.best, self.best_weights = float("inf"), dict[str, Tensor]()
        self.best_epoch: int | None = None
        self.since_best, self.out_of_patience = 0, False
        self.written_at, self.write_seconds = time.monotonic(), 0.0

    def on_train_epoch_end(self, trainer: pl.Trainer, router: pl.LightningModule) -> None:
        if self.monitor and (current := float(trainer.callback_metrics[self.monitor])) < self.best:
            self.best, self.best_epoch, self.since_best = current, trainer.current_epoch + 1, -1
            self.best_weights = {name: value.detach().cpu().clone() for name, value in router.state_dict().items()}
        self.since_best += 1
        self._stop_early(trainer)
        if self.stop_after is not None and trainer.current_epoch + 1 >= self.stop_after:
            trainer.should_stop = True
        last_epoch = trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        due = last_epoch or time.monotonic() - self.written_at >= self.write_seconds / SHARE
        if trainer.strategy.broadcast(due):  # every rank must take part, or none
            self._save(trainer)

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        self._stop_early(trainer)  # as it had when it was killed

    def _stop_early(self, trainer: pl.Trainer) -> None:
        if self.patience is not None:
            # One that stopped alone would leave the others waiting.
            self.out_of_patience = trainer.strategy.broadcast(self.since_best >= self.patience)
            trainer.should_stop = trainer.should_stop or self.out_of_patience

    def _save(self, trainer: pl.Trainer) -> None:
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
        state = {"best": self.best, "best_epoch": self.best_epoch, "best_weights": self.best_weights}
        return state | {"since_best": self.since_best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_weights = state_dict["best"], state_dict["best_weights"]
        self.since_best, self.best_epoch = state_dict.get("since_best", 0), state_dict.get("best_epoch")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint's content, or a line that names the file and the way out; only tensors and plain values are unpickled."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise L2DError(
            f"{path}: damaged checkpoint ({type(error).__name__}); force=true starts the run anew"
        ) from error
    return content
