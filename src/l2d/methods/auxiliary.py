"""An auxiliary task on the router's features: the label, or how good each expert is. Its head is dropped after training."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from l2d.core.costs import complement, complement_scale
from l2d.methods.one_vs_all import one_vs_all_loss
from l2d.methods.priced import UNKNOWN, label_loss
from l2d.utils.errors import ParameterError


@dataclass(frozen=True)
class Aux:
    """loss: of outputs [B, num_outputs], costs and labels, one value per row."""

    num_outputs: int
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]


def make_aux(
    aux: str, weight: float, costs: Tensor, labels: Tensor, num_classes: int, largest_cost: float | None = None
) -> Aux | None:
    """aux: none; label; or experts, the log losses of each expert's 1 − c_k/scale. If only errors count, that is whether the expert
    is right. costs [n, p], labels [n]: of the training split; largest_cost: before noise."""
    if aux == "none":
        return None
    if aux == "experts":
        scale = complement_scale(costs, largest_cost)
        return Aux(costs.shape[1], lambda outputs, paid, _: weight * one_vs_all_loss(outputs, complement(paid, scale)))
    if not bool((labels != UNKNOWN).any()):
        raise ParameterError("aux", "no labels; name a column, dataset.label=topic, or give labels to l2d.fit", aux)
    return Aux(num_classes, lambda outputs, _, known: weight * label_loss(outputs, known))
