"""history.csv: loss, validation metrics and learning rate per epoch."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from l2d.utils.files import write_atomically


class HistoryLogger(Logger):
    """One row per epoch in history.csv, written atomically. Logging an epoch again, as a resumed run does, drops later epochs."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.rows: dict[int, dict[str, Any]] = {}
        if file.exists():
            with file.open(newline="", encoding="utf-8") as lines:
                self.rows = {int(row["epoch"]): row for row in csv.DictReader(lines)}

    @property
    def name(self) -> str:
        return "history"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        """config.yaml has them."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        epoch = int(metrics["epoch"]) + 1
        row = self.rows.get(epoch, {})
        self.rows = {e: kept for e, kept in self.rows.items() if e < epoch}
        self.rows[epoch] = {**row, **metrics, "epoch": epoch, "step": step}
        write_atomically(self.file, self._write)

    def _write(self, path: Path) -> None:
        names = sorted({key for row in self.rows.values() for key in row} - {"epoch", "step"})
        with path.open("w", newline="", encoding="utf-8") as lines:
            writer = csv.DictWriter(lines, ["epoch", "step", *names])
            writer.writeheader()
            writer.writerows(self.rows.values())
