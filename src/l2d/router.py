"""The router: a network, a method, and how they are trained. The only place that takes a mean over a batch."""

from collections.abc import Callable, Iterable
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from l2d.costs import cheapest, paid
from l2d.data.batches import Batch
from l2d.errors import L2DError, check_choice
from l2d.losses.method import Method

SCHEDULES = ("constant", "cosine", "one_cycle")
COMPILE_MODES = ("false", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Router(pl.LightningModule):
    """network: inputs -> outputs [B, method.num_outputs]. optimizer: from parameters to an optimizer.

    compile_mode: torch.compile's, or "false". Only full training batches (of the size met first) run compiled: an epoch's last
    batch and evaluation would cost a compilation each.
    """

    def __init__(
        self,
        *,
        network: nn.Module,
        method: Method,
        optimizer: Callable[[Iterable[nn.Parameter]], Optimizer],
        schedule: str,
        channels_last: bool,
        compile_mode: str,
    ) -> None:
        super().__init__()
        check_choice("recipe.schedule", schedule, SCHEDULES)
        check_choice("recipe.compile", compile_mode, COMPILE_MODES)
        if channels_last:
            network = network.to(memory_format=torch.channels_last)
        self.network = network
        self.method = method
        self.make_optimizer = optimizer
        self.schedule = schedule
        self.loss_sum, self.rows_seen = torch.zeros(()), 0
        self.full_batch = 0
        self.compiled_losses: Callable[..., Tensor] = self.losses
        if compile_mode != "false":
            self.compiled_losses = torch.compile(self.losses, mode=compile_mode, dynamic=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network(inputs)

    def losses(self, inputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        return self.method.loss(self.network(inputs), costs, labels)

    def training_step(self, batch: Batch, _: int) -> Tensor:
        self.full_batch = self.full_batch or len(batch[0])
        full = len(batch[0]) == self.full_batch
        search_convolutions(full)
        loss = (self.compiled_losses if full else self.losses)(*batch).mean()
        # Lightning's own log() takes as long as the rest of a step's bookkeeping together.
        self.loss_sum = self.loss_sum + loss.detach() * len(batch[0])
        self.rows_seen += len(batch[0])
        return loss

    def on_train_epoch_start(self) -> None:
        self.loss_sum = torch.zeros((), device=self.device)
        self.rows_seen = 0

    def on_train_epoch_end(self) -> None:
        """Once an epoch, before the checkpoint is written: a step that looked would make the device wait."""
        measured = {"train/loss": self.loss_sum / self.rows_seen}
        if "val/loss" in self.trainer.callback_metrics:  # sees the epoch's last step too
            measured["val/loss"] = self.trainer.callback_metrics["val/loss"]
        for name, loss in measured.items():
            if not torch.isfinite(loss):
                raise L2DError(
                    f"training diverged: {name} is {float(loss)} in epoch {self.current_epoch + 1}; lower recipe.optimizer.lr"
                )
        self.log("train/loss", measured["train/loss"], sync_dist=True)
        self.log("lr", self.trainer.optimizers[0].param_groups[0]["lr"])

    def on_validation_start(self) -> None:
        search_convolutions(False)

    def on_predict_start(self) -> None:
        search_convolutions(False)

    def validation_step(self, batch: Batch, _: int) -> None:
        inputs, costs, labels = batch
        outputs = self(inputs)
        decisions = self.method.decide(outputs)
        means = {
            "val/loss": self.method.loss(outputs, costs, labels).mean(),
            "val/deferral_loss": paid(costs, decisions).mean(),
            "val/agrees_with_oracle": (decisions == cheapest(costs)).float().mean(),
        }
        self.log_dict(means, batch_size=len(inputs))
        self.log("val DL", means["val/deferral_loss"], prog_bar=True, logger=False, batch_size=len(inputs))

    def predict_step(self, batch: Batch, _: int) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer(self.parameters())
        if self.schedule == "constant":
            return optimizer
        steps = int(self.trainer.estimated_stepping_batches)
        scheduler: LRScheduler = CosineAnnealingLR(optimizer, T_max=steps)
        if self.schedule == "one_cycle":
            peak = optimizer.param_groups[0]["lr"]
            scheduler = OneCycleLR(optimizer, max_lr=peak, total_steps=steps + 1, pct_start=0.2, cycle_momentum=False)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def search_convolutions(on: bool) -> None:
    """Whether cuDNN tries its algorithms on shapes it has not met and keeps the fastest, which takes a second or more per shape.

    Worth it for full training batches, the shape of nearly every step. Off where the user asked for determinism.
    """
    torch.backends.cudnn.benchmark = on and not torch.are_deterministic_algorithms_enabled()
