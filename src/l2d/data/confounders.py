"""Columns that may have decided who was asked in a log: as numbers for its model, and a test of the columns that nobody named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from l2d.data.cells import cell_words, floats, missing
from l2d.data.sheet import Sheet

if TYPE_CHECKING:
    from torch import Tensor

MANY = 20  # different numbers; more are divided into quantiles
QUANTILES = 10
RARE = 10  # rows; values that fewer have are one group
MOST = 500  # groups of a column as numbers; the rows of smaller ones have zeros
CLUSTERS, ROWS_OF_A_CLUSTER, SOME = 8, 20, 10_000  # SOME: rows that they are learned from
CHANCE = 0.01  # that some column is named although none tells who was asked


def groups_of(sheet: Sheet, column: str) -> np.ndarray:
    """int [n], from 0: a group for each value, for empty cells, for all rare values, or for quantiles of many numbers."""
    cells = sheet.columns[column]
    values, empty = floats(cells), missing(cells)
    if not np.isnan(values[~empty]).any() and len(np.unique(values[~empty])) > MANY:
        edges = np.quantile(values[~empty], np.linspace(0, 1, QUANTILES + 1)[1:-1])
        return np.unique(np.where(empty, -1, np.searchsorted(edges, values)), return_inverse=True)[1]
    _, number, count = np.unique(np.array(cell_words(cells), object), return_inverse=True, return_counts=True)
    return np.unique(np.where(count[number] < RARE, -1, number), return_inverse=True)[1]


def encoded(sheets: Sequence[Sheet], columns: Sequence[str]) -> Tensor:
    """float64 [n, C], of all sheets: 0 or 1 for each group; a number with many values also as it is, standardised."""
    import pyarrow as pa
    import torch

    cells = {name: pa.chunked_array([part for one in sheets for part in one.columns[name].chunks]) for name in columns}
    sheet, parts = Sheet(sheets[0].path, cells), []
    for column in columns:
        groups, values = groups_of(sheet, column), floats(sheet.columns[column])
        largest = np.argsort(-np.bincount(groups), kind="stable")[:MOST]
        parts.append((groups[:, None] == np.sort(largest)).astype(np.float64))
        if not np.isnan(values).any() and len(np.unique(values)) > MANY:
            parts.append(((values - values.mean()) / values.std())[:, None])
    return torch.from_numpy(np.concatenate(parts, axis=1))


def clustered(inputs: Tensor, least: int) -> Tensor:
    """float64 [n, k]: the cluster of each row of numbers, 0 or 1. A regression on many numbers is too weak where few were asked; on
    clusters it has the shares of each. least: rows on which the expert that was asked least was."""
    import torch
    from sklearn.cluster import KMeans

    k = min(CLUSTERS, least // ROWS_OF_A_CLUSTER)
    if k < 2:
        return torch.zeros(len(inputs), 0, dtype=torch.float64)
    means = KMeans(k, n_init=2, random_state=0).fit(inputs[:SOME].numpy())
    return torch.eye(k, dtype=torch.float64)[torch.from_numpy(means.predict(inputs.numpy())).long()]


def tells_who(sheet: Sheet, columns: Sequence[str], asked: np.ndarray) -> dict[str, tuple[float, float]]:
    """{column: (chance, without)} of the columns that tell by a χ² test which experts were asked, bool [n, p]. chance: the mean
    share of the other rows of a row's group on which the same experts were asked; without: of all other rows."""
    from scipy.stats import chi2_contingency

    who, found = np.unique(asked, axis=0, return_inverse=True)[1].reshape(-1), dict[str, tuple[float, float]]()
    for column in columns if who.any() else ():  # else all asked the same
        groups = groups_of(sheet, column)
        table = np.zeros((groups.max() + 1, who.max() + 1))
        np.add.at(table, (groups, who), 1)
        rows, total, n = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True), len(who)
        if chi2_contingency(table, correction=False).pvalue < CHANCE / len(columns):
            own = (table * (table - 1) / np.maximum(rows - 1, 1)).sum() / n
            found[column] = (float(own), float((total * (total - 1)).sum() / (n - 1) / n))
    return found


def warning(sheet: Sheet, columns: Sequence[str], asked: np.ndarray, experts: Sequence[str]) -> str:
    """Name the unused columns, but those of an expert, that tell who was asked: if they matter, all estimates are wrong."""
    own = tuple(f"_{expert}" for expert in experts)
    found = tells_who(sheet, [name for name in columns if name in sheet.columns and not name.endswith(own)], asked)
    names = sorted(found, key=lambda name: found[name], reverse=True)
    if not names:
        return ""
    chance, without = found[names[0]]
    told = f"{names[0]} tells who was asked: {chance:.0%} of the time, {without:.0%} without it"
    key = f"'dataset.confounders=[{', '.join(names)}]' (docs/your_table.md#logs)"
    return f"WARNING: {told}. Name the columns that were known before: {key}"
