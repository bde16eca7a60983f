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
        if compile_mode != "false":
            network.compile(mode=compile_mode, dynamic=False)
        self.compiled_batch = 0
        self.network = network
        self.method = method
        self.make_optimizer = optimizer
        self.schedule = schedule

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return self.network.forward(inputs)
        self.compiled_batch = self.compiled_batch or len(inputs)
        return self.network(inputs) if len(inputs) == self.compiled_batch else self.network.forward(inputs)

    def training_step(self, batch: Batch, _: int) -> Tensor:
        inputs, costs, labels = batch
        loss = self.method.loss(self(inputs), costs, labels).mean()
        self.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=len(inputs))
        return loss

    def on_train_epoch_end(self) -> None:
        """Once an epoch, before the checkpoint is written: a step that looked would make the device wait."""
        for name in ("train/loss", "val/loss"):  # the second sees the epoch's last step too
            loss = self.trainer.callback_metrics.get(name)
            if loss is not None and not torch.isfinite(loss):
                raise L2DError(
                    f"training diverged: {name} is {float(loss)} in epoch {self.current_epoch + 1}; lower recipe.optimizer.lr"
                )
        self.log("lr", self.trainer.optimizers[0].param_groups[0]["lr"])

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
