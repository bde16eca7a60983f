"""Completes the costs of a log, which knows only those of the experts that were asked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from l2d.core.off_policy import Logged, doubly_robust, inverse_propensity, weights_of
from l2d.core.ridge import fit_crossed, standardised
from l2d.data.arrays import channel_statistics
from l2d.utils.errors import L2DError

if TYPE_CHECKING:
    from l2d.routing.assemble import Split

LEAST_ASKED = 10  # training rows on which every expert must have been asked
LEAST_CHANCE = 0.01  # estimated propensities are at least this: one row may not weigh more than a hundred
STRENGTH = 0.01  # C of the propensities' classifier: the inverse of its penalty


class LogModel:
    """What the training rows of a log say: what each expert costs, and how likely it is asked. Both are linear in the inputs if
    these are rows of numbers; else they are means."""

    def __init__(self, train: Split, names: Sequence[str]) -> None:
        asked = ~train.costs.isnan()
        for name, count in zip(names, asked.sum(dim=0).tolist(), strict=True):
            if count < LEAST_ASKED:
                was = "was never asked" if not count else f"was asked {count} times"
                needed = f"at least {LEAST_ASKED} are needed, or leave it out (dataset.experts)"
                raise L2DError(f"{name}: {was} in the training rows of this log; {needed}")
        self.mean, self.std = (torch.tensor(part) for part in channel_statistics(train.source, train.rows))
        points = self.points(train.inputs)
        parts = [train.costs, train.prices] if train.prices.ndim == 2 else [train.costs]
        coefficients, expectations = fit_crossed(points, torch.cat(parts, dim=1))
        p = len(names)
        self.costs, expected = coefficients[:, :p], expectations[:, :p]
        self.prices = coefficients[:, p:] if train.prices.ndim == 2 else None
        self.chances = None if asked.all() or train.answers.propensities is not None else fit_chances(points, asked)
        weights = self.weights(points, train)
        self.own = Logged(expected, weights)

    def points(self, inputs: Tensor) -> Tensor:
        return standardised(inputs, self.mean, self.std).double()

    def weights(self, points: Tensor, split: Split) -> Tensor:
        asked = ~split.costs.isnan()
        if split.answers.propensities is not None:
            return weights_of(asked, split.answers.propensities)
        if asked.all():
            return torch.ones_like(split.costs)
        # All experts were asked on the training rows: these say nothing of this log.
        coefficients = fit_chances(points, asked) if self.chances is None else self.chances
        return weights_of(asked, torch.sigmoid(points @ coefficients).clamp(min=LEAST_CHANCE))

    def judged(self, split: Split) -> Split:
        """Rows that the model did not see, with doubly robust costs and prices."""
        points = self.points(split.inputs)
        logged = Logged(points @ self.costs, self.weights(points, split))
        prices = split.prices
        if self.prices is not None:
            prices = doubly_robust(prices, Logged(points @ self.prices, logged.weights))
        return replace(split, costs=doubly_robust(split.costs, logged), prices=prices, logged=logged)


def completed(costs: Tensor, logged: Logged, missing: str) -> Tensor:
    """Costs for methods that need every one. [n, p] with NaN -> [n, p]

    direct: the model's expectation where an expert was not asked. ips: 0 there, else the cost by inverse propensity. dr: doubly
    robust; the same amount is added to all costs so that none is negative, which changes no comparison.
    """
    if missing == "direct":
        return torch.where(costs.isnan(), logged.expected.clamp(min=0), costs)
    if missing == "ips":
        return inverse_propensity(costs, logged.weights)
    robust = doubly_robust(costs, logged)
    return robust - robust.min().clamp(max=0)


def fit_chances(points: Tensor, asked: Tensor) -> Tensor:
    """Log-odds of being asked, as coefficients [F, p]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    columns = []
    for mine in asked.T:
        share = float(mine.double().mean())
        column = torch.zeros(points.shape[1], dtype=torch.float64)
        column[-1] = torch.logit(torch.tensor(share, dtype=torch.float64), eps=1e-6)
        if share < 1 and len(column) > 1:
            model = LogisticRegression(C=STRENGTH, max_iter=200, tol=1e-3)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(points[:, :-1].numpy(), mine.numpy())
            column[:-1], column[-1] = torch.from_numpy(model.coef_[0]), float(model.intercept_[0])
        columns.append(column)
    return torch.stack(columns, dim=1)
