"""One-vs-all (Verma et al. 2023): each output alone estimates how good its expert is; and two decision rules that use it."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from l2d.core.costs import complement, complement_scale
from l2d.core.decisions import argmax_last, at_least_float32
from l2d.methods.method import Method
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Count, Share


def one_vs_all_loss(scores: Tensor, rewards: Tensor) -> Tensor:
    """Σ_k −c̄_k log σ(f_k) − (1 − c̄_k) log σ(−f_k), least where σ(f_k) = E[c̄_k|x]; NaN does not count. [B, p] both -> [B]."""
    scores = at_least_float32(scores)
    asked = ~rewards.isnan()
    targets = rewards.where(asked, 0.0).to(scores)
    return (F.binary_cross_entropy_with_logits(scores, targets, reduction="none") * asked).sum(dim=-1)


def first_confident(scores: Tensor, order: Tensor, threshold: float) -> Tensor:
    """The first expert in `order` with σ(f_k) ≥ threshold, else the one with the highest score. [B, p], int [q] -> int [B]."""
    confident = torch.sigmoid(scores)[:, order] >= threshold
    return torch.where(confident.any(dim=1), order[confident.int().argmax(dim=1)], argmax_last(scores))


class OneVsAll(Method):
    """σ(f_k) estimates 1 − E[c_k|x]/scale; the scale is the largest training cost, at least 1. With cost=error this is the chance
    that expert k is right: the experts' part of the loss of Verma et al., without a classifier.

    rule: argmax, or threshold and cascade (conf/method). A real cascade pays for every expert it asks; here one decision is scored.
    order: experts numbered from 1; null: by mean training cost, with `sampling` that of the resampled rows. mean_costs [p]: those
    of a log, whose known costs alone would favour experts that were asked easy queries."""

    estimates_costs: ClassVar[bool] = True
    learns_from_logs: ClassVar[bool] = True
    order: Tensor
    best: Tensor
    reward_scale: Tensor

    def __init__(
        self,
        *,
        costs: Tensor,
        rule: Literal["argmax", "threshold", "cascade"],
        threshold: Share,
        order: list[Count] | None,
        largest_cost: float | None = None,
        mean_costs: Tensor | None = None,
        **given: Any,
    ) -> None:
        super().__init__(costs=costs, **given)
        p = costs.shape[1]
        if order is not None and sorted(order) != list(range(1, p + 1)):
            raise ParameterError("order", f"must name each expert from 1 to {p} once", list(order))
        self.rule, self.threshold = rule, threshold
        means = costs.double().nanmean(dim=0) if mean_costs is None else mean_costs
        by_cost = 1 + means.argsort(stable=True)
        self.register_buffer("order", by_cost if order is None else torch.tensor(order))
        self.register_buffer("best", by_cost[:1])
        self.register_buffer("reward_scale", torch.tensor(complement_scale(costs, largest_cost)))

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return one_vs_all_loss(outputs, complement(costs, self.reward_scale))

    @property
    def by_argmax(self) -> bool:
        return self.decision == "posterior" or self.rule == "argmax"

    def decide(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        if (decision or self.decision) == "posterior" or self.rule == "argmax":
            return super().decide(outputs, decision)
        numbers = self.order if self.rule == "cascade" else self.best  # from 1, as in the config
        return first_confident(at_least_float32(outputs), numbers - 1, self.threshold)

    def posterior(self, outputs: Tensor) -> Tensor:
        """σ(f_k)/Σ_j σ(f_j): each expert's share of the expected rewards."""
        return torch.softmax(F.logsigmoid(at_least_float32(outputs)), dim=-1)

    def expected_costs(self, outputs: Tensor) -> Tensor:
        scores = at_least_float32(outputs)
        return torch.sigmoid(-scores) * self.reward_scale.to(scores)

    def mass(self, costs: Tensor) -> Tensor:
        return complement(costs, self.reward_scale)
