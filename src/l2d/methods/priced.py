"""Routers that know what is behind the costs: by way of the label, or one estimate per expert. Prices may change after training."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from l2d.core.decisions import at_least_float32
from l2d.core.rewards import complement_scale
from l2d.methods.method import Evidence, Method
from l2d.methods.one_vs_all import one_vs_all_loss
from l2d.utils.errors import L2DError

UNKNOWN = -1
# Of a chance in a logit: with no more than thousands of rows behind it, none is known to be nearer 0 or 1.
CERTAIN = 1e-4
ROUNDING = 1e-6  # of prices in 32 bits


def mean_by_label(values: Tensor, labels: Tensor, num_classes: int, smoothing: float) -> Tensor:
    """E[values|label], drawn towards the mean of all rows as if by `smoothing` more rows. [n, p], int [n] -> [num_classes, p].

    Rows whose label is unknown count towards the mean of all.
    """
    values = values.double()
    known = labels != UNKNOWN
    sums = torch.zeros(num_classes, values.shape[1], dtype=torch.float64).index_add(0, labels[known], values[known])
    counts = torch.bincount(labels[known], minlength=num_classes)[:, None]
    overall = values.mean(dim=0)
    if smoothing == 0:
        return torch.where(counts > 0, sums / counts.clamp(min=1), overall)
    return (sums + smoothing * overall) / (counts + smoothing)


def given_label(logits: Tensor, table: Tensor) -> Tensor:
    """Σ_y p(y|x) table_y, [B, num_classes], [num_classes, p] -> [B, p]. Not in half precision, in which chances near 1 are 1."""
    with torch.autocast(logits.device.type, enabled=False):
        chances = torch.softmax(at_least_float32(logits), dim=-1)
        return chances @ table.to(chances)


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, 0 where the label is unknown. [B, num_classes], [B] -> [B]."""
    return F.cross_entropy(at_least_float32(logits), labels, ignore_index=UNKNOWN, reduction="none")


class Priced(Method):
    """A method that estimates errors and adds prices to them only to decide: least E[error_k|x] + β_k.

    Where prices differ between rows nobody knows that of the next, so it is estimated with the error, as one cost.
    """

    takes_evidence = True
    prices: Tensor
    by_row: Tensor
    # Of each label, how many rows of the evidence have it; of what goes by no label, none.
    rows_by_label: Tensor | None = None

    def __init__(self, *, costs: Tensor, num_classes: int, decision: str) -> None:
        super().__init__(costs=costs, num_classes=num_classes, decision=decision)
        self.num_classes, self.p = num_classes, costs.shape[1]
        self.register_buffer("prices", torch.zeros(self.p))
        self.register_buffer("by_row", torch.tensor(False))

    def learn(self, evidence: Evidence) -> None:
        self.by_row.fill_(evidence.prices.ndim == 2)
        if evidence.prices.ndim == 1:
            self.prices.copy_(evidence.prices)

    def estimated(self, evidence: Evidence) -> Tensor:
        """What there is to estimate of each row and expert: the error, or the cost where the price belongs to the row. [n, p]."""
        return evidence.errors + evidence.prices if evidence.prices.ndim == 2 else evidence.errors

    def reprice(self, prices: Tensor) -> None:
        if bool(self.by_row):
            raise L2DError(
                "prices: differed between rows in training (cost.prices=columns), and were learned with the errors; a router"
                " that takes others is trained with one price for each expert"
            )
        self.prices.copy_(prices)

    def utilities(self, outputs: Tensor, decision: str | None = None) -> Tensor:  # noqa: ARG002
        return -self.expected_costs(outputs)

    def expected_costs(self, outputs: Tensor) -> Tensor:
        expected = self.estimates(outputs)
        return expected + self.prices.to(expected)

    def expected_errors(self, outputs: Tensor) -> Tensor | None:
        return None if bool(self.by_row) else self.estimates(outputs)

    def estimates(self, outputs: Tensor) -> Tensor:
        """E[error_k|x], or E[c_k|x] where prices belong to rows, [B, num_outputs] -> [B, p]."""
        raise NotImplementedError

    def costs_by_label(self) -> Tensor | None:
        """What each label says of each expert: E[error_k|y] + β_k, [num_classes, p]; None for what goes by no label."""
        return None

    def _count_labels(self, evidence: Evidence) -> None:
        known = evidence.labels[evidence.labels != UNKNOWN]
        if not len(known):
            raise L2DError(
                "method: goes by the label, and these data have none; name a column, such as dataset.label=topic"
            )
        self.rows_by_label = torch.bincount(known, minlength=self.num_classes)


