"""Ridge regression of columns that are known in part, with its penalty chosen on rows that were left out."""

import torch
from torch import Tensor

from l2d.utils.seeding import stream

PENALTIES = (1e1, 1e2, 1e3, 1e4, 1e5)
FOLDS = 5
FAR = 10.0  # standard deviations


def standardised(inputs: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Rows of numbers, standardised, with a 1 at the end; for images and tokens the 1 alone. [n, …] -> float64 [n, F + 1]"""
    ones = torch.ones(len(inputs), 1, dtype=torch.float64, device=inputs.device)
    if inputs.ndim != 2 or not inputs.is_floating_point():
        return ones
    return torch.cat([((inputs - mean) / std).double().clamp(-FAR, FAR), ones], dim=1)


def fit_crossed(points: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Regression of each column of values [n, p], NaN where unknown: coefficients [F, p], and for each row what coefficients of the
    other folds expect [n, p]. The penalty, which spares the last column, is the one that expects best there."""
    n, width = points.shape
    fold = torch.from_numpy(stream(0, "log").permutation(n)) % FOLDS
    spared = torch.ones(width, dtype=torch.float64)
    spared[-1] = 1e-9
    found, expected = [], []
    for value in values.double().T:
        known = ~value.isnan()
        inside = [known & (fold == k) for k in range(FOLDS)]
        parts = [(points[mine].T @ points[mine], points[mine].T @ value[mine]) for mine in inside]
        squares, products = (torch.stack(side).sum(dim=0) for side in zip(*parts, strict=True))
        best = None
        for penalty in PENALTIES if width > 1 else PENALTIES[:1]:
            ridge = torch.diag(penalty * spared)
            guesses = torch.empty(n, dtype=torch.float64)
            for k, (square, product) in enumerate(parts):
                others = torch.linalg.solve(squares - square + ridge, products - product)
                guesses[fold == k] = points[fold == k] @ others
            error = float((guesses - value)[known].square().mean())
            if best is None or error < best[0]:
                best = error, guesses, torch.linalg.solve(squares + ridge, products)
        assert best is not None
        expected.append(best[1])
        found.append(best[2])
    return torch.stack(found, dim=1), torch.stack(expected, dim=1)
