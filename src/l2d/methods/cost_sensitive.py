"""Cost-sensitive margin losses for costs c(x, k, k') (Section 4), and their surrogates (appendix "Derivation of Surrogate Losses").
Costs are [..., p, p]: c(x, k, k') is the cost of choosing k' if k is right. The diagonal counts as 0, whatever it holds."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from l2d.core.costs import cheapest
from l2d.core.decisions import at_least_float32
from l2d.methods.comp_sum import Rewarded, comp_sum_phi


def unit_margin_loss(margins: Tensor) -> Tensor:
    """Φ_1(u) = min(1, max(0, 1 − u)); Φ_ρ(u) is Φ_1(u/ρ)."""
    return (1 - margins).clamp(0, 1)


def hinge(margins: Tensor) -> Tensor:
    return (1 - margins).clamp(min=0)


def comp_sum_psi(margins: Tensor, tau: float) -> Tensor:
    """Ψ(u) = Φ^τ(e^{−u}): logistic for τ = 1, exponential for τ = 0."""
    return comp_sum_phi(F.softplus(-margins), tau)


def pair_margins(scores: Tensor, rho: Tensor) -> Tensor:
    """(f_k − f_k')/ρ_k in row k, column k'. scores [..., p], ρ [p] -> [..., p, p]."""
    scores = at_least_float32(scores)
    return (scores[..., :, None] - scores[..., None, :]) / rho.to(scores)[:, None]


def max_form(costs: Tensor, psi: Tensor) -> Tensor:
    """max_{k'≠k} c(x, k, k')·Ψ for every k: L_ρ where Ψ is the margin loss. [..., p, p], [..., p, p] -> [..., p]."""
    return (costs * psi).masked_fill(_own(psi), -torch.inf).amax(dim=-1)


def sum_form(costs: Tensor, psi: Tensor) -> Tensor:
    """Σ_{k'≠k} c(x, k, k')·Ψ, at least the max since no term is negative. [..., p, p], [..., p, p] -> [..., p]."""
    return (costs * psi).masked_fill(_own(psi), 0).sum(dim=-1)


def log_sum_form(costs: Tensor, psi: Tensor) -> Tensor:
    """log Σ_{k'≠k} e^{c(x, k, k')·Ψ}, at least the max. [..., p, p], [..., p, p] -> [..., p]. With the logistic Ψ it is the
    appendix's log Σ_{k'≠k} (1 + e^{(f_k' − f_k)/ρ_k})^{c(x, k, k')}. It never falls below log(p − 1)."""
    return (costs * psi).masked_fill(_own(psi), -torch.inf).logsumexp(dim=-1)


def _own(pairs: Tensor) -> Tensor:
    return torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)


MARGIN_LOSSES = {"hinge": hinge, "rho_margin": unit_margin_loss}
FORMS = {"max": max_form, "sum": sum_form, "log_sum": log_sum_form}


class CostSensitive(Rewarded):
    """The general algorithm of Section 4.2, B, on pairs (x, k) and their costs c(x, k, k').

    pairs=rewards: every k, weighted by its reward, with c(x, k, k') = 1[k' ≠ k], as in Section 5.3. The logistic loss with the sum
    inside the log is MILD (CompSum); the other forms are here. pairs=regret: k is the cheapest expert and c(x, k, k') = c_k' − c_k.
    The cost-sensitive loss is then the deferral loss minus the oracle's. psi, form: see conf/method/cost_sensitive.yaml.

    The max of hinges with pairs=rewards and one ρ is least at equal scores, unless one expert has more than half of the rewards.
    With sum_others and three or more experts, none has. No posterior: it cannot be recovered from minimisers of hinges or maxima.
    """

    def __init__(
        self,
        *,
        pairs: Literal["rewards", "regret"],
        psi: Literal["hinge", "rho_margin", "comp_sum"],
        form: Literal["max", "sum", "log_sum"],
        **given: Any,
    ) -> None:
        super().__init__(**given)
        self.pairs, self.psi, self.form = pairs, psi, form

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        form, margins = FORMS[self.form], pair_margins(outputs, self.rho)
        psi = comp_sum_psi(margins, self.tau) if self.psi == "comp_sum" else MARGIN_LOSSES[self.psi](margins)
        costs = costs.to(psi)
        if self.pairs == "rewards":
            return (self.rewards(costs) * form(torch.ones_like(psi), psi)).sum(dim=-1)
        right = cheapest(costs)[:, None]
        regret = (costs - costs.gather(1, right))[:, None, :]
        return form(regret.expand_as(psi), psi).gather(1, right)[:, 0]