class Plugin(Priced):
    """A classifier of the label. E[error_k|x] = Σ_y p(y|x) E[error_k|y], with E[error_k|y] off the evidence's rows.

    smoothing: rows' worth of the overall mean that each label's mean is drawn towards.
    """

    error_given_label: Tensor

    def __init__(self, *, costs: Tensor, num_classes: int, decision: str, smoothing: float) -> None:
        super().__init__(costs=costs, num_classes=num_classes, decision=decision)
        check_smoothing(smoothing)
        self.smoothing, self.num_outputs = smoothing, num_classes
        self.register_buffer("error_given_label", torch.zeros(num_classes, self.p))

    def learn(self, evidence: Evidence) -> None:
        super().learn(evidence)
        self._count_labels(evidence)
        means = mean_by_label(self.estimated(evidence), evidence.labels, self.num_classes, self.smoothing)
        self.error_given_label.copy_(means)

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return label_loss(outputs, labels)

    def estimates(self, outputs: Tensor) -> Tensor:
        return given_label(outputs, self.error_given_label)

    def costs_by_label(self) -> Tensor:
        return self.error_given_label + self.prices


class CostRegression(Priced):
    """σ(f_k) estimates the chance that expert k is right, by its log loss; where errors are not 0 or 1, 1 − (error − least)/(most −
    least), least being 0 unless noise on the costs takes errors below it.

    by_label: f_k is a correction of what the label says: σ(f_k + logit Σ_y p(y|x) a_k(y)), a_k(y) the mean over the label's rows,
    with p(y|x) from outputs of its own that learn the label too, at `label_weight`.
    """

    most: Tensor
    least: Tensor
    right_given_label: Tensor

    def __init__(
        self,
        *,
        costs: Tensor,
        num_classes: int,
        decision: str,
        by_label: bool,
        label_weight: float,
        smoothing: float,
    ) -> None:
        super().__init__(costs=costs, num_classes=num_classes, decision=decision)
        check_smoothing(smoothing)
        if not 0 <= label_weight < float("inf"):
            raise L2DError(f"method.label_weight={label_weight}: must be finite and not negative")
        self.by_label, self.label_weight, self.smoothing = by_label, label_weight, smoothing
        # Noise is on the training costs, and may not be in the evidence.
        self.cheapest, self.dearest = costs.double().amin(dim=0), costs.double().amax(dim=0)
        self.register_buffer("most", torch.ones(()))
        self.register_buffer("least", torch.zeros(()))
        if by_label:
            self.num_outputs = self.p + num_classes
            self.register_buffer("right_given_label", torch.full((num_classes, self.p), 0.5))

    def learn(self, evidence: Evidence) -> None:
        super().learn(evidence)
        errors = self.estimated(evidence)
        self.most.fill_(max(complement_scale(errors), complement_scale(self.dearest - self.prices.double())))
        least = min(float(errors.min()), float((self.cheapest - self.prices.double()).min()))
        self.least.fill_(least if least < -ROUNDING else 0.0)
        if self.by_label:
            self._count_labels(evidence)
            means = mean_by_label(self.right(errors.double()), evidence.labels, self.num_classes, self.smoothing)
            self.right_given_label.copy_(means)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *given: Any) -> None:
        if (scale := state_dict.pop(f"{prefix}scale", None)) is not None:  # of runs made before noise was allowed for
            state_dict |= {f"{prefix}most": scale, f"{prefix}least": torch.zeros(())}
        super()._load_from_state_dict(state_dict, prefix, *given)

    def right(self, errors: Tensor) -> Tensor:
        least = self.least.to(errors)
        return (1 - (errors - least) / (self.most.to(errors) - least)).clamp(0, 1)  # of rounding, a little beyond

    def logits(self, outputs: Tensor) -> Tensor:
        """f_k, with what the label says. [B, num_outputs] -> [B, p]."""
        outputs = at_least_float32(outputs)
        if not self.by_label:
            return outputs
        right = given_label(outputs[..., self.p :], self.right_given_label).clamp(CERTAIN, 1 - CERTAIN)
        return outputs[..., : self.p] + torch.logit(right)

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:
        losses = one_vs_all_loss(self.logits(outputs), self.right(costs - self.prices.to(costs)))
        return losses + self.label_weight * label_loss(outputs[..., self.p :], labels) if self.by_label else losses

    def estimates(self, outputs: Tensor) -> Tensor:
        return self.errors(torch.sigmoid(-self.logits(outputs)))

    def errors(self, wrong: Tensor) -> Tensor:
        """What `right` makes chances of, back."""
        least = self.least.to(wrong)
        return wrong * (self.most.to(wrong) - least) + least

    def costs_by_label(self) -> Tensor | None:
        return self.errors(1 - self.right_given_label) + self.prices if self.by_label else None


def check_smoothing(smoothing: float) -> None:
    if not 0 <= smoothing < float("inf"):
        raise L2DError(f"method.smoothing={smoothing}: must be finite and not negative")
