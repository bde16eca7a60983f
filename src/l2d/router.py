"""The router: a network and a method."""

from torch import Tensor, nn

from l2d.costs import cheapest, paid
from l2d.data.batches import Batch
from l2d.learner import Learner, MakeOptimizer
from l2d.losses.method import Method


class Router(Learner):
    """network: inputs -> outputs [B, method.num_outputs]."""

    def __init__(
        self,
        *,
        network: nn.Module,
        method: Method,
        optimizer: MakeOptimizer,
        schedule: str,
        channels_last: bool,
        compile_mode: str,
    ) -> None:
        super().__init__(
            network=network,
            optimizer=optimizer,
            schedule=schedule,
            channels_last=channels_last,
            compile_mode=compile_mode,
        )
        self.method = method

    def losses(self, inputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        return self.method.loss(self.network(inputs), costs, labels)

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
