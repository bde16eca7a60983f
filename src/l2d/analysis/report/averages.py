"""Means over seeds, paired intervals, the hull of single experts. Plain numbers in and out."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from l2d.core.results import RunMetrics, Score

Floats = NDArray[np.floating]
Losses = Mapping[int, float | Floats]  # by seed: the cost of each test row, or the mean
Interval = tuple[float, float, float]  # the middle, the lower end, the upper end


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and the sample standard deviation where there are two values or more."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def paired_interval(ours: Losses, theirs: Losses) -> Interval | None:
    """Mean difference over the common seeds and its 95 % interval; None with fewer than two common seeds. With the cost of each
    test row it covers other seeds and other test rows; with one number for each seed, other seeds only."""
    if len(ours.keys() & theirs.keys()) < 2:
        return None
    return interval_of(*mean_and_variances(differences(ours, theirs)))


def differences(ours: Losses, theirs: Losses) -> Floats:
    """A table of the common seeds by test rows, or by one column of means if the rows of some are not known."""
    pairs = [(np.atleast_1d(ours[seed]), np.atleast_1d(theirs[seed])) for seed in sorted(ours.keys() & theirs.keys())]
    if len({len(one) for pair in pairs for one in pair}) > 1:
        pairs = [(one.mean(keepdims=True), other.mean(keepdims=True)) for one, other in pairs]
    return np.stack([one - other for one, other in pairs])


def mean_and_variances(values: Floats) -> tuple[float, list[tuple[float, float]]]:
    """The mean of a table of seeds (at least two) by test rows, and the parts of its variance with their degrees of freedom, by the
    two-way model value = mean + seed + row + rest, all three random."""
    seeds, rows = values.shape
    mean, by_seed, by_row = values.mean(), values.mean(axis=1), values.mean(axis=0)
    parts = [(float(by_seed.var(ddof=1)) / seeds, seeds - 1.0)]
    if rows > 1:
        rest = ((values - by_seed[:, None] - by_row + mean) ** 2).sum() / ((seeds - 1) * (rows - 1) * seeds * rows)
        whole = float(by_row.var(ddof=1)) / rows  # has the rest in it, as the first part has
        parts.append((max(whole - rest, 0.0), rows - 1.0))
        if whole > sum(part for part, _ in parts):  # seeds that are alike by chance
            parts = [(whole, rows - 1.0)]
    return float(mean), parts


def interval_of(mean: float, variances: Sequence[tuple[float, float]], level: float = 0.95) -> Interval:
    """The t interval of a mean whose variance has several parts (Satterthwaite)."""
    from scipy.special import stdtrit

    variance = sum(part for part, _ in variances)
    if variance == 0:
        return mean, mean, mean
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in variances)
    half = float(stdtrit(freedom, 0.5 + level / 2)) * math.sqrt(variance)
    return mean, mean - half, mean + half


def mean_metrics(runs: Sequence[RunMetrics]) -> dict[str, Any]:
    """of_gap: the share of the gap between the best single expert's mean loss and the oracle's that the router closes."""
    errors = mean_columns([expert.error_rate for expert in run.experts] for run in runs)
    prices = mean_columns([expert.price for expert in run.experts] for run in runs)
    guarded, spread = mean_std([run.guarded.deferral_loss for run in runs])
    constant = sum(run.guarded.constant is not None for run in runs)
    oracles = [run.baselines.oracle for run in runs if run.baselines.oracle]
    single = statistics.fmean(run.baselines.best_single.deferral_loss for run in runs)
    gap = single - statistics.fmean(one.deferral_loss for one in oracles) if len(oracles) == len(runs) else 0.0
    gained = single - statistics.fmean(run.deferral_loss for run in runs)
    confusions = [run.confusion for run in runs if run.confusion]
    return mean_scores(runs) | {
        "guarded": {"mean": guarded, "std": spread, "constant": constant},
        "of_gap": gained / gap if gap > 1e-12 else None,
        "oracle_ratios": mean_columns(one.ratios for one in oracles) or None,
        "collapsed": sum(run.collapsed_expert is not None for run in runs),
        "confusion": [mean_columns(rows) for rows in zip(*confusions, strict=True)] or None,
        "prices": runs[0].prices,
        "experts_alone": [{"error_rate": e, "price": p} for e, p in zip(errors, prices, strict=True)],
        "hull": lower_hull(zip(prices, errors, strict=True)),
        "calibration": mean_calibration(runs),
    }


def mean_scores(scores: Sequence[Score]) -> dict[str, Any]:
    mean, std = mean_std([score.deferral_loss for score in scores])
    return {
        "mean": mean,
        "std": std,
        "error_rate": statistics.fmean(score.error_rate for score in scores),
        "mean_price": statistics.fmean(score.mean_price for score in scores),
        "ratios": mean_columns(score.ratios for score in scores),
        "seeds": len(scores),
    }


def mean_columns(rows: Iterable[Sequence[float]]) -> list[float]:
    return [statistics.fmean(column) for column in zip(*rows, strict=True)]


def mean_calibration(runs: Sequence[RunMetrics]) -> list[list[float]] | None:
    """The ten bins, averaged over seeds by weight."""
    known = [run.calibration for run in runs if run.calibration]
    sums = np.zeros((10, 3))
    for weight, predicted, observed in chain.from_iterable(known):
        sums[min(int(predicted * 10), 9)] += weight, weight * predicted, weight * observed
    return [[weight / len(known), p / weight, o / weight] for weight, p, o in sums.tolist() if weight] or None


def lower_hull(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The lower left convex hull of (price, error) points, by price: the points that no mixture of others beats."""
    hull: list[tuple[float, float]] = []
    for x, y in sorted(set(points)):
        if hull and y >= hull[-1][1]:
            continue  # dearer and no better
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull
