"""What a router learns beside its task, on the same features: the label, or how good each expert is. Dropped after training."""

from torch import Tensor

from l2d.core.rewards import complement, complement_scale
from l2d.methods.one_vs_all import one_vs_all_loss
from l2d.methods.priced import UNKNOWN, label_loss
from l2d.utils.errors import L2DError, check_choice

AUX = ("none", "label", "experts")


class LabelAux:
    """The cross-entropy of the label."""

    def __init__(self, num_classes: int, weight: float) -> None:
        self.num_outputs, self.weight = num_classes, weight

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return self.weight * label_loss(outputs, labels)


class ExpertsAux:
    """The log losses of each expert's 1 − c_k/scale: of whether it is right, where only errors count."""

    def __init__(self, p: int, scale: float, weight: float) -> None:
        self.num_outputs, self.scale, self.weight = p, scale, weight

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return self.weight * one_vs_all_loss(outputs, complement(costs, self.scale))


def check_aux(kind: str, weight: float) -> None:
    check_choice("aux", kind, AUX)
    if not 0 <= weight < float("inf"):
        raise L2DError(f"aux_weight={weight}: must be finite and not negative")


def make_aux(kind: str, weight: float, costs: Tensor, labels: Tensor, num_classes: int) -> LabelAux | ExpertsAux | None:
    """kind: of AUX. weight: of its loss beside the method's. costs [n, p], labels [n]: of the training split."""
    check_aux(kind, weight)
    if kind == "none":
        return None
    if kind == "experts":
        return ExpertsAux(costs.shape[1], complement_scale(costs), weight)
    if not bool((labels != UNKNOWN).any()):
        raise L2DError("aux=label: these data have no labels; name a column, such as dataset.label=topic")
    return LabelAux(num_classes, weight)
