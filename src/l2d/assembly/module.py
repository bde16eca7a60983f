"""The router as Lightning trains it: a network and a method."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from l2d.core.costs import cheapest, paid
from l2d.data.batches import Batch
from l2d.lightning.learner import Learner
from l2d.methods.method import Method
from l2d.networks.network import Network
from l2d.utils.errors import L2DError


class RouterModule(Learner):
    """blaming: attributes errors of the method to its key. has_oracle: whether it is known which expert is the cheapest on a
    validation row. learner: arguments of Learner; the network's outputs are [B, method.num_outputs]."""

    network: Network

    def __init__(
        self,
        *,
        method: Method,
        blaming: Callable[[], AbstractContextManager[None]] = nullcontext,
        has_oracle: bool = True,
        **learner: Any,
    ) -> None:
        super().__init__(**learner)
        self.method, self.blaming, self.has_oracle = method, blaming, has_oracle

    def losses(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        with self.blaming():
            return one_per_row(self.method.loss(outputs, costs, labels), costs)

    def validation_step(self, batch: Batch, _: int) -> None:
        inputs, costs, labels = batch
        outputs = self(inputs)
        with self.blaming():
            decisions = self.method.decide(outputs)
        losses = self.losses(outputs, costs, labels)
        means = {"val/loss": losses.mean(), "val/deferral_loss": paid(costs, decisions).mean()}
        if self.has_oracle:
            means["val/agrees_with_oracle"] = (decisions == cheapest(costs)).float().mean()
        self.log_dict(means, batch_size=len(inputs))
        self.log("val DL", means["val/deferral_loss"], prog_bar=True, logger=False, batch_size=len(inputs))


def one_per_row(losses: Tensor, costs: Tensor) -> Tensor:
    """Refuse a user's loss that averages by itself: it would train without an error, but to other weights."""
    if losses.shape != costs.shape[:1]:
        raise L2DError(f"method: the loss must have one value per row, [{len(costs)}], not {list(losses.shape)}")
    return losses
