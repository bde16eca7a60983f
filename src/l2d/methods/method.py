"""What every method is: a loss per example, a decision and, where it has one, a posterior over experts."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from l2d.core.costs import check_costs
from l2d.core.decisions import DECISIONS, argmax_last
from l2d.utils.errors import L2DError, check_choice


@dataclass(frozen=True)
class Evidence:
    """What experts did on rows that they did not learn from, where there are such: errors [n, p], prices [p] (or [n, p], where they
    differ between rows) and labels int [n], −1 where unknown."""

    errors: Tensor
    prices: Tensor
    labels: Tensor


class Method(nn.Module):
    """Built from the training costs; whatever it takes from them is kept in buffers, so a checkpoint is enough to route.

    A subclass sets `head` (what the router's last layer must be) and `takes_evidence` (whether `learn` does anything), may change
    `num_outputs`, and has `loss`; where its outputs stand for a distribution over experts it has `posterior` too.
    """

    head: ClassVar[str] = "linear"
    takes_evidence: ClassVar[bool] = False

    def __init__(self, *, costs: Tensor, num_classes: int, decision: str) -> None:  # noqa: ARG002 (for methods that need it)
        super().__init__()
        check_costs(costs)
        check_choice("decision", decision, DECISIONS)
        if decision == "posterior" and type(self).posterior is Method.posterior:
            raise L2DError("method: has no posterior, which decision=posterior goes by; use decision=argmax")
        self.decision = decision
        self.num_outputs = costs.shape[1]

    @property
    def has_posterior(self) -> bool:
        return type(self).posterior is not Method.posterior

    @property
    def by_argmax(self) -> bool:
        """Whether `decide` takes the largest of the `utilities`, so that offsets on these shift it."""
        return True

    def learn(self, evidence: Evidence) -> None:
        """Take into buffers what the training costs alone do not say; before training, once."""

    def reprice(self, prices: Tensor) -> None:  # noqa: ARG002 (for methods that can)
        """Decide by other prices [p] from now on."""
        raise L2DError(
            "prices: are part of what this method learned; method=cost_regression, label_regression and plugin take others later"
        )

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        """One value per example: outputs [B, num_outputs], costs [B, p], labels [B] (−1 where unknown) -> [B]."""
        raise NotImplementedError

    def posterior(self, outputs: Tensor) -> Tensor:
        """p̂(k|x) for outputs [B, num_outputs] -> [B, p]."""
        raise NotImplementedError

    def expected_costs(self, outputs: Tensor) -> Tensor | None:  # noqa: ARG002 (for methods that have it)
        """E[c_k|x] for outputs [B, num_outputs] -> [B, p]; None where they do not say it: a posterior has costs up to a factor."""
        return None

    def expected_errors(self, outputs: Tensor) -> Tensor | None:  # noqa: ARG002 (for methods that have it)
        """The same without the prices, [B, p]; None where these are not to be told apart."""
        return None

    def mass(self, costs: Tensor) -> Tensor:
        """What the posterior estimates each expert's share of, for costs [N, p] -> [N, p]."""
        raise NotImplementedError

    def utilities(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        """What speaks for each expert, for outputs [B, num_outputs] -> [B, p]. decision: the method's own unless said."""
        return self.posterior(outputs) if (decision or self.decision) == "posterior" else outputs

    def decide(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        """The chosen expert, counted from 0, for outputs [B, num_outputs] -> [B]. decision: the method's own unless said."""
        return argmax_last(self.utilities(outputs, decision))
