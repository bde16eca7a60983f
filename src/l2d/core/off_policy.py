"""The cost of a routing, estimated from a log that knows only the costs of the experts that were asked."""

from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.guard import paired
from l2d.core.replies import ByRow
from l2d.core.results import Estimate, OffPolicyValue

FEW = 2  # rows that a standard error needs
STRONGEST = 100.0  # unseen factor that is looked for


@dataclass(frozen=True)
class Logged(ByRow):
    """n rows of a log. [n, p] all"""

    expected: Tensor  # what a model, which did not learn from these rows, expects each expert to cost
    weights: Tensor  # 1/propensity where an expert was asked, else 0
    chances: Tensor | None = None  # the propensities of all experts; NaN where unknown


def weights_of(asked: Tensor, propensities: Tensor) -> Tensor:
    """1/propensity where an expert was asked, else 0. bool [n, p], [n, p] -> [n, p]. Propensities matter only where one was."""
    return torch.where(asked, 1 / propensities.where(asked, torch.ones_like(propensities)), 0.0)


def doubly_robust(known: Tensor, logged: Logged) -> Tensor:
    """expected + weight·(known − expected). Its mean over rows is right if the propensities or the expectations are. known
    [n, p]: costs or prices, NaN where an expert was not asked -> [n, p]. A single value may be negative."""
    return logged.expected + logged.weights * (known - logged.expected).nan_to_num(nan=0.0)


def known_costs(robust: Tensor, logged: Logged) -> Tensor:
    """The inverse of `doubly_robust`: what the log knows [n, p], NaN where an expert was not asked."""
    return logged.expected + (robust - logged.expected) / logged.weights.where(logged.weights > 0, torch.nan)


def value_of(decisions: Tensor, robust: Tensor, logged: Logged) -> OffPolicyValue:
    """The mean cost of decisions int [n], in three ways. robust [n, p]: the doubly robust costs. direct: by the model, whose own
    error is left out. snips: known costs by inverse propensity over the sum of the weights; None if the log knows none."""
    expected, weights, chosen = (paid(part.double(), decisions) for part in (logged.expected, logged.weights, robust))
    weighted, total, snips = chosen - expected * (1 - weights), weights.sum(), None
    if total > 0:
        value = weighted.sum() / total
        error = (weighted - weights * value).square().sum().sqrt() / total  # of a ratio of means
        snips = Estimate(float(value), float(error) if int((weights > 0).sum()) >= FEW else None)
    return OffPolicyValue(Estimate(*paired(expected)), snips, Estimate(*paired(chosen)))


def policy_value(known: Tensor) -> Estimate:
    """The log's own policy: the mean over rows of the mean cost of the experts that it asked. known [n, p], NaN where not asked."""
    return Estimate(*paired(known.double().nanmean(dim=1)))


def effective_rows(weights: Tensor) -> Tensor:
    """(Σ w)² / Σ w² for each expert: as many rows, all with the same propensity, would say as much. [n, p] -> [p]"""
    return weights.sum(dim=0).square() / weights.square().sum(dim=0).clamp(min=1e-12)


def least_gain(decisions: Tensor, other: Tensor, robust: Tensor, logged: Logged, strength: float) -> float:
    """The least mean gain of decisions int [n] over `other`, if an unseen factor changes the odds of being asked, row by row, by at
    most ×strength or ÷strength (Tan's marginal sensitivity model). A weight 1/e is then between 1 + (1/e − 1)/strength and
    1 + (1/e − 1)·strength. Each expert's weights keep their sum. It is a linear programme: first the rows that hurt most."""
    gain = paid(logged.expected, other) - paid(logged.expected, decisions)
    total = float(gain.sum())
    for k, (weights, values, expected) in enumerate(zip(logged.weights.T, robust.T, logged.expected.T, strict=True)):
        asked = weights > 0
        own, sign = weights[asked], (other == k).double() - (decisions == k).double()
        hurt, order = (sign * (values - expected))[asked].div(own).sort()
        own, excess = own[order], (own - 1).clamp(min=0)[order]
        least, room = own - excess * (1 - 1 / strength), excess * (strength - 1 / strength)
        free = (own - least).sum()
        given = (free - (room.cumsum(0) - room)).clamp(min=0).minimum(room)
        total += float((hurt * (least + given)).sum())
    return total / len(decisions)


def flip_strength(decisions: Tensor, other: Tensor, robust: Tensor, logged: Logged) -> float:
    """The least strength, up to STRONGEST, at which decisions may cost as much as `other`; 1 if they do by the estimate."""
    low, high = 1.0, STRONGEST
    if least_gain(decisions, other, robust, logged, low) <= 0:
        return low
    if least_gain(decisions, other, robust, logged, high) > 0:
        return high
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if least_gain(decisions, other, robust, logged, middle) > 0 else (low, middle)
    return high


def explored_deviation(served: Tensor, other: Tensor, robust: Tensor, logged: Logged, explore: float) -> float:
    """The standard deviation, over decisions, of the doubly robust difference between two policies int [n] in the log of a server
    that asks `served`, and with the chance `explore` any expert. An expert's variance is that of its residuals here."""
    residuals = (robust - logged.expected) / logged.weights.where(logged.weights > 0, 1.0)
    variance = (logged.weights * residuals.square()).sum(dim=0) / logged.weights.sum(dim=0).clamp(min=1e-12)
    others = explore / robust.shape[1]
    noise = variance[served] / (1 - explore + others) + variance[other] / others
    expected = paid(logged.expected, other) - paid(logged.expected, served)
    return float((expected.var() + noise.where(served != other, 0.0).mean()).sqrt())
