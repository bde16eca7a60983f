"""A new expert's chance of being right, borrowed from the known experts' chances: empirical Bayes, for a few outcomes or none."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

SPREAD = (1.0, 0.3)  # standard deviations of a new expert's level and slope among experts
ALIKE = (0.5, 0.3)  # the same if it is said to be like a known one
FLAT, BEYOND = 0.2, 0.5  # penalty of the slope of level on price; how far past the known prices it is followed
CLOSEST = 0.02  # chances are clamped this far from 0 and 1
ROUNDS, STEP, CONVERGED = 100, 1.0, 1e-9


@dataclass(frozen=True)
class Prior:
    """Before any outcome of a new expert: see Borrowed. spread: standard deviations of a and b; their means are level and 1."""

    weights: Tensor
    centre: Tensor
    spread: tuple[float, float] = SPREAD
    level: float = 0.0


@dataclass(frozen=True)
class Borrowed:
    """σ(c + a + b·(m − c)), where m(x) = Σ_k weight_k · log-odds of known expert k."""

    weights: Tensor  # [p]
    centre: Tensor  # c
    mean: Tensor  # of (a, b), given the outcomes [2]
    covariance: Tensor  # [2, 2]

    def chances(self, known: Tensor) -> tuple[Tensor, Tensor]:
        """The expected chance on rows with the known experts' chances [n, p], and its standard deviation. [n] both"""
        design = _design(known, self.weights, self.centre)
        logit = design @ self.mean + self.centre
        variance = ((design @ self.covariance) * design).sum(dim=1)
        chance = torch.sigmoid(logit / (1 + torch.pi * variance / 8).sqrt())  # the mean over (a, b), by the probit
        return chance, variance.sqrt() * chance * (1 - chance)

    def packed(self) -> Tensor:
        return torch.cat([self.weights, self.centre.reshape(1), self.mean, self.covariance.flatten()])

    @classmethod
    def unpacked(cls, row: Tensor) -> "Borrowed":
        return cls(row[:-7], row[-7], row[-6:-4], row[-4:].reshape(2, 2))


@dataclass(frozen=True)
class Surprise:
    """The common part of all experts' outcomes on a row, beyond what is expected."""

    slope: float = 0.0  # of one expert's outcome minus its chance, on the mean of the others'
    explained: float = 0.0  # the share of the variance that this explains

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


def level_by_price(levels: Tensor, prices: Tensor, price: float) -> float:
    """The distance above the mean of the known experts' levels [p] at which a line through them, by their prices [p], is at this
    price. Few experts say little of its slope, so a penalty holds it flat; prices count in widths of their range."""
    low, high = float(prices.min()), float(prices.max())
    width = high - low
    if width == 0:
        return 0.0
    at = min(max(price, low - BEYOND * width), high + BEYOND * width)
    places = (prices - prices.mean()) / width
    return float(places @ levels / (places @ places + FLAT) * (at - prices.mean()) / width)


def borrow(known: Tensor, right: Tensor, prior: Prior) -> Borrowed:
    """The mode of (a, b) and the inverse curvature there. known [n, p]: chances of the known experts on rows whose outcomes are
    right [n], 0 to 1; n may be 0."""
    weights, centre = prior.weights, prior.centre
    design = _design(known, weights, centre)
    start, spread = (torch.tensor(pair).to(design) for pair in ((prior.level, 1.0), prior.spread))
    precision = torch.diag(spread**-2)
    mean, right = start.clone(), right.to(design)
    for _ in range(ROUNDS):
        chance = torch.sigmoid(design @ mean + centre)
        curvature = design.T @ (design * (chance * (1 - chance))[:, None]) + precision
        slope = design.T @ (chance - right) + precision @ (mean - start)
        step = torch.linalg.solve(curvature, slope).clamp(-STEP, STEP)
        mean = mean - step
        if step.abs().max() < CONVERGED:
            break
    return Borrowed(weights.to(design), centre.to(design), mean, torch.linalg.inv(curvature))


def borrow_beside(known: Tensor, right: Tensor, others: Tensor, surprise: Surprise, prior: Prior) -> Borrowed:
    """The same, where the known experts' outcomes on these rows, others [n, p], are known too: what they say of how hard a row is
    beyond their chances is taken off the new one's outcome, so fewer rows say as much."""
    left = max(1 - surprise.explained, CLOSEST)  # known experts that err alike explain each other
    adjusted = right.double() - surprise.slope * (others.double() - known.double()).mean(dim=1)
    wider = (prior.spread[0] / left**0.5, prior.spread[1] / left**0.5)
    found = borrow(known, adjusted, replace(prior, spread=wider))
    return replace(found, covariance=found.covariance * left)


def _design(known: Tensor, weights: Tensor, centre: Tensor) -> Tensor:
    """1 and m − c, [n, 2] float64."""
    logits = torch.logit(known.double().clamp(CLOSEST, 1 - CLOSEST)) @ weights.double()
    return torch.stack([torch.ones_like(logits), logits - centre], dim=1)
