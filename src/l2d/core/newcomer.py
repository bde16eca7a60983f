"""A new expert's chance of being right, borrowed from the known experts' chances: empirical Bayes, for a few outcomes or none."""

from dataclasses import dataclass

import torch
from torch import Tensor

SPREAD = (1.0, 0.3)  # standard deviations of a new expert's level and slope among experts
ALIKE = (0.5, 0.3)  # the same if it is said to be like a known one
CLOSEST = 0.02  # chances are clamped this far from 0 and 1
ROUNDS, STEP, CONVERGED = 100, 1.0, 1e-9


@dataclass(frozen=True)
class Borrowed:
    """σ(c + a + b·(m − c)), where m(x) = Σ_k weight_k · log-odds of known expert k. weights [p]; centre: c; mean [2] and covariance
    [2, 2]: of (a, b), given the outcomes."""

    weights: Tensor
    centre: Tensor
    mean: Tensor
    covariance: Tensor

    def chances(self, known: Tensor) -> tuple[Tensor, Tensor]:
        """The expected chance on rows with the known experts' chances [n, p], and its standard deviation. [n] both"""
        design, shift = _design(known, self.weights, self.centre)
        logit = design @ self.mean + shift
        variance = ((design @ self.covariance) * design).sum(dim=1)
        chance = torch.sigmoid(logit / (1 + torch.pi * variance / 8).sqrt())  # the mean over (a, b), by the probit
        return chance, variance.sqrt() * chance * (1 - chance)

    def packed(self) -> Tensor:
        """As one row of numbers, [p + 7]."""
        return torch.cat([self.weights, self.centre.reshape(1), self.mean, self.covariance.flatten()])

    @classmethod
    def unpacked(cls, row: Tensor) -> "Borrowed":
        return cls(row[:-7], row[-7], row[-6:-4], row[-4:].reshape(2, 2))


@dataclass(frozen=True)
class Surprise:
    """How far all experts' outcomes on a row go the same way, beyond what is expected. slope: of one expert's outcome minus its
    chance, on the mean of the others'. explained: the share of the variance that this explains."""

    slope: float = 0.0
    explained: float = 0.0

    @classmethod
    def of(cls, residuals: Tensor) -> "Surprise":
        """residuals [n, p]: outcome minus chance, on rows that the router did not see."""
        p = residuals.shape[1]
        if p < 2 or residuals.isnan().any():  # rows of a log
            return cls()
        own = (residuals - residuals.mean(dim=0)).double()
        others = (own.sum(dim=1, keepdim=True) - own) / (p - 1)
        both, square = (others * own).sum(), others.square().sum()
        if both <= 0:
            return cls()
        return cls(float(both / square), float(both**2 / square / own.square().sum()))


def borrow(
    known: Tensor, right: Tensor, weights: Tensor, centre: Tensor, spread: tuple[float, float] = SPREAD
) -> Borrowed:
    """The mode of (a, b) and the inverse curvature there, under normal priors around (0, 1) with these standard deviations. known
    [n, p]: chances of the known experts on rows whose outcomes are right [n], 0 to 1; n may be 0."""
    design, shift = _design(known, weights, centre)
    prior, precision = torch.tensor([0.0, 1.0]).to(design), torch.diag(torch.tensor(spread).to(design) ** -2)
    mean, right = prior.clone(), right.to(design)
    for _ in range(ROUNDS):
        chance = torch.sigmoid(design @ mean + shift)
        curvature = design.T @ (design * (chance * (1 - chance))[:, None]) + precision
        slope = design.T @ (chance - right) + precision @ (mean - prior)
        step = torch.linalg.solve(curvature, slope).clamp(-STEP, STEP)
        mean = mean - step
        if step.abs().max() < CONVERGED:
            break
    return Borrowed(weights.to(design), centre.to(design), mean, torch.linalg.inv(curvature))


def borrow_beside(
    known: Tensor, right: Tensor, others: Tensor, surprise: Surprise, prior: tuple[Tensor, Tensor, tuple[float, float]]
) -> Borrowed:
    """The same, where the known experts' outcomes on these rows, others [n, p], are known too: what they say of how hard a row is
    beyond their chances is taken off the new one's outcome, so fewer rows say as much. prior: weights, centre and spread."""
    weights, centre, spread = prior
    left = 1 - surprise.explained
    adjusted = right.double() - surprise.slope * (others.double() - known.double()).mean(dim=1)
    found = borrow(known, adjusted, weights, centre, (spread[0] / left**0.5, spread[1] / left**0.5))
    return Borrowed(found.weights, centre, found.mean, found.covariance * left)


def _design(known: Tensor, weights: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """[n, 2] float64, and what is added to every log-odds."""
    logits = torch.logit(known.double().clamp(CLOSEST, 1 - CLOSEST)) @ weights.double()
    return torch.stack([torch.ones_like(logits), logits - centre], dim=1), centre
