"""Routers' estimators from sums over all rows. Each is fitted six times in the same passes: without each fold, and to all rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from l2d.core.ridge import fit_left_out
from l2d.large.passes import FOLDS, Passes, Reader, Rows, Sums, added
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.best import Best
from l2d.networks.estimators.clusters import Clusters
from l2d.networks.estimators.estimator import Estimator
from l2d.networks.estimators.linear import RIDGES, Ridge
from l2d.networks.estimators.lookup import ROUNDED, Lookup, refuse_different
from l2d.networks.estimators.mixture import Mixture
from l2d.networks.estimators.neighbours import Neighbours
from l2d.networks.tabular import CONSTANT
from l2d.utils.errors import L2DError, ParameterError

LEAST = 50  # rows on which an expert was asked: each fold needs some
MOST_DIFFERENT = 10_000  # rows of a table by category
NUMBERS = 6_400_000  # in the rows that a router by neighbours keeps: it goes to all workers


@dataclass(frozen=True)
class Known:
    """The result of the first pass. mean, std float64 [6, F], rows int [6]: of each fit's training rows; a constant column has std
    1. least, most [p]: errors of each expert. share: of the rows that are sampled. gaps: whether some outcome is missing."""

    mean: Tensor
    std: Tensor
    rows: Tensor
    least: Tensor
    most: Tensor
    mean_errors: Tensor
    share: float
    gaps: bool

    @property
    def groups(self) -> list[list[int]]:
        """Experts that were asked on the same rows."""
        p = len(self.least)
        return [[k] for k in range(p)] if self.gaps else [[*range(p)]]


def by_fold(values: Tensor, folds: Tensor) -> Tensor:
    """The sums of values [n, …] over each fold's rows, [FOLDS, …]."""
    return torch.zeros(FOLDS, *values.shape[1:], dtype=torch.float64).index_add(0, folds, values.double())


def training(sums: np.ndarray) -> Tensor:
    """The sums over the training rows of each fit, which are those of all rows less the fold's, [FOLDS, …] -> [FOLDS + 1, …]."""
    own = torch.from_numpy(sums)
    whole = own.sum(dim=0, keepdim=True)
    return torch.cat([whole - own, whole])


def moments(centre: Tensor, rows: Rows) -> Sums:
    """centre [F]: near the mean, so that no digits are lost."""
    apart, asked = rows.inputs.double() - centre, ~rows.errors.isnan()
    found = {
        "number": by_fold(torch.ones(len(rows)), rows.folds),
        "total": by_fold(apart, rows.folds),
        "squares": by_fold(apart.square(), rows.folds),
        "errors": rows.errors.nansum(dim=0),
        "asked": asked.sum(dim=0),
        "least": rows.errors.nan_to_num(nan=torch.inf).amin(dim=0),
        "most": rows.errors.nan_to_num(nan=-torch.inf).amax(dim=0),
    }
    return {name: values.numpy() for name, values in found.items()}


def known_of(found: Sums, centre: Tensor, sample: int) -> Known:
    n, total, squares = (training(found[name]) for name in ("number", "total", "squares"))
    mean = total / n[:, None]
    spread = (squares / n[:, None] - mean.square()).clamp(min=0).sqrt()
    errors, asked, least, most = (torch.from_numpy(found[name]) for name in ("errors", "asked", "least", "most"))
    if int(asked.min()) < LEAST:
        raise L2DError(f"expert {int(asked.argmin()) + 1}: asked on {int(asked.min())} rows; needs {LEAST}")
    std = torch.where(spread < CONSTANT, 1.0, spread)
    gaps = bool((asked < n[-1]).any())
    return Known(centre + mean, std, n, least, most, errors / asked, sample / float(n[-1]), gaps)


# Linear regression


def ridge_of(known: Known, fit: int) -> Ridge:
    ridge = Ridge()
    ridge.mean, ridge.std = known.mean[fit].float(), known.std[fit].float()
    return ridge


def squares(method: SimpleRouter, known: Known, rows: Rows) -> Sums:
    """For each fit and each group of experts, the products of (1, standardised inputs, right) over the fit's training rows where
    they were asked. By subtraction of a fold they would be wrong where values are clamped: each fit has its own scale."""
    right, ones, found = method.right(rows.errors), torch.ones(len(rows), 1), list[Tensor]()
    for fit in range(FOLDS + 1):
        points = ridge_of(known, fit).scaled(rows.inputs).double()
        for group in known.groups:
            mine = (rows.folds != fit) & ~right[:, group[0]].isnan()
            whole = torch.cat([ones, points, right[:, group]], dim=1)[mine]
            found.append(whole.T @ whole)
    return {"products": torch.stack(found).numpy(), **rows.sample(known.share)}


def fit_linear(passes: Passes, reader: Reader, method: SimpleRouter, known: Known) -> tuple[list[Estimator], Rows]:
    """Each penalty is chosen on the sample, by leave-one-out; the coefficients are those of all rows."""
    sums = passes.run("squares", partial(reader.on, partial(squares, method, known)))
    sample, products = Rows.of_sample(sums), iter(torch.from_numpy(sums["products"]))
    right, found = method.right(sample.errors), list[Estimator]()
    for fit in range(FOLDS + 1):
        ridge, own = ridge_of(known, fit), []
        points = ridge.scaled(sample.inputs)
        for group in known.groups:
            mine = (sample.folds != fit) & ~right[:, group[0]].isnan()
            penalty = fit_left_out(points[mine], right[mine][:, group], RIDGES)[2]
            own.append(solved(next(products), points.shape[1], penalty))
        weight, bias = (torch.cat(parts, dim=-1) for parts in zip(*own, strict=True))
        ridge.weight, ridge.bias = weight.T.float().contiguous(), bias.float()
        found.append(ridge)
    return found, sample


