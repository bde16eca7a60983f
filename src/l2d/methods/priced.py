"""Methods that estimate each expert's error and add the price only to decide, so prices may change after training."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from l2d.core.costs import complement_scale
from l2d.core.decisions import at_least_float32
from l2d.core.groups import smoothed_means
from l2d.methods.method import Evidence, Method
from l2d.methods.one_vs_all import one_vs_all_loss
from l2d.networks.estimators.linear import NO_LABELS
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import NonNegative

UNKNOWN = -1
CERTAIN = 1e-4  # chances are clamped this far from 0 and 1 before a logit: thousands of rows cannot tell more
ROUNDING = 1e-6  # of prices in 32 bits


def mean_by_label(values: Tensor, labels: Tensor, num_classes: int, smoothing: float) -> Tensor:
    """E[values|label], pulled towards the mean of all rows as if by `smoothing` rows. [n, p], int [n] -> [num_classes, p]"""
    values, labelled = values.double(), labels != UNKNOWN
    return smoothed_means(labels[labelled], values[labelled], num_classes, values.nanmean(dim=0), smoothing)


def given_label(logits: Tensor, table: Tensor) -> Tensor:
    """Σ_y p(y|x) table_y, [B, num_classes], [num_classes, p] -> [B, p]. In half precision, chances near 1 would round to 1."""
    with torch.autocast(logits.device.type, enabled=False):
        chances = torch.softmax(at_least_float32(logits), dim=-1)
        return chances @ table.to(chances)


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, 0 where the label is unknown. [B, num_classes], [B] -> [B]."""
    return F.cross_entropy(at_least_float32(logits), labels, ignore_index=UNKNOWN, reduction="none")


