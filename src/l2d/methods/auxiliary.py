"""An auxiliary task on the router's features: the label, or how good each expert is. Its head is dropped after training."""

from torch import Tensor

from l2d.core.rewards import complement, complement_scale
from l2d.methods.one_vs_all import one_vs_all_loss
from l2d.methods.priced import UNKNOWN, label_loss
from l2d.utils.errors import ParameterError


class LabelAux:
    def __init__(self, num_classes: int, weight: float) -> None:
        self.num_outputs, self.weight = num_classes, weight

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return self.weight * label_loss(outputs, labels)


class ExpertsAux:
    """The log losses of each expert's 1 − c_k/scale. If only errors count, that is whether the expert is right."""

    def __init__(self, p: int, scale: float, weight: float) -> None:
        self.num_outputs, self.scale, self.weight = p, scale, weight

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return self.weight * one_vs_all_loss(outputs, complement(costs, self.scale))


def make_aux(
    aux: str, weight: float, costs: Tensor, labels: Tensor, num_classes: int, largest_cost: float | None = None
) -> LabelAux | ExpertsAux | None:
    """aux: none, label or experts. costs [n, p], labels [n]: of the training split; largest_cost: before noise."""
    if aux == "none":
        return None
    if aux == "experts":
        return ExpertsAux(costs.shape[1], complement_scale(costs, largest_cost), weight)
    if not bool((labels != UNKNOWN).any()):
        raise ParameterError("aux", "no labels; name a column, dataset.label=topic, or give labels to l2d.fit", aux)
    return LabelAux(num_classes, weight)
