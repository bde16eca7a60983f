"""What a plan learns: chances of answers, and backward induction over sets of asked experts.

V(S) is the least expected cost from the set S of asked experts on: V(S) = min(Q(S, stop), min_{k ∉ S} Q(S, k)), where
Q(S, k) = E[price_k + V(S ∪ {k}) | state], and Q(S, stop) = 1 − max_j π_j for the chance π_j that expert j's answer is right. π is
one regression over all states, Q one over the rows in each set. Q(S, stop) is the mean of both estimates: what is compared with
the cost of asking must not differ from it only by how it was estimated.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.core.plan import (
    Followed,
    Plan,
    View,
    answer_features,
    chances_of,
    every_set,
    follow,
    number_of,
    state_features,
)

STATES = 300_000  # to learn chances from, at most
FOLDS = 5
PENALTY = 1e-4  # of the logistic regression, per row
RIDGE = 0.1  # of the regression of costs, per row, on standardised columns
STEPS, LONGEST, CLOSE = 20, 3.0, 1e-4  # of Newton's method: how many, how long, and which one is the last
FLAT = 1e-6  # the least weight of a row there
CONSTANT = 1e-6  # the spread of a column that says nothing
LEAST_SEEN, NEVER = 25, 1e6  # rows of a log to learn a call from; its cost if there are fewer


def fold_numbers(n: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(0)) % FOLDS


def logistic(points: Tensor, right: Tensor, start: Tensor | None = None) -> Tensor:
    """Ridge logistic regression by Newton's method. points [m, F + 1], the last column 1; right [m] in 0 to 1 -> [F + 1]."""
    penalty = PENALTY * len(points) * torch.eye(points.shape[1]).to(points)
    penalty[-1, -1] = 0.0
    weights = torch.zeros_like(penalty[0]) if start is None else start
    for _ in range(STEPS):
        chances = torch.sigmoid(points @ weights)
        slope = points.T @ (chances - right) + penalty @ weights
        curve = (points * (chances * (1 - chances)).clamp(min=FLAT)[:, None]).T @ points + penalty
        step = torch.linalg.solve(curve.double(), slope.double()).to(points)
        weights = weights - step.clamp(-LONGEST, LONGEST)
        if step.abs().max() < CLOSE:
            break
    return weights


