"""Ridge regression of columns that are known in part, with its penalty chosen on rows that were left out."""

import torch
from torch import Tensor

from l2d.utils.seeding import stream

PENALTIES = (1e1, 1e2, 1e3, 1e4)
FOLDS = 5
MOST = 20_000  # rows that are learned from
FAR = 10.0  # standard deviations


def standardised(inputs: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Rows of numbers, standardised, with a 1 at the end; for images and tokens the 1 alone. [n, …] -> [n, F + 1]"""
    ones = torch.ones(
        inputs.shape[0], 1, device=inputs.device
    )  # not len(): an exported router takes any number of rows
    if inputs.ndim != 2 or not inputs.is_floating_point():
        return ones
    return torch.cat([((inputs - mean) / std).float().clamp(-FAR, FAR), ones], dim=1)


def fit_crossed(points: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Regression of each column of values [n, p], NaN where unknown: coefficients [F, p], and for each row what coefficients that
    were fitted without it expect [n, p]. The penalty, which spares the last column, is the one that expects best there.

    Of many rows, MOST are learned from.
    """
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
    inside = [known & (fold == k) for k in range(FOLDS)]
    squares = torch.stack([points[rows].T @ points[rows] for rows in inside])
    products = torch.stack([points[rows].T @ values[rows] for rows in inside])
    judged = known & (fold < FOLDS)
    least = torch.full((values.shape[1],), torch.inf, dtype=torch.float64)
    coefficients, expected = torch.zeros(width, values.shape[1]).double(), torch.zeros_like(values)
    for penalty in PENALTIES if width > 1 else PENALTIES[:1]:
        ridge = torch.diag(torch.tensor([penalty] * (width - 1) + [1e-8], dtype=torch.float64))

        def solved(square: Tensor, product: Tensor, ridge: Tensor = ridge) -> Tensor:
            return torch.cholesky_solve(product, torch.linalg.cholesky(square + ridge))

        whole = solved(squares.sum(dim=0), products.sum(dim=0))
        guesses = points @ whole
        for k in range(FOLDS):
            others = solved(squares.sum(dim=0) - squares[k], products.sum(dim=0) - products[k])
            guesses[fold == k] = points[fold == k] @ others
        error = (guesses - values)[judged].square().mean(dim=0)
        better = error < least
        least = torch.where(better, error, least)
        coefficients[:, better], expected[:, better] = whole[:, better], guesses[:, better]
    return coefficients, expected
