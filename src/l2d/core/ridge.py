"""Ridge regression of columns that are known in part, with its penalty chosen on rows that were left out."""

import torch
from torch import Tensor

from l2d.utils.seeding import stream

PENALTIES = (1e1, 1e2, 1e3, 1e4, 1e5)
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
    n, width = points.shape
    points, values = points.double(), values.double()
    fold = torch.from_numpy(stream(0, "log").permutation(n))
    fold = torch.where(fold < MOST, fold % FOLDS, FOLDS)  # the last ones are in no fold
    inside = [points[fold == k] for k in range(FOLDS)]
    shared = [part.T @ part for part in inside] if not values.isnan().any() else None
    ridges = [torch.diag(torch.tensor([penalty] * (width - 1) + [1e-8], dtype=torch.float64)) for penalty in PENALTIES]
    found, expected = [], []
    for value in values.T:
        known = [~value[fold == k].isnan() for k in range(FOLDS)]
        parts = [part[mine] for part, mine in zip(inside, known, strict=True)]
        squares = shared or [part.T @ part for part in parts]
        products = [part.T @ value[fold == k][known[k]] for k, part in enumerate(parts)]
        square, product = torch.stack(squares).sum(dim=0), torch.stack(products).sum(dim=0)
        best = None
        for ridge in ridges if width > 1 else ridges[:1]:
            whole = torch.linalg.solve(square + ridge, product)
            guesses = points @ whole
            for k in range(FOLDS):
                others = torch.linalg.solve(square - squares[k] + ridge, product - products[k])
                guesses[fold == k] = inside[k] @ others
            error = float((guesses - value)[(fold < FOLDS) & ~value.isnan()].square().mean())
            if best is None or error < best[0]:
                best = error, guesses, whole
        assert best is not None
        expected.append(best[1])
        found.append(best[2])
    return torch.stack(found, dim=1), torch.stack(expected, dim=1)
