"""Ridge regression, with its penalty chosen on rows that were left out."""

from collections.abc import Sequence

import torch
from torch import Tensor

from l2d.utils.seeding import stream

PENALTIES = (1e1, 1e2, 1e3, 1e4)
FOLDS = 5
MOST = 20_000  # rows that are learned from
FAR = 10.0  # standard deviations
SAMPLED = 10_000_000


def channel_statistics(source: Tensor, rows: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel or feature, from evenly spaced rows with at most about SAMPLED values."""
    rows = rows[:: max(1, len(rows) * source[0].numel() // SAMPLED)]
    values = source[rows].flatten(0, -2).double()
    return values.mean(dim=0).tolist(), values.std(dim=0, correction=0).clamp(min=1e-6).tolist()


def standardised(inputs: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Rows of numbers, standardised, with a 1 at the end; for images and tokens the 1 alone. [n, …] -> [n, F + 1]"""
    # Not len(): an exported router takes any number of rows.
    ones = torch.ones(inputs.shape[0], 1, device=inputs.device)
    if inputs.ndim != 2 or not inputs.is_floating_point():
        return ones
    return torch.cat([((inputs - mean) / std).float().clamp(-FAR, FAR), ones], dim=1)


def expected_by(inputs: Tensor, values: Tensor) -> Tensor:
    """What a regression on the inputs, which did not learn from the row, expects of each column of values [n, p]."""
    mean, std = map(torch.tensor, channel_statistics(inputs, torch.arange(len(inputs))))
    return fit_crossed(standardised(inputs, mean, std), values)[1]


def fit_crossed(points: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Regression of each column of values [n, p], NaN where unknown: coefficients [F, p], and for each row what coefficients that
    were fitted without it expect [n, p]. The penalty, which spares the last column, is the one that expects best there."""
    points, values = points.double(), values.double()
    drawn = torch.from_numpy(stream(0, "log").permutation(len(points)))
    fold = torch.where(drawn < MOST, drawn % FOLDS, FOLDS)  # the last ones are in no fold
    known, alike = (~values.isnan()).unique(dim=1, return_inverse=True)
    coefficients, expected = torch.zeros(points.shape[1], values.shape[1]).double(), torch.zeros_like(values)
    for number, rows in enumerate(known.T):  # columns that are known on the same rows share most of the work
        mine = alike == number
        coefficients[:, mine], expected[:, mine] = _fit_columns(points, values[:, mine], rows, fold)
    return coefficients, expected


def _fit_columns(points: Tensor, values: Tensor, known: Tensor, fold: Tensor) -> tuple[Tensor, Tensor]:
    """values [n, m] of columns that are known on the same rows [n]."""
    width = points.shape[1]
    parts = [(points[rows], values[rows]) for rows in (known & (fold == k) for k in range(FOLDS))]
    squares = torch.stack([inputs.T @ inputs for inputs, _ in parts])
    products = torch.stack([inputs.T @ outputs for inputs, outputs in parts])
    square, product = squares.sum(dim=0), products.sum(dim=0)
    without = [(square - squares[k], product - products[k]) for k in range(FOLDS)]
    held_out = [(fold == k, points[fold == k]) for k in range(FOLDS)]
    judged = known & (fold < FOLDS)
    least = torch.full((values.shape[1],), torch.inf, dtype=torch.float64)
    coefficients, expected = torch.zeros(width, values.shape[1]).double(), torch.zeros_like(values)
    for penalty in PENALTIES if width > 1 else PENALTIES[:1]:
        ridge = torch.diag(torch.tensor([penalty] * (width - 1) + [1e-8], dtype=torch.float64))
        whole = _solved(square + ridge, product)
        guesses = points @ whole
        for (rows, inputs), (others, their_product) in zip(held_out, without, strict=True):
            guesses[rows] = inputs @ _solved(others + ridge, their_product)
        error = (guesses - values)[judged].square().mean(dim=0)
        better = error < least
        least = torch.where(better, error, least)
        coefficients[:, better], expected[:, better] = whole[:, better], guesses[:, better]
    return coefficients, expected


def _solved(square: Tensor, product: Tensor) -> Tensor:
    return torch.cholesky_solve(product, torch.linalg.cholesky(square))


def fit_left_out(points: Tensor, values: Tensor, penalties: Sequence[float]) -> tuple[Tensor, Tensor, float]:
    """Regression of all columns of values [n, p] with one penalty, which spares the mean: coefficients [F, p], their offsets [p],
    and the penalty. It is the one that expects each row best if that is left out. One decomposition serves all penalties. If row i
    pulls its own estimate by h_i, the error without it is the residual over 1 − h_i."""
    points, values = points.double(), values.double()
    centre, mean = points.mean(dim=0), values.mean(dim=0)
    inputs, outputs, n = points - centre, values - mean, len(points)
    if n > points.shape[1]:
        sizes, axes = torch.linalg.eigh(inputs.T @ inputs)
        places = inputs @ axes
    else:
        sizes, axes = torch.linalg.eigh(inputs @ inputs.T)
        places = axes * sizes.clamp(min=0).sqrt()
    products, squares = places.T @ outputs, places.square()
    coefficients, least, chosen = torch.zeros(points.shape[1], values.shape[1]).double(), torch.inf, penalties[0]
    for penalty in penalties:
        shrunk = 1 / (sizes.clamp(min=0) + penalty)
        residuals = outputs - places @ (shrunk[:, None] * products)
        own = 1 / n + squares @ shrunk
        error = float((residuals / (1 - own)[:, None]).square().mean())
        if error < least:
            coefficients, least, chosen = inputs.T @ residuals / penalty, error, penalty
    return coefficients, mean - centre @ coefficients, chosen
