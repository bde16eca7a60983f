"""The base class of methods: a loss per example, a decision and, for some, a posterior over experts."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from l2d.core.costs import cheapest, check_costs
from l2d.core.decisions import argmax_last
from l2d.utils.errors import ParameterError


@dataclass(frozen=True)
class Evidence:
    """The errors of experts on rows that they were not trained on, if there are such rows."""

    errors: Tensor  # [n, p]
    prices: Tensor  # [p], or [n, p] if they differ between rows
    labels: Tensor  # int [n], −1 where unknown


class Method(nn.Module):
    """Built from the training costs. What it takes from them is kept in buffers, so a checkpoint is enough to route.

    A subclass has `loss`. If its outputs stand for a distribution over experts, it has `posterior` too, and `mass` if that is not
    the chance of being the cheapest. It may change `num_outputs`, and it says what it can do and needs:

    head: what the router's last layer must be.
    takes_evidence: it has `learn`, which is called once before training.
    takes_prices_later: it estimates errors and adds prices only to decide, so `reprice` works and one run gives a cost curve.
    estimates_costs: sigmoid(output k) estimates 1 − E[c_k|x]/reward_scale, a buffer. A confidence cascade can be built on that.
    needs_labels: it cannot be trained on data without labels.
    learns_from_logs: its loss takes costs that are NaN where an expert was not asked.
    fitted: it is a SimpleRouter, whose estimates are computed from the training rows at once, without epochs.
    score_range: the largest |output| for which loss and gradient are finite in every precision, float16 included.
    """

    head: ClassVar[str] = "linear"
    takes_evidence: ClassVar[bool] = False
    takes_prices_later: ClassVar[bool] = False
    estimates_costs: ClassVar[bool] = False
    learns_from_logs: ClassVar[bool] = False
    fitted: ClassVar[bool] = False
    score_range: ClassVar[float] = 1e4
    needs_labels: bool = False

    def __init__(
        self,
        *,
        costs: Tensor,
        num_classes: int,
        decision: str,
        largest_cost: float | None = None,  # noqa: ARG002
        mean_costs: Tensor | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__()
        check_costs(costs, ~costs.isnan() if self.learns_from_logs else None)
        self.check_decision(decision)
        self.decision, self.num_classes, self.num_outputs = decision, num_classes, costs.shape[1]

    @classmethod
    def check_decision(cls, decision: str) -> None:
        if decision == "posterior" and cls.posterior is Method.posterior:
            raise ParameterError("", "has no posterior, which decision=posterior needs; use decision=argmax")

    @property
    def has_posterior(self) -> bool:
        return type(self).posterior is not Method.posterior

    @property
    def by_argmax(self) -> bool:
        """True if `decide` takes the largest of the `utilities`, so that offsets added to them change the decision."""
        return True

    def capabilities(self) -> dict[str, bool]:
        """The facts that a finished run records about its method, so that readers need not import the class."""
        names = ("takes_prices_later", "estimates_costs", "has_posterior", "needs_labels")
        return {name: getattr(self, name) for name in names}

    def learn(self, evidence: Evidence) -> None:
        """Store in buffers what the training costs do not contain. Called once, before training."""

    def reprice(self, prices: Tensor) -> None:  # noqa: ARG002 (for methods that can)
        """Decide by other prices [p] from now on."""
        others = "method=cost_regression, label_regression, plugin and the simple routers (knn, linear, …) can"
        raise ParameterError("prices", f"this method has learned its prices and cannot change them; {others}")

    def rescale(self, factor: float) -> None:  # noqa: ARG002
        """Decide by prices that are multiplied by this factor from now on, if they differ between rows."""
        self.reprice(torch.zeros(0))

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        """One value per example: outputs [B, num_outputs], costs [B, p], labels [B] (−1 where unknown) -> [B]."""
        raise NotImplementedError

    def posterior(self, outputs: Tensor) -> Tensor:
        """p̂(k|x) for outputs [B, num_outputs] -> [B, p]."""
        raise NotImplementedError

    def expected_costs(self, outputs: Tensor) -> Tensor | None:  # noqa: ARG002 (for methods that have it)
        """E[c_k|x] for outputs [B, num_outputs] -> [B, p]; None if they do not say it (a posterior says it up to a factor)."""
        return None

    def expected_errors(self, outputs: Tensor) -> Tensor | None:  # noqa: ARG002 (for methods that have it)
        """The same without the prices, [B, p]; None if errors and prices cannot be separated."""
        return None

    def expected_prices(self, outputs: Tensor) -> Tensor | None:  # noqa: ARG002
        """E[price_k|x] for outputs of any width -> [B, p]; None unless prices of rows are estimated apart from the errors."""
        return None

    def mass(self, costs: Tensor) -> Tensor:
        """The quantity m with posterior ≈ E[m_k|x] / Σ_j E[m_j|x], for costs [N, p] -> [N, p]: whether k is the cheapest, if a
        subclass has no other."""
        return nn.functional.one_hot(cheapest(costs), costs.shape[-1]).double()

    def utilities(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        """The router's preference for each expert, [B, num_outputs] -> [B, p]. decision: by default the method's own."""
        return self.posterior(outputs) if (decision or self.decision) == "posterior" else outputs

    def decide(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        """The chosen expert, counted from 0, [B, num_outputs] -> [B]. decision: by default the method's own."""
        return argmax_last(self.utilities(outputs, decision))