def solved(products: Tensor, width: int, penalty: float) -> tuple[Tensor, Tensor]:
    """The coefficients [F, q] and offsets [q] of a regression whose penalty spares the mean. products: one of `squares`."""
    centre, mean = products[0, 1 : width + 1] / products[0, 0], products[0, width + 1 :] / products[0, 0]
    centred = products[1 : width + 1, 1:] - products[1 : width + 1, :1] * products[0, 1:] / products[0, 0]
    weight = torch.linalg.solve(centred[:, :width] + penalty * torch.eye(width), centred[:, width:])
    return weight, mean - centre @ weight


# A table by category


def different(method: SimpleRouter, known: Known, rows: Rows) -> Sums:
    """The different rows, how often each fold has them, and the sums and numbers of `right` there."""
    right = method.right(rows.errors)
    asked = ~right.isnan()
    counted = torch.cat([torch.ones(len(rows), 1), right.nan_to_num(nan=0.0), asked], dim=1)
    spread = torch.zeros(len(rows), FOLDS, counted.shape[1], dtype=torch.float64)
    spread[torch.arange(len(rows)), rows.folds] = counted.double()
    return {**alike({"values": rows.inputs.numpy(), "sums": spread.numpy()}), **rows.sample(known.share)}


def alike(found: Sums) -> Sums:
    values, place = np.unique(found["values"], axis=0, return_inverse=True)
    if len(values) > MOST_DIFFERENT:
        problem = f"more than {MOST_DIFFERENT:,} different rows; let the router see only the category, dataset.features=[topic]"
        raise ParameterError("method=category_table", problem)
    sums = np.zeros((len(values), *found["sums"].shape[1:]))
    np.add.at(sums, place.reshape(-1), found["sums"])
    return {"values": values, "sums": sums}


def joined_alike(one: Sums, two: Sums) -> Sums:
    both = {name: np.concatenate([one[name], two[name]]) for name in ("values", "sums")}
    rest = added(*({name: part for name, part in own.items() if name not in both} for own in (one, two)))
    return {**rest, **alike(both)}


def fit_table(passes: Passes, reader: Reader, method: SimpleRouter, known: Known) -> tuple[list[Estimator], Rows]:
    found = passes.run("different", partial(reader.on, partial(different, method, known)), joined_alike)
    values, p = torch.from_numpy(found["values"]).double(), len(known.least)
    estimators = list[Estimator]()
    for fit, sums in enumerate(training(found["sums"].swapaxes(0, 1))):
        here, table = sums[:, 0] > 0.5, Lookup()
        table.mean, table.std = known.mean[fit], known.std[fit]
        scaled = table.scaled(values[here]).round(decimals=ROUNDED)
        table.different, member = scaled.unique(dim=0, return_inverse=True)
        refuse_different(len(table.different), int(known.rows[fit]))
        own = torch.zeros(len(table.different), 2 * p, dtype=torch.float64).index_add(0, member, sums[here, 1:])
        right, asked = own.tensor_split([p], dim=1)
        overall = right.sum(dim=0) / asked.sum(dim=0)
        table.overall, table.table = overall.float(), ((right + overall) / (asked + 1)).float()
        estimators.append(table)
    return estimators, Rows.of_sample(found)


# The others learn from the sample alone


def drawn(known: Known, rows: Rows) -> Sums:
    return rows.sample(known.share)


def fit_sample(passes: Passes, reader: Reader, method: SimpleRouter, known: Known) -> tuple[list[Estimator], Rows]:
    sample, found = Rows.of_sample(passes.run("sample", partial(reader.on, partial(drawn, known)))), list[Estimator]()
    costs, prices = sample.errors + method.prices, method.prices.double()
    some = sample.drawn < min(known.share, 1.0) * NUMBERS / max(sample.inputs.numel(), NUMBERS)
    print(f"fitting to {int(some.sum()):,} of the rows, without each of {FOLDS} folds, and to all")
    for fit in range(FOLDS + 1):
        mine, estimator = some & (sample.folds != fit), method.estimator()
        asked = (~sample.errors[mine].isnan()).sum(dim=0)
        if int(asked.min()) < LEAST:
            name, number = reader.layout.names[int(asked.argmin())], int(asked.min())
            raise L2DError(
                f"expert {name}: asked on {number} rows of the sample; use method=linear, which learns from all"
            )
        unlabelled = torch.full((int(mine.sum()),), -1)
        estimator.fit(method.fit_rows(sample.inputs[mine], costs[mine], unlabelled, prices))
        found.append(estimator)
    return found, sample


Fit = Callable[[Passes, Reader, SimpleRouter, Known], tuple[list[Estimator], Rows]]
FITS: dict[type[Estimator], Fit] = dict.fromkeys([Neighbours, Clusters, Mixture, Best], fit_sample)
FITS |= {Ridge: fit_linear, Lookup: fit_table}  # in one pass each
