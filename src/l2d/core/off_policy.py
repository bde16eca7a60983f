"""The cost of a routing, estimated from a log that knows only the costs of the experts that were asked."""

from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.guard import paired
from l2d.core.results import Estimate, OffPolicyValue

FEW = 2  # rows that a standard error needs


@dataclass(frozen=True)
class Logged:
    """n rows of a log. expected [n, p]: what a model expects each expert to cost, which did not learn from these rows. weights
    [n, p]: 1/propensity where an expert was asked, else 0."""

    expected: Tensor
    weights: Tensor

    def __getitem__(self, rows: Tensor) -> "Logged":
        return Logged(self.expected[rows], self.weights[rows])


def weights_of(asked: Tensor, propensities: Tensor) -> Tensor:
    """1/propensity where an expert was asked, else 0. bool [n, p], [n, p] -> [n, p]. Propensities matter only where one was."""
    return torch.where(asked, 1 / propensities.where(asked, torch.ones_like(propensities)), 0.0)


def doubly_robust(known: Tensor, logged: Logged) -> Tensor:
    """expected + weight·(known − expected). Its mean over rows is right if the propensities or the expectations are. known
    [n, p]: costs or prices, NaN where an expert was not asked -> [n, p]. A single value may be negative."""
    return logged.expected + logged.weights * (known - logged.expected).nan_to_num(nan=0.0)


def inverse_propensity(known: Tensor, weights: Tensor) -> Tensor:
    """weight·known, 0 where an expert was not asked. [n, p] both -> [n, p]"""
    return weights * known.nan_to_num(nan=0.0)


def known_costs(robust: Tensor, logged: Logged) -> Tensor:
    """The inverse of `doubly_robust`: what the log knows [n, p], NaN where an expert was not asked."""
    return logged.expected + (robust - logged.expected) / logged.weights.where(logged.weights > 0, torch.nan)


def value_of(decisions: Tensor, robust: Tensor, logged: Logged) -> OffPolicyValue:
    """The mean cost of decisions int [n], estimated in three ways. robust [n, p]: the doubly robust costs. direct: the model's
    expectations; its standard error leaves the model's own error out. snips: the known costs where the log asked the chosen
    expert, by inverse propensity, divided by the sum of the weights; None if the log never did."""
    expected, weights, chosen = (paid(part.double(), decisions) for part in (logged.expected, logged.weights, robust))
    snips = _self_normalised(chosen - expected * (1 - weights), weights)
    return OffPolicyValue(Estimate(*paired(expected)), snips, Estimate(*paired(chosen)))


def _self_normalised(weighted: Tensor, weights: Tensor) -> Estimate | None:
    """weighted [n]: weight·cost. The standard error is that of a ratio of means."""
    total = weights.sum()
    if total == 0:
        return None
    value = weighted.sum() / total
    error = (weighted - weights * value).square().sum().sqrt() / total
    return Estimate(float(value), float(error) if int((weights > 0).sum()) >= FEW else None)


def policy_value(known: Tensor) -> Estimate:
    """The cost of the log's own policy: the mean over rows of the mean cost of the experts that it asked. known [n, p], NaN where
    one was not asked."""
    return Estimate(*paired(known.double().nanmean(dim=1)))
