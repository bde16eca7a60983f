"""A network that learns: the step, the schedule, compilation. What it learns is its subclass's business."""

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from l2d.config import Recipe
from l2d.data.augment import AUGMENTS
from l2d.data.batches import Batch
from l2d.utils.errors import L2DError, check_choice
from l2d.utils.interrupts import TERMINATED

SCHEDULES = ("constant", "cosine", "one_cycle")
COMPILE_MODES = ("false", "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
# CUDA graphs write each part's gradients over those of the part before, which are still to be added up.
WITHOUT_GRAPHS = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
PLAIN = {"precision": "32-true", "channels_last": False, "compile": "false", "fused": False}
STREAMS = "random_streams"  # in a checkpoint
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


class Learner(pl.LightningModule):
    """network: inputs -> outputs. optimizer: from parameters to an optimizer. A subclass has `losses`, one value per example; the
    only mean over a batch is taken here.

    ema: the decay of an average over the steps' weights, by which it is then judged and used; 0: none.
    compile_mode: torch.compile's, or "false". Only full training batches (of the size met first) run compiled: an epoch's last
    batch and evaluation would cost a compilation each.
    parts: in which a batch comes, as of a loader with so many; their gradients add up to one step, that of the whole batch.
    """

    recipe_key: ClassVar[str] = "recipe"

    def __init__(
        self,
        *,
        network: nn.Module,
        optimizer: MakeOptimizer,
        schedule: str,
        channels_last: bool,
        compile_mode: str,
        ema: float = 0.0,
        parts: int = 1,
    ) -> None:
        super().__init__()
        if channels_last:
            network = network.to(memory_format=torch.channels_last)
        self.network, self.ema, self.parts = network, ema, parts
        self.averaged = copy.deepcopy(network).requires_grad_(False) if ema else None
        self.make_optimizer = optimizer
        self.schedule = schedule
        self.loss_sum, self.rows_seen = torch.zeros(()), 0
        self.full_batch = 0
        self.compiled_losses: Callable[..., Tensor] = self.losses
        if parts > 1:
            compile_mode = WITHOUT_GRAPHS.get(compile_mode, compile_mode)
        if compile_mode != "false":
            self.compiled_losses = torch.compile(self.losses, mode=compile_mode, dynamic=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """By the averaged weights, where there are such; the step itself goes by `network`."""
        return self.network(inputs) if self.averaged is None else self.averaged(inputs)

    def optimizer_step(self, *given: Any, **named: Any) -> None:
        super().optimizer_step(*given, **named)
        if self.averaged is not None:
            # At first nearly the weights themselves: an average over steps that were not made would be of the initial ones.
            steps = self.trainer.global_step + 1  # this one is counted when it is over
            average(self.averaged, self.network, min(self.ema, (1 + steps) / (10 + steps)))

    def losses(self, inputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError

    def training_step(self, batch: Batch, index: int) -> Tensor:
        self.full_batch = self.full_batch or len(batch[0])
        full = 0 <= len(batch[0]) - self.full_batch <= (self.parts > 1)  # parts differ by a row, the smaller come first
        search_convolutions(full)
        loss = (self.compiled_losses if full else self.losses)(*batch).mean()
        # Lightning's own log() takes as long as the rest of a step's bookkeeping together.
        self.loss_sum = self.loss_sum + loss.detach() * len(batch[0])
        self.rows_seen += len(batch[0])
        if self.parts == 1:
            return loss
        batches: Any = self.trainer.train_dataloader
        return loss * batches.weights[index]

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
                    f"training diverged: {name} is {float(loss)} in epoch {self.current_epoch + 1};"
                    f" lower {self.recipe_key}.optimizer.lr"
                )
        self.log("train/loss", measured["train/loss"], sync_dist=True)
        self.log("lr", self.trainer.optimizers[0].param_groups[0]["lr"])

    def on_validation_start(self) -> None:
        search_convolutions(False)

    def on_predict_start(self) -> None:
        search_convolutions(False)

    def predict_step(self, batch: Batch, _: int) -> Tensor:
        return self(batch[0])

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Dropout draws from the global streams: a resumed run has to find them where an unbroken one would."""
        checkpoint[STREAMS] = [torch.get_rng_state(), *self._cuda_stream()]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        cpu, *cuda = checkpoint.get(STREAMS) or [torch.get_rng_state()]
        torch.set_rng_state(cpu.cpu())
        if cuda and (device := self._cuda()) is not None:  # else it goes on elsewhere, with draws of its own
            torch.cuda.set_rng_state(cuda[0].cpu(), device)

    def _cuda_stream(self) -> list[Tensor]:
        """Of this process's own device: all are seeded alike, and one writes the checkpoint."""
        device = self._cuda()
        return [] if device is None else [torch.cuda.get_rng_state(device)]

    def _cuda(self) -> torch.device | None:
        """Where it trains; the weights may not be there yet when a checkpoint is read."""
        device = self.trainer.strategy.root_device if self._trainer is not None else self.device
        return device if device.type == "cuda" else None

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer(parameter for parameter in self.parameters() if parameter.requires_grad)
        if self.schedule == "constant":
            return optimizer
        scheduler = make_scheduler(optimizer, self.schedule, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


@torch.no_grad()
def average(averaged: nn.Module, network: nn.Module, decay: float) -> None:
    """averaged ← decay·averaged + (1 − decay)·network; what is no fraction, such as a count of batches, is copied."""
    theirs = dict(network.state_dict())
    fractions = {name: mine for name, mine in averaged.state_dict().items() if mine.is_floating_point()}
    torch._foreach_lerp_(list(fractions.values()), [theirs[name] for name in fractions], 1 - decay)
    for name, mine in averaged.state_dict().items():
        if name not in fractions:
            mine.copy_(theirs[name])


def make_scheduler(optimizer: Optimizer, schedule: str, steps: int) -> LRScheduler:
    """cosine: from the optimizer's rate to 0. one_cycle: up to it over a fifth of the steps, then to 0."""
    if schedule == "cosine":
        return CosineAnnealingLR(optimizer, T_max=steps)
    peak = optimizer.param_groups[0]["lr"]
    rise = max(0.2, 2 / (steps + 1))  # at least one step, or OneCycleLR divides by zero
    return OneCycleLR(optimizer, max_lr=peak, total_steps=steps + 1, pct_start=rise, cycle_momentum=False)


def search_convolutions(on: bool) -> None:
    """Whether cuDNN tries its algorithms on shapes it has not met and keeps the fastest, which takes a second or more per shape.

    Worth it for full training batches, the shape of nearly every step. Off where the user asked for determinism.
    """
    torch.backends.cudnn.benchmark = on and not torch.are_deterministic_algorithms_enabled()


def quieten() -> None:
    """Lightning tells the user about itself; the bars and the table are enough."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # By the compiler, where a network is in half precision: its head alone is in float32, on purpose.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
    warnings.filterwarnings("ignore", ".*LeafSpec.*", module="pytorch_lightning")  # Lightning 2.6 with torch 2.15


def make_trainer(**options: Any) -> pl.Trainer:
    """Lightning's, for loaders that divide the rows among processes themselves; what it refuses is one line."""
    quieten()
    try:
        return pl.Trainer(use_distributed_sampler=False, enable_model_summary=False, **options)
    except (MisconfigurationException, TypeError, ValueError) as error:
        told = {key: options[key] for key in ("accelerator", "devices", "deterministic") if key in options}
        raise L2DError(f"trainer={told}: {str(error).splitlines()[0]}") from error


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lightning answers Ctrl-C and SIGTERM, each in its way, with a SystemExit whose status says neither."""
    try:
        yield
    except SIGTERMException:
        sys.exit(TERMINATED)
    except SystemExit:
        raise KeyboardInterrupt from None


def check_recipe(recipe: Any, group: str) -> None:
    """Refuse what training would stumble over, before data are downloaded. recipe: has the keys of conf/recipe."""
    for field in fields(Recipe):
        value = getattr(recipe, field.name)
        if field.type in (int, str, bool) and type(value) is not field.type:
            raise L2DError(f"{group}.{field.name}={value}: must be of type {field.type.__name__}")
    if not (callable(recipe.optimizer) or isinstance(recipe.optimizer, Mapping)):
        raise L2DError(
            f"{group}.optimizer={recipe.optimizer}: must be a mapping with _target_, as in conf/recipe/fast.yaml"
        )
    check_choice(f"{group}.precision", recipe.precision, PRECISIONS)
    check_choice(f"{group}.schedule", recipe.schedule, SCHEDULES)
    check_choice(f"{group}.compile", str(recipe.compile).lower(), COMPILE_MODES)
    check_choice(f"{group}.augment", recipe.augment, AUGMENTS)
    if not 0 <= recipe.ema < 1:
        raise L2DError(f"{group}.ema={recipe.ema}: must be at least 0 and below 1")
    if recipe.patience is not None and recipe.patience < 1:
        raise L2DError(f"{group}.patience={recipe.patience}: must be at least 1, or null")
    for key in ("epochs", "batch_size"):
        if getattr(recipe, key) < 1:
            raise L2DError(f"{group}.{key}={getattr(recipe, key)}: must be at least 1")


def on_gpu(accelerator: str) -> bool:
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def speed(recipe: Any, accelerator: str) -> dict[str, Any]:
    """The recipe's precision, channels_last, compile and fused; on a CPU they are off."""
    return {key: getattr(recipe, key) for key in PLAIN} if on_gpu(accelerator) else PLAIN
