"""Checkpoints that a killed run can go on from."""

from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from l2d.errors import L2DError
from l2d.files import write_atomically

MONITOR = "val/deferral_loss"


class EpochCheckpoint(pl.callbacks.Checkpoint):
    """After every epoch: best.ckpt if the validation deferral loss is a new low (the first of equals), then last.ckpt.

    In this order, so that a kill between the two repeats the epoch, with the same outcome. Lightning's ModelCheckpoint moves files
    in from another folder, which is not atomic across filesystems.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best = float("inf")
        self.best_epoch = 0

    def on_train_epoch_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        current = float(trainer.callback_metrics[MONITOR])
        if current < self.best:
            self.best, self.best_epoch = current, trainer.current_epoch + 1
            self._save(trainer, "best.ckpt")
        self._save(trainer, "last.ckpt")

    def _save(self, trainer: pl.Trainer, name: str) -> None:
        if trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, trainer.save_checkpoint)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "best_epoch": self.best_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.best_epoch = state_dict["best"], state_dict["best_epoch"]


def load_weights(router: pl.LightningModule, path: Path) -> None:
    """Put the weights of a checkpoint into the router; nothing else in the file is unpickled."""
    router.load_state_dict(read_checkpoint(path)["state_dict"])


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint's content, or a line that names the file and the way out."""
    try:
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise L2DError(
            f"{path}: damaged checkpoint ({type(error).__name__}); force=true starts the run anew"
        ) from error
    return content