def learn_chances(view: View, right: Tensor, seen: Tensor | None = None) -> Tensor:
    """The weights without each fold's rows, and of all. seen: see Rows. -> [FOLDS + 1, F + 1]"""
    n, p = right.shape
    folds, sets = fold_numbers(n), every_set(p)[1:]
    each, draw = max(1, STATES // len(sets)), torch.Generator().manual_seed(1)
    parts = []
    for number, asked in enumerate(sets, start=1):
        rows = torch.arange(n) if seen is None else seen[number].nonzero().flatten()
        rows = rows if len(rows) <= each else rows[torch.randperm(len(rows), generator=draw)[:each]]
        some, mine = view.take(rows), asked.expand(len(rows), p)
        parts.append((answer_features(some, mine)[mine], right[rows][mine], folds[rows][:, None].expand(-1, p)[mine]))
    features, outcomes, held = (torch.cat(column) for column in zip(*parts, strict=True))
    mean, spread = features.mean(dim=0), features.std(dim=0, correction=0)
    spread = torch.where(spread < CONSTANT, 1.0, spread)
    points = torch.cat([(features - mean) / spread, torch.ones(len(features), 1)], dim=1)
    outcomes = outcomes.to(features)
    whole = logistic(points, outcomes)
    others = [held != fold for fold in range(FOLDS)]
    found = torch.stack([*(logistic(points[rows], outcomes[rows], whole) for rows in others), whole])
    slopes = found[:, :-1] / spread
    return torch.cat([slopes, found[:, -1:] - slopes @ mean[:, None]], dim=1)


@dataclass(frozen=True)
class Rows:
    """Training rows, and the chances of answers after every set of experts was asked, [2^p, n, p], by estimates that did not see
    the row. right [n, p]. seen: of a log, where each set was asked first, bool [2^p, n]; None: everywhere."""

    view: View
    right: Tensor
    chances: Tensor
    seen: Tensor | None = None

    @classmethod
    def of(cls, view: View, right: Tensor, weights: Tensor, seen: Tensor | None = None) -> "Rows":
        own = weights[fold_numbers(len(view))]
        found = [chances_of(own, view, asked.expand(right.shape)) for asked in every_set(right.shape[1])]
        return cls(view, right, torch.stack(found), seen)

    def known(self, rows: Tensor, asked: Tensor) -> Tensor:
        return self.chances[number_of(asked), rows]

    def follow(self, plan: Plan) -> Followed:
        return follow(plan, self.view, self.known)


def induct(rows: Rows, prices: Tensor) -> Tensor:
    """Backward induction: Q's weights [2^p, p + 1, G], those of stopping last. A row's value is what it costs to follow the plan
    from there, with decisions that its own outcome did not enter. prices [p] or [n, p]."""
    n, p = rows.right.shape
    folds, paid, sets = fold_numbers(n), prices.expand(n, p).to(rows.right), every_set(p)
    errors, values, moves = 1 - rows.right, torch.zeros(n, 2**p), torch.zeros(2**p, p + 1, 6 + p)
    for number in sets.sum(dim=1).argsort(descending=True, stable=True).tolist():
        pi, seen = rows.chances[number], None if rows.seen is None else rows.seen[number]
        features = state_features(rows.view, sets[number].expand(n, p), pi)
        best, answer = pi.max(dim=1)
        moves[number, p], guessed = crossed(features, errors.gather(1, answer[:, None])[:, 0], folds, seen)
        expected = torch.where(best >= 0, (guessed + 1 - best) / 2, torch.inf)
        value = errors.gather(1, answer[:, None])[:, 0]
        for k in (~sets[number]).nonzero().flatten().tolist():
            target, known = paid[:, k] + values[:, number | 1 << k], None
            if rows.seen is not None:
                known = rows.seen[number] & rows.seen[number | 1 << k]
                if int(known.sum()) < LEAST_SEEN:
                    moves[number, k, 0] = NEVER
                    continue
            moves[number, k], guessed = crossed(features, target, folds, known)
            if known is not None:
                guessed = guessed.maximum(paid[:, k])  # where it never went on, it must not promise too much
                target = torch.where(known, target, guessed)
            better = guessed < expected
            expected, value = torch.where(better, guessed, expected), torch.where(better, target, value)
        values[:, number] = value
    return moves


def crossed(features: Tensor, target: Tensor, folds: Tensor, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Ridge weights [G], and each row's prediction by the other folds' rows [n]. known: where there is a target. Column 0 is 1."""
    here = torch.ones_like(folds, dtype=torch.bool) if known is None else known
    if not here.any():
        return torch.zeros(features.shape[1]), torch.zeros(len(folds))
    spread, mean = features[here].std(dim=0, correction=0), features[here].mean(dim=0)
    spread, mean = torch.where(spread < CONSTANT, 1.0, spread).double(), mean.double()
    mean[0] = 0.0
    points, goal = (features.double() - mean) / spread, target.double()
    whole, sums = points[here].T @ points[here], points[here].T @ goal[here]
    penalty = RIDGE * int(here.sum()) * torch.eye(points.shape[1], dtype=torch.float64)
    penalty[0, 0] = FLAT  # so that a single row in all folds is no error
    guessed = torch.empty_like(goal)
    for fold in range(FOLDS):
        mine = points[here & (folds == fold)]
        weights = torch.linalg.solve(whole - mine.T @ mine + penalty, sums - mine.T @ goal[here & (folds == fold)])
        guessed[folds == fold] = points[folds == fold] @ weights
    weights = torch.linalg.solve(whole + penalty, sums) / spread
    weights[0] -= weights @ mean
    return weights.float(), guessed.float()
