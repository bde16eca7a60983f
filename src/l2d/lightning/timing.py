"""The time that each part of a run took. Wall-clock figures never enter metrics.json."""

import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch


def host_memory(status: Path = Path("/proc/self/status")) -> int:
    """The most memory that this process has used, in bytes. Linux says it in a file; ru_maxrss would begin with the parent's."""
    own = re.findall(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE) if status.exists() else []
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":  # counts bytes
        return most
    return 1024 * int(own[0] if own else most)


class Timer(pl.Callback):
    """Reads the clock between epochs, where the run waits for the device anyway."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self.first_step_at = self.last_step_at = self.expert_seconds = 0.0
        self.epoch_seconds, self.epochs_end_at, self._epoch_started = list[float](), list[float](), 0.0
        self._device = torch.device("cpu")

    def leave_out(self, expert_seconds: float) -> None:
        """Leave out the time and memory of making experts, or of waiting for them: several runs share them."""
        self.expert_seconds += expert_seconds
        if torch.cuda.is_initialized():
            torch.cuda.reset_peak_memory_stats()

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        self._device = trainer.strategy.root_device

    def on_train_epoch_start(self, *_: Any) -> None:
        self._epoch_started = time.time()

    def on_train_batch_end(self, *_: Any) -> None:
        if not self.first_step_at:
            self._wait()
            self.first_step_at = time.time()

    def on_validation_start(self, *_: Any) -> None:
        """The last batch of the epoch has been sent to the device."""
        self._wait()
        self.last_step_at = time.time()
        self.epochs_end_at.append(self.last_step_at)
        self.epoch_seconds.append(self.last_step_at - self._epoch_started)

    def record(self, images: int) -> dict[str, Any]:
        """images: in the training split. The first epoch, which compiles, is left out of the rate if there are others."""
        rated = sorted(self.epoch_seconds[1:] or self.epoch_seconds)
        gpu = self._device.type == "cuda"
        return {
            "started_at": self.started_at,
            "first_step_at": self.first_step_at,
            "last_step_at": self.last_step_at,
            "total_seconds": time.time() - self.started_at - self.expert_seconds,
            "expert_seconds": self.expert_seconds,
            "steps_seconds": self.last_step_at - self.first_step_at,
            "epoch_seconds": self.epoch_seconds,
            "epochs_end_at": self.epochs_end_at,
            "images_per_second": images / rated[len(rated) // 2] if rated else None,
            "device": torch.cuda.get_device_name(self._device) if gpu else "cpu",
            "gpu_memory_gib": torch.cuda.max_memory_allocated(self._device) / 2**30 if gpu else 0.0,
            "host_memory_gib": host_memory() / 2**30,
            "torch": torch.__version__,
        }

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
