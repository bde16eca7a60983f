"""A network that learns: the step, the schedule, compilation. A subclass defines the loss."""

import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from l2d.config import Recipe
from l2d.data.batches import Batch
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.user_errors import TERMINATED

# What a CPU uses instead of the recipe's values.
PLAIN = {"precision": "32-true", "channels_last": False, "compile": "false"}
STREAMS = "random_streams"  # in a checkpoint
VERSIONS = 1000  # compiled, one per kind of network and shape of batch; torch silently stops after eight by default
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


class Learner(pl.LightningModule):
    """network: inputs -> outputs. optimizer: makes one from parameters. A subclass has `losses`, one value per example; the only
    mean over a batch is taken here. compile_mode: torch.compile's, or "false"; only full training batches run compiled, as each
    other shape costs a compilation. parts: the number of micro-batches per batch, whose gradients add up."""

    recipe_key: ClassVar[str] = "recipe"

    def __init__(
        self,
        *,
        network: nn.Module,
        optimizer: MakeOptimizer,
        schedule: str,
        channels_last: bool,
        compile_mode: str,
        parts: int = 1,
    ) -> None:
        super().__init__()
        if channels_last:
            network = network.to(memory_format=torch.channels_last)
        self.network, self.parts = network, parts
        self.make_optimizer, self.schedule = optimizer, schedule
        self.loss_sum, self.rows_seen, self.full_batch = torch.zeros(()), 0, 0
        self.compiled = [] if compile_mode == "false" else [compiled_features(compile_mode)]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network(inputs)

    def losses(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        raise NotImplementedError

    def training_step(self, batch: Batch, index: int) -> Tensor:
        inputs, costs, labels = batch
        if not self.full_batch:
            self.full_batch = len(inputs)
        full = is_full(len(inputs), self.full_batch, self.parts)
        search_convolutions(full)
        outputs = self.network(inputs, *(self.compiled if full else []))
        loss = self.losses(outputs, costs, labels).mean()
        # Lightning's own log() takes as long as the rest of a step's bookkeeping together.
        self.loss_sum.add_(loss.detach(), alpha=len(inputs))
        self.rows_seen += len(inputs)
        if self.parts == 1:
            return loss
        batches: Any = self.trainer.train_dataloader
        return loss * batches.weights[index]

    def on_train_epoch_start(self) -> None:
        self.loss_sum, self.rows_seen = torch.zeros((), device=self.device), 0

    def on_train_epoch_end(self) -> None:
        """Refuse infinite or NaN losses. Once per epoch, before the checkpoint: reading each loss would make the device wait."""
        measured = {"train/loss": self.loss_sum / self.rows_seen}
        if "val/loss" in self.trainer.callback_metrics:  # reflects the epoch's last step too
            measured["val/loss"] = self.trainer.callback_metrics["val/loss"]
        for name, loss in measured.items():
            if not torch.isfinite(loss):
                found = f"{name} is {float(loss)} in epoch {self.current_epoch + 1}"
                raise L2DError(f"training diverged: {found}; lower {self.recipe_key}.optimizer.lr")
        self.log("train/loss", measured["train/loss"], sync_dist=True)
        self.log("lr", self.trainer.optimizers[0].param_groups[0]["lr"])

    def on_validation_start(self) -> None:
        search_convolutions(False)

    on_predict_start = on_validation_start

    def predict_step(self, batch: Batch, *_: int) -> Tensor:
        return self(batch[0])

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Dropout draws from the global streams: a resumed run must make the same draws as an uninterrupted one."""
        # One process writes the checkpoint, and all are seeded alike.
        cuda = [] if (device := self._cuda()) is None else [torch.cuda.get_rng_state(device)]
        checkpoint[STREAMS] = [torch.get_rng_state(), *cuda]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        cpu, *cuda = checkpoint[STREAMS]
        torch.set_rng_state(cpu.cpu())
        # On another kind of device the draws are others.
        if cuda and (device := self._cuda()) is not None:
            torch.cuda.set_rng_state(cuda[0].cpu(), device)

    def _cuda(self) -> torch.device | None:
        """The device it trains on, if CUDA; the weights may not be there yet when a checkpoint is read."""
        device = self.trainer.strategy.root_device if self._trainer is not None else self.device
        return device if device.type == "cuda" else None

    def configure_optimizers(self) -> Any:
        optimizer = self.make_optimizer(parameter for parameter in self.parameters() if parameter.requires_grad)
        if self.schedule == "constant":
            return optimizer
        scheduler = make_scheduler(optimizer, self.schedule, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def learning(
    recipe: Recipe, optimizer: "partial[Optimizer]", accelerator: str, parameters: Iterable[nn.Parameter]
) -> dict[str, Any]:
    """The arguments of a Learner that follow from a recipe. parameters: to try the optimizer on."""
    used = speed(recipe, accelerator)
    return {
        "optimizer": tried(optimizer, recipe.fused, parameters),
        "schedule": recipe.schedule,
        "channels_last": used["channels_last"],
        "compile_mode": str(used["compile"]).lower(),
    }


def tried(factory: "partial[Optimizer]", fused: bool, parameters: Iterable[nn.Parameter]) -> MakeOptimizer:
    """Makes an optimizer, with the fused kernel if it has one. Tried on these parameters: torch checks arguments only then."""
    kernel = {"fused": True} if fused and "fused" in inspect.signature(factory).parameters else {}
    make = partial(factory, **kernel)
    try:
        if some := list(parameters):  # a simple router has none
            make(some)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError("recipe.optimizer", str(error), factory.keywords) from error
    return make


def is_full(rows: int, first: int, parts: int) -> bool:
    """True if a batch has the full size, that of the first one. Micro-batches may differ by a row, and the smaller come first."""
    return rows == first or (parts > 1 and rows == first + 1)


def make_scheduler(optimizer: Optimizer, schedule: str, steps: int) -> LRScheduler:
    """cosine: from the optimizer's rate to 0. one_cycle: up to it over a fifth of the steps, then to 0."""
    if schedule == "cosine":
        return CosineAnnealingLR(optimizer, T_max=steps)
    peak = [group["lr"] for group in optimizer.param_groups]
    rise = max(0.2, 2 / (steps + 1))  # at least one step, or OneCycleLR divides by zero
    return OneCycleLR(optimizer, max_lr=peak, total_steps=steps + 1, pct_start=rise, cycle_momentum=False)


@cache
def compiled_features(mode: str) -> Callable[[Any, Tensor], Tensor]:
    """`Network.features`, compiled. The network is an argument: with the same layers, it reuses the code of runs before."""
    from torch.compiler import config as limits

    limits.recompile_limit = limits.accumulated_recompile_limit = VERSIONS
    return torch.compile(features_of, mode=mode, dynamic=False)


def features_of(network: Any, inputs: Tensor) -> Tensor:
    return network.features(inputs)


def search_convolutions(on: bool) -> None:
    """Switch cuDNN's benchmark mode, which times all algorithms on a new shape; that takes a second or more per shape. It pays
    for full training batches, the shape of nearly every step. Off if the user asked for determinism."""
    torch.backends.cudnn.benchmark = on and not torch.are_deterministic_algorithms_enabled()


def make_trainer(**options: Any) -> pl.Trainer:
    """Lightning's trainer, for loaders that divide the rows among processes themselves. Its refusals become one line."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    # The compiler warns about a network in half precision; its head is in float32 on purpose.
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
    warnings.filterwarnings("ignore", ".*LeafSpec.*", module="pytorch_lightning")  # Lightning 2.6 with torch 2.15
    # One device belongs to no cluster, and looking for MPI takes most of a second.
    plugins = LightningEnvironment() if options.get("devices") == 1 else None
    off: dict[str, Any] = {"use_distributed_sampler": False, "enable_model_summary": False}
    try:
        return pl.Trainer(plugins=plugins, **off, **options)
    except (MisconfigurationException, ValueError) as error:
        told = {key: options[key] for key in ("accelerator", "devices", "deterministic") if key in options}
        raise ParameterError("trainer", str(error).splitlines()[0], told) from error


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Restore the exit status of Ctrl-C and SIGTERM, which Lightning turns into a SystemExit. Any other SystemExit passes."""
    try:
        yield
    except SIGTERMException:
        sys.exit(TERMINATED)
    except SystemExit as leaving:
        if isinstance(leaving.__context__, KeyboardInterrupt):  # Lightning calls sys.exit(1) while it handles one
            raise KeyboardInterrupt from None
        raise


def on_gpu(accelerator: str) -> bool:
    return accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def speed(recipe: Recipe, accelerator: str) -> dict[str, Any]:
    """The recipe's precision, channels_last and compile; on a CPU they are off."""
    return {key: getattr(recipe, key) for key in PLAIN} if on_gpu(accelerator) else PLAIN
