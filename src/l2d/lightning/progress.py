"""Progress bars: epochs count from 1, and a log file has no bars."""

import sys

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar


class EpochsFromOne(TQDMProgressBar):
    """Lightning's bar calls the first of 15 epochs "Epoch 0"; this one "Epoch 1/15"."""

    def on_train_epoch_start(self, trainer: pl.Trainer, *given: object) -> None:
        super().on_train_epoch_start(trainer, *given)
        self.train_progress_bar.set_description(f"Epoch {trainer.current_epoch + 1}/{trainer.max_epochs}")


def is_watched() -> bool:
    """True if somebody can watch a bar, which Lightning writes to stdout: on a terminal or in a notebook."""
    return sys.stdout.isatty() or "ipykernel" in sys.modules