class Priced(Method):
    """Decides by the least E[error_k|x] + β_k + factor·E[price_k|x]. β: one price per expert. If prices differ between rows, β is 0
    and the network has p more outputs, E[price_k|x]; in training it has not, and the costs are errors alone."""

    takes_evidence: ClassVar[bool] = True
    learns_from_logs: ClassVar[bool] = True
    takes_prices_later: ClassVar[bool] = True
    prices: Tensor
    factor: Tensor

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.p = self.num_outputs
        self.register_buffer("prices", torch.zeros(self.p))
        self.register_buffer("factor", torch.ones(()))

    def learn(self, evidence: Evidence) -> None:
        if evidence.prices.ndim == 1:
            self.prices.copy_(evidence.prices)
        if self.needs_labels and not (evidence.labels != UNKNOWN).any():
            raise ParameterError("", NO_LABELS)

    def reprice(self, prices: Tensor) -> None:
        self.prices.copy_(prices)
        self.factor.fill_(0.0)

    def rescale(self, factor: float) -> None:
        """Multiply the prices that differ between rows by `factor`, to decide by."""
        self.factor.fill_(factor)

    def apart(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """The method's own outputs [B, num_outputs], and the prices to decide by, [p] or [B, p]."""
        own, expected = outputs.tensor_split([self.num_outputs], dim=-1)
        prices = self.prices.to(outputs)
        return own, prices + self.factor.to(outputs) * expected if expected.shape[-1] else prices

    def utilities(self, outputs: Tensor, decision: str | None = None) -> Tensor:  # noqa: ARG002
        return -self.expected_costs(outputs)

    def expected_costs(self, outputs: Tensor) -> Tensor:
        own, prices = self.apart(at_least_float32(outputs))
        return self.estimates(own) + prices

    def expected_errors(self, outputs: Tensor) -> Tensor:
        return self.estimates(self.apart(outputs)[0])

    def expected_prices(self, outputs: Tensor) -> Tensor | None:
        expected = outputs[..., self.num_outputs :]
        return expected if expected.shape[-1] else None

    def estimates(self, outputs: Tensor) -> Tensor:
        """E[error_k|x], [B, num_outputs] -> [B, p]."""
        raise NotImplementedError

    def add_expert(self, price: float) -> None:
        """Make room for one more expert, in a method whose outputs are one per expert."""
        self.p, self.num_outputs = self.p + 1, self.num_outputs + 1
        self.prices = torch.cat([self.prices, self.prices.new_tensor([price])])


class Plugin(Priced):
    """A classifier of the label. E[error_k|x] = Σ_y p(y|x) E[error_k|y], with E[error_k|y] from the evidence."""

    needs_labels = True
    error_given_label: Tensor

    def __init__(self, *, smoothing: NonNegative, **given: Any) -> None:
        super().__init__(**given)
        self.smoothing, self.num_outputs = smoothing, self.num_classes
        self.register_buffer("error_given_label", torch.zeros(self.num_classes, self.p))

    def learn(self, evidence: Evidence) -> None:
        super().learn(evidence)
        self.error_given_label.copy_(mean_by_label(evidence.errors, evidence.labels, self.num_classes, self.smoothing))

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return label_loss(self.apart(outputs)[0], labels)

    def estimates(self, outputs: Tensor) -> Tensor:
        return given_label(outputs, self.error_given_label)


class CostRegression(Priced):
    """σ(f_k) estimates the chance that expert k is right, trained by its log loss. Errors that are not 0 or 1 become
    1 − (error − least)/(most − least). by_label: f_k corrects what the label says: σ(f_k + logit Σ_y p(y|x) a_k(y)), with a_k(y)
    the mean over the label's rows. p(y|x) comes from further outputs, which also learn the label, with weight `label_weight`."""

    most: Tensor
    least: Tensor
    right_given_label: Tensor

    def __init__(
        self,
        *,
        costs: Tensor,
        by_label: bool = False,
        label_weight: NonNegative = 1.0,
        smoothing: NonNegative = 1.0,
        **given: Any,
    ) -> None:
        super().__init__(costs=costs, **given)
        self.by_label = self.needs_labels = by_label
        self.label_weight, self.smoothing = label_weight, smoothing
        # The training costs may have noise that the evidence does not have.
        self.cheapest = costs.double().nan_to_num(nan=torch.inf).amin(dim=0)
        self.dearest = costs.double().nan_to_num(nan=-torch.inf).amax(dim=0)
        self.register_buffer("most", torch.ones(()))
        self.register_buffer("least", torch.zeros(()))
        if by_label:
            self.num_outputs = self.p + self.num_classes
            self.register_buffer("right_given_label", torch.full((self.num_classes, self.p), 0.5))

    def learn(self, evidence: Evidence) -> None:
        super().learn(evidence)
        errors = evidence.errors
        self.most.fill_(max(complement_scale(errors), complement_scale(self.dearest - self.prices.double())))
        least = min(float(errors.nan_to_num(nan=torch.inf).min()), float((self.cheapest - self.prices.double()).min()))
        self.least.fill_(least if least < -ROUNDING else 0.0)
        if self.by_label:
            means = mean_by_label(self.right(errors.double()), evidence.labels, self.num_classes, self.smoothing)
            self.right_given_label.copy_(means)

    def right(self, errors: Tensor) -> Tensor:
        """The targets of σ(f_k), clamped since rounding may put them a little outside [0, 1]. [n, p] -> [n, p]."""
        least = self.least.to(errors)
        return (1 - (errors - least) / (self.most.to(errors) - least)).clamp(0, 1)

    def logits(self, outputs: Tensor) -> Tensor:
        """f_k, plus the estimate from the label. [B, num_outputs] -> [B, p]."""
        outputs = at_least_float32(outputs)
        if not self.by_label:
            return outputs
        right = given_label(outputs[..., self.p :], self.right_given_label).clamp(CERTAIN, 1 - CERTAIN)
        return outputs[..., : self.p] + torch.logit(right)

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        own, prices = self.apart(outputs)
        losses = one_vs_all_loss(self.logits(own), self.right(costs - prices.to(costs)))
        return losses + self.label_weight * label_loss(own[..., self.p :], labels) if self.by_label else losses

    def estimates(self, outputs: Tensor) -> Tensor:
        return self.errors(torch.sigmoid(-self.logits(outputs)))

    def errors(self, wrong: Tensor) -> Tensor:
        """The inverse of `right`: from the chance of being wrong to an error. [B, p] -> [B, p]."""
        least = self.least.to(wrong)
        return wrong * (self.most.to(wrong) - least) + least
