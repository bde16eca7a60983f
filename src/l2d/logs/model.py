"""Completes the costs of a log, which knows only those of the experts that were asked."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from l2d.core.guard import paired
from l2d.core.off_policy import Logged, doubly_robust, weights_of
from l2d.core.ridge import channel_statistics, fit_crossed, standardised
from l2d.data.splits import Split
from l2d.utils.errors import L2DError
from l2d.utils.seeding import stream

LEAST_ASKED = 10  # training rows on which every expert must have been asked
LEAST_CHANCE = 0.01  # estimated propensities are at least this: one row may not weigh more than a hundred
LARGE = 30.0  # times inputs, are confounders: no penalty shrinks a few of them for the noise of hundreds of inputs
STRENGTH = 0.01  # C of the propensities' classifier, the inverse of its penalty; 9 for confounders of the inputs' size
CHANCE_FOLDS = 3
SURE = 2.0  # standard errors


@dataclass(frozen=True)
class LogModel:
    """The expected cost of each expert and its chance of being asked, linear in the inputs, if these are rows of numbers, and in
    the confounders; else means. own…: for the training rows, each by a model that did not see the row."""

    mean: Tensor  # of the inputs [F]
    std: Tensor
    costs: Tensor  # coefficients [F + C + 1, p]
    prices: Tensor | None  # likewise; None if rows have none of their own
    chances: Tensor | None  # of the log-odds of being asked; None if they are given, or every expert was asked
    alone: bool  # see `chances_of`
    own: Logged
    own_errors: Tensor | None = None  # [n, p]
    own_prices: Tensor | None = None
    inputs_prices: Tensor | None = None  # of the inputs alone [F + 1, p]

    def completed(self, train: Split, missing: str, prices_later: bool) -> Split:
        """The training rows with all costs. If prices are added later, errors and prices are completed on their own."""
        if self.own_prices is None or self.own_errors is None or not prices_later:
            return replace(train, costs=completed(train.costs, self.own, missing))
        own = replace(self.own, expected=self.own_errors)
        prices = completed(train.prices, replace(own, expected=self.own_prices), "direct")
        return replace(train, costs=completed(train.costs - train.prices, own, missing) + prices, prices=prices)

    def judged(self, split: Split) -> Split:
        """Rows that the model did not see, with doubly robust costs and prices."""
        points, inputs = points_of(split, self.mean, self.std)
        chances, alone, asked = self.chances, self.alone, ~split.costs.isnan()
        if chances is None and not known_chances(split):  # the training rows, all asked, say nothing of this log
            chances, alone = fit_chances(points, asked, inputs)[0], one_each(asked)
        logged = logged_of(split, points @ self.costs, None if chances is None else chances_of(points @ chances, alone))
        prices = split.prices
        if self.prices is not None:
            prices = doubly_robust(prices, replace(logged, expected=points @ self.prices))
        return replace(split, costs=doubly_robust(split.costs, logged), prices=prices, logged=logged)


def fit_log_model(train: Split, names: Sequence[str], ungraded: Split | None = None) -> LogModel:
    """names: of the experts, for the error if one of them was hardly asked. ungraded: rows with nothing but prices."""
    asked = ~train.costs.isnan()
    for name, count in zip(names, asked.sum(dim=0).tolist(), strict=True):
        if count < LEAST_ASKED:
            was = "was never asked" if not count else f"was asked {count} times"
            needed = f"at least {LEAST_ASKED} are needed, or leave it out (dataset.experts; in l2d.fit, its column)"
            raise L2DError(f"{name}: {was} in the training rows of this log; {needed}")
    mean, std = (torch.tensor(part) for part in channel_statistics(train.source, train.rows))
    points, inputs = points_of(train, mean, std)
    p, by_row = len(names), train.prices.ndim == 2
    coefficients, expected = fit_crossed(points, torch.cat([train.costs, *([train.prices] if by_row else [])], dim=1))
    prices, own_prices = (coefficients[:, p:], expected[:, p:]) if by_row else (None, None)
    own_errors = expected[:, :p] - expected[:, p:] if by_row else None  # both of the graded rows
    if by_row and ungraded is not None:
        more = torch.cat([points, points_of(ungraded, mean, std)[0]])
        prices, own_prices = fit_crossed(more, torch.cat([train.prices, ungraded.prices]))
        own_prices = own_prices[: len(points)]
    by_inputs = prices
    if by_row and train.answers.confounders is not None:
        known = train.prices if ungraded is None else torch.cat([train.prices, ungraded.prices])
        columns = torch.cat([standardised(part.inputs, mean, std) for part in (train, ungraded) if part is not None])
        by_inputs = fit_crossed(columns, known)[0]
    chances, odds = (None, None) if known_chances(train) else fit_chances(points, asked, inputs)
    alone = one_each(asked)
    own = logged_of(train, expected[:, :p], None if odds is None else chances_of(odds, alone))
    return LogModel(mean, std, coefficients[:, :p], prices, chances, alone, own, own_errors, own_prices, by_inputs)


def points_of(split: Split, mean: Tensor, std: Tensor) -> tuple[Tensor, int]:
    """The inputs, the enlarged confounders and a 1 [n, F + C + 1], and F."""
    points = standardised(split.inputs, mean, std).double()
    inputs, confounders = points.shape[1] - 1, split.answers.confounders
    if confounders is not None:
        points = torch.cat([points[:, :-1], LARGE * confounders, points[:, -1:]], dim=1)
    return points, inputs


def known_chances(split: Split) -> bool:
    return split.answers.propensities is not None or not bool(split.costs.isnan().any())


def logged_of(split: Split, expected: Tensor, estimated: Tensor | None) -> Logged:
    """estimated [n, p]: the chances of being asked, for a log without propensities of its own."""
    asked, given = ~split.costs.isnan(), split.answers.propensities
    if asked.all() and given is None:
        return Logged(expected, torch.ones_like(split.costs), torch.ones_like(split.costs))
    if given is not None:
        return Logged(expected, weights_of(asked, given), given)
    assert estimated is not None
    chances = estimated.clamp(min=LEAST_CHANCE)
    weights = weights_of(asked, chances)
    return Logged(expected, weights / weights.mean(dim=0).clamp(min=LEAST_CHANCE), chances)  # the true mean is 1


def completed(costs: Tensor, logged: Logged, missing: str) -> Tensor:
    """Costs for methods that need all of them. [n, p] with NaN -> [n, p]. direct: the model's where an expert was not asked. ips: 0
    there, else by inverse propensity. dr: doubly robust, with an amount added to all so that none is negative."""
    if missing == "direct":
        return torch.where(costs.isnan(), logged.expected.clamp(min=0), costs)
    if missing == "ips":
        return logged.weights * costs.nan_to_num(nan=0.0)
    robust = doubly_robust(costs, logged)
    return robust - robust.min().clamp(max=0)


def fit_chances(points: Tensor, asked: Tensor, inputs: int) -> tuple[Tensor, Tensor]:
    """Log-odds of being asked, as coefficients [F + C + 1, p], and for each row by a model that did not see it [n, p]. inputs: F.

    A ridge regression makes one number per expert of all columns. A logistic regression on these and the confounders, which are
    few, calibrates them: one for all experts if every row asked one of them, else one for each. The numbers count only if they say
    more than the confounders, on rows that were left out and by two standard errors; confounders, if more than shares do."""
    scores, guessed = fit_crossed(points, asked.double() - asked.double().mean(dim=0))
    size = LARGE / guessed.std(dim=0).clamp(min=1e-3)
    others = points[:, inputs:]
    levels = [others[:, -1:], others, torch.cat([guessed * size, others], dim=1)]
    fold = torch.from_numpy(stream(0, "chances").permutation(len(points))) % CHANCE_FOLDS
    coefficients, odds = torch.zeros_like(scores), torch.zeros_like(guessed)
    experts = torch.arange(asked.shape[1])
    for some in [experts] if one_each(asked) else experts.split(1):
        mine = asked[:, some]
        crossed = [crossed_odds(columns, mine, fold) for columns in levels]
        lost = [surprise(found, mine) for found in crossed]
        best = 1 if lost[1].mean() < lost[0].mean() else 0
        gain, error = paired(lost[best] - lost[2])
        if error is not None and gain > SURE * error:
            best = 2
        columns, odds[:, some] = chance_columns(levels[best], mine), crossed[best]
        if best == 2:
            coefficients[:, some], columns = scores @ (size[:, None] * columns[: len(size)]), columns[len(size) :]
        coefficients[-len(columns) :, some] += columns
    return coefficients, odds


def one_each(asked: Tensor) -> bool:
    return asked.shape[1] > 1 and bool((asked.sum(dim=1) == 1).all())


def chances_of(odds: Tensor, alone: bool) -> Tensor:
    """The chances of being asked, [n, p], from log-odds. alone: whether they are of a log that asks one expert a row."""
    return odds.softmax(dim=1) if alone else odds.sigmoid()


def surprise(odds: Tensor, asked: Tensor) -> Tensor:
    """− log-likelihood of who was asked [n]."""
    if one_each(asked):
        return -odds.log_softmax(dim=1)[asked]
    return binary_cross_entropy_with_logits(odds, asked.double(), reduction="none").sum(dim=1)


def crossed_odds(columns: Tensor, asked: Tensor, fold: Tensor) -> Tensor:
    odds = torch.zeros(asked.shape, dtype=torch.float64)
    for k in range(CHANCE_FOLDS):
        odds[fold == k] = columns[fold == k] @ chance_columns(columns[fold != k], asked[fold != k])
    return odds


def chance_columns(columns: Tensor, asked: Tensor) -> Tensor:
    """Coefficients [F, p] of a logistic regression; of the last column alone, which is 1, those of the shares of the rows."""
    from sklearn.linear_model import LogisticRegression

    found = torch.zeros(columns.shape[1], asked.shape[1], dtype=torch.float64)
    share, whole = asked.double().mean(dim=0).clamp(1e-6, 1 - 1e-6), one_each(asked)
    found[-1] = share.log() if whole else share.logit()
    who = asked.double().argmax(dim=1) if whole else asked[:, 0]
    if len(found) > 1 and len(who.unique()) > 1:
        model = LogisticRegression(C=STRENGTH, solver="newton-cholesky").fit(columns[:, :-1].numpy(), who.numpy())
        fitted = torch.from_numpy(np.concatenate([model.coef_, model.intercept_[:, None]], axis=1).T)
        classes = model.classes_.astype(int).tolist() if whole else [0]
        if whole and len(classes) == 2:  # the log-odds of the second alone
            fitted = torch.cat([torch.zeros_like(fitted), fitted], dim=1)
        found[:, classes] = fitted
    return found
