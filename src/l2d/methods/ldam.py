"""LDAM (Cao et al. 2019) on the cheapest expert: a larger margin for experts that are rarely the cheapest."""

from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional as F

from l2d.core.costs import cheapest
from l2d.core.decisions import at_least_float32
from l2d.core.rho import cheapest_counts
from l2d.methods.method import Method
from l2d.utils.parameters import Positive


def ldam_margins(counts: Tensor, max_margin: float) -> Tensor:
    """Δ_k ∝ m_k^(−1/4), the largest being max_margin. [p] -> [p]."""
    margins = counts**-0.25
    return margins * (max_margin / margins.max())


def ldam_loss(cosines: Tensor, target: Tensor, margins: Tensor, scale: float) -> Tensor:
    """Cross-entropy of s·(z_k − Δ_t·1[k = t]). cosines z [B, p], target t int [B], margins Δ [p] -> [B]."""
    z = at_least_float32(cosines)
    shift = F.one_hot(target, z.shape[-1]).to(z) * margins.to(z)
    return F.cross_entropy(scale * (z - shift), target, reduction="none")


class LDAM(Method):
    """Needs outputs in [−1, 1], hence the cosine head: unbounded logits outgrow the margin, and training diverges."""

    head: ClassVar[str] = "cosine"
    margins: Tensor

    def __init__(self, *, costs: Tensor, max_margin: Positive, scale: Positive, **given: Any) -> None:
        super().__init__(costs=costs, **given)
        self.scale = scale
        self.register_buffer("margins", ldam_margins(cheapest_counts(costs), max_margin).float())

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return ldam_loss(outputs, cheapest(costs), self.margins, self.scale)
