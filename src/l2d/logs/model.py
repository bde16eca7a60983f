"""Completes the costs of a log, which knows only those of the experts that were asked."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from l2d.core.guard import paired
from l2d.core.off_policy import Logged, doubly_robust, inverse_propensity, weights_of
from l2d.core.ridge import fit_crossed, standardised
from l2d.data.arrays import channel_statistics
from l2d.data.split import Split
from l2d.utils.errors import L2DError
from l2d.utils.seeding import stream

LEAST_ASKED = 10  # training rows on which every expert must have been asked
LEAST_CHANCE = 0.01  # estimated propensities are at least this: one row may not weigh more than a hundred
STRENGTHS = (1e-3, 1e-2)  # C of the propensities' classifier: the inverse of its penalty
CHANCE_FOLDS = 3
SURE = 2.0  # standard errors


@dataclass(frozen=True)
class LogModel:
    """The expected cost of each expert and its chance of being asked, fitted to the training rows of a log. Both are linear in the
    inputs if these are rows of numbers; else they are means.

    mean, std: of the inputs [F]. costs, prices [F + 1, p]: coefficients; prices is None if rows have none of their own. chances
    [F + 1, p]: of the log-odds of being asked; None if they are given, or every expert was asked. own: for the training rows,
    each by a model that did not see the row.
    """

    mean: Tensor
    std: Tensor
    costs: Tensor
    prices: Tensor | None
    chances: Tensor | None
    own: Logged

    def judged(self, split: Split) -> Split:
        """Rows that the model did not see, with doubly robust costs and prices."""
        points = standardised(split.inputs, self.mean, self.std).double()
        logged = Logged(points @ self.costs, weights_in(points, split, self.chances))
        prices = split.prices
        if self.prices is not None:
            prices = doubly_robust(prices, Logged(points @ self.prices, logged.weights))
        return replace(split, costs=doubly_robust(split.costs, logged), prices=prices, logged=logged)


def fit_log_model(train: Split, names: Sequence[str]) -> LogModel:
    """names: of the experts, for the error if one of them was hardly asked."""
    asked = ~train.costs.isnan()
    for name, count in zip(names, asked.sum(dim=0).tolist(), strict=True):
        if count < LEAST_ASKED:
            was = "was never asked" if not count else f"was asked {count} times"
            needed = f"at least {LEAST_ASKED} are needed, or leave it out (dataset.experts; in l2d.fit, its column)"
            raise L2DError(f"{name}: {was} in the training rows of this log; {needed}")
    mean, std = (torch.tensor(part) for part in channel_statistics(train.source, train.rows))
    points = standardised(train.inputs, mean, std).double()
    p, by_row = len(names), train.prices.ndim == 2
    coefficients, expected = fit_crossed(points, torch.cat([train.costs, *([train.prices] if by_row else [])], dim=1))
    chances = None if asked.all() or train.answers.propensities is not None else fit_chances(points, asked)
    own = Logged(expected[:, :p], weights_in(points, train, chances))
    return LogModel(mean, std, coefficients[:, :p], coefficients[:, p:] if by_row else None, chances, own)


def weights_in(points: Tensor, split: Split, chances: Tensor | None) -> Tensor:
    """Inverse propensities [n, p] where an expert was asked, else 0. chances: see LogModel."""
    asked = ~split.costs.isnan()
    if split.answers.propensities is not None:
        return weights_of(asked, split.answers.propensities)
    if asked.all():
        return torch.ones_like(split.costs)
    if chances is None:  # all experts were asked on the training rows: these say nothing of this log
        chances = fit_chances(points, asked)
    weights = weights_of(asked, torch.sigmoid(points @ chances).clamp(min=LEAST_CHANCE))
    return weights / weights.mean(dim=0).clamp(min=LEAST_CHANCE)  # the mean for true propensities is 1


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
    """Log-odds of being asked, as coefficients [F, p]. Inputs count only if they say more than an expert's share of the rows does,
    on rows that were left out and by more than two standard errors: chance would make weights that are far too large."""
    columns = []
    fold = torch.from_numpy(stream(0, "chances").permutation(len(points))) % CHANCE_FOLDS
    for mine in asked.T:
        choices: dict[float | None, Tensor] = {None: torch.zeros(len(points), dtype=torch.float64)}
        if points.shape[1] > 1 and not mine.all():
            choices |= {strength: torch.zeros(len(points), dtype=torch.float64) for strength in STRENGTHS}
        for strength, lost in choices.items():
            for k in range(CHANCE_FOLDS):
                others, own = fold != k, fold == k
                column = chance_column(points[others], mine[others], strength)
                odds = points[own] @ column
                lost[own] = torch.nn.functional.binary_cross_entropy_with_logits(
                    odds, mine[own].double(), reduction="none"
                )
        best = min(choices, key=lambda choice: float(choices[choice].mean()))
        gain, error = paired(choices[None] - choices[best])
        sure = error is not None and gain > SURE * error
        columns.append(chance_column(points, mine, best if sure else None))
    return torch.stack(columns, dim=1)


def chance_column(points: Tensor, mine: Tensor, strength: float | None) -> Tensor:
    """Coefficients of a logistic regression; None: the log-odds of the share of the rows, whatever the input."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    column = torch.zeros(points.shape[1], dtype=torch.float64)
    column[-1] = torch.logit(mine.double().mean(), eps=1e-6)
    if strength is None or mine.all() or not mine.any():
        return column
    model = LogisticRegression(C=strength, max_iter=200, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(points[:, :-1].numpy(), mine.numpy())
    column[:-1], column[-1] = torch.from_numpy(model.coef_[0]), float(model.intercept_[0])
    return column
