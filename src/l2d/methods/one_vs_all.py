"""One-vs-all (Verma et al. 2023): each output by itself says how good its expert would be; and two rules that go by that."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from l2d.core.decisions import argmax_last, at_least_float32
from l2d.core.rewards import complement, complement_scale
from l2d.methods.method import Method
from l2d.utils.errors import L2DError, check_choice

RULES = ("argmax", "threshold", "cascade")


def one_vs_all_loss(scores: Tensor, rewards: Tensor) -> Tensor:
    """Σ_k −c̄_k log σ(f_k) − (1 − c̄_k) log σ(−f_k), least where σ(f_k) = E[c̄_k|x]. scores and rewards in [0, 1], [B, p] -> [B]."""
    scores = at_least_float32(scores)
    return F.binary_cross_entropy_with_logits(scores, rewards.to(scores), reduction="none").sum(dim=-1)


def first_confident(scores: Tensor, order: Tensor, threshold: float) -> Tensor:
    """The first expert in `order` with σ(f_k) ≥ threshold, else the one with the highest score. [B, p], int [q] -> int [B]."""
    confident = torch.sigmoid(scores)[:, order] >= threshold
    first = order[confident.int().argmax(dim=1)]
    return torch.where(confident.any(dim=1), first, argmax_last(scores))


class OneVsAll(Method):
    """σ(f_k) estimates 1 − E[c_k|x]/scale, the scale being the largest training cost, at least 1. With cost=error this is the
    chance that expert k is right: the experts' part of the one-vs-all loss of Verma et al., with no classifier of one's own.

    rule: argmax (of the scores: the least expected cost); threshold (the expert with the least mean cost in training, where its
    confidence reaches `threshold`, else the most confident); cascade (the first in `order` whose confidence reaches it, else the
    most confident; experts are numbered from 1, null: by mean training cost, the best first).

    Of the last two the paper's appendix ("Discussion on Alternative Baselines") says that it is unclear how to set thresholds where
    experts differ in cost and skill, that a cascade hangs on the order, taken for a fixed ranking, and that prices which differ
    between inputs are left out. Here prices enter through the confidence alone; that a real cascade pays for every expert it asks
    does not enter: one decision is scored, as for all methods.

    With `sampling` the training costs are the resampled ones, whose best expert may be another: give a cascade its `order` then.
    """

    order: Tensor
    best: Tensor
    reward_scale: Tensor

    def __init__(
        self,
        *,
        costs: Tensor,
        num_classes: int,
        decision: str,
        rule: str,
        threshold: float,
        order: Sequence[int] | None,
    ) -> None:
        super().__init__(costs=costs, num_classes=num_classes, decision=decision)
        check_choice("method.rule", rule, RULES)
        if not 0 <= threshold <= 1:
            raise L2DError(f"method.threshold={threshold}: must be between 0 and 1")
        p = costs.shape[1]
        if order is not None and sorted(order) != list(range(1, p + 1)):
            raise L2DError(f"method.order={list(order)}: must name each expert 1..{p} once")
        self.rule, self.threshold = rule, threshold
        by_cost = costs.double().mean(dim=0).argsort(stable=True)
        self.register_buffer("order", by_cost if order is None else torch.tensor(list(order)) - 1)
        self.register_buffer("best", by_cost[:1])
        self.register_buffer("reward_scale", torch.tensor(complement_scale(costs)))

    def loss(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002
        return one_vs_all_loss(outputs, complement(costs, self.reward_scale))

    @property
    def by_argmax(self) -> bool:
        return self.decision == "posterior" or self.rule == "argmax"

    def decide(self, outputs: Tensor, decision: str | None = None) -> Tensor:
        if (decision or self.decision) == "posterior" or self.rule == "argmax":
            return super().decide(outputs, decision)
        order = self.order if self.rule == "cascade" else self.best
        return first_confident(at_least_float32(outputs), order, self.threshold)

    def posterior(self, outputs: Tensor) -> Tensor:
        """σ(f_k)/Σ_j σ(f_j): each expert's share of the expected rewards."""
        return torch.softmax(F.logsigmoid(at_least_float32(outputs)), dim=-1)

    def expected_costs(self, outputs: Tensor) -> Tensor:
        """(1 − σ(f_k))·scale."""
        scores = at_least_float32(outputs)
        return torch.sigmoid(-scores) * self.reward_scale.to(scores)

    def mass(self, costs: Tensor) -> Tensor:
        return complement(costs, self.reward_scale)
