"""Baselines that a learned router on rows of numbers has to beat: its nearest neighbours and, with categories, a table."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from l2d.assembly.assemble import Splits
from l2d.assembly.build import fit_at_once
from l2d.core import metrics as metrics_
from l2d.core.decisions import argmax_last
from l2d.core.groups import group_sums
from l2d.core.results import Score
from l2d.lightning.threads import one_thread_if_small
from l2d.methods.method import Evidence
from l2d.methods.simple import NearestNeighbours
from l2d.networks.estimators.estimator import shuffled
from l2d.networks.estimators.neighbours import AT_ONCE

SEARCHED = 10_000  # training rows, at most: searching all takes longer on a large table than training does


def simple_scores(splits: Splits) -> dict[str, Score]:
    train, test = splits.train, splits.test
    if train.source.ndim != 2 or not train.source.is_floating_point() or len(train) < 2:
        return {}
    scored = partial(metrics_.score, costs=test.costs, prices=test.prices)
    found = {"nearest_neighbours": scored(best_of_neighbours(splits))}
    if splits.train_categories is not None and splits.arrays.categories is not None:
        by_category = best_of_category(splits.train_categories, splits.train_costs, splits.arrays.categories)
        found["category_table"] = scored(by_category)
    return found


def best_of_neighbours(splits: Splits) -> Tensor:
    """The decisions of method=knn on the test rows: this baseline and that method are one, but for SEARCHED."""
    train, test = splits.train, splits.test
    if len(train) > SEARCHED:
        train = train.take(shuffled(len(train), "searched")[:SEARCHED])
    costs, prices, errors = train.costs, train.prices, train.answers.errors
    if prices.ndim == 2 or errors.isnan().any():  # other methods' costs may contain prices, or be completed
        costs = errors if prices.ndim == 2 else errors + prices
    method = NearestNeighbours(costs=costs, num_classes=splits.arrays.num_classes, decision="argmax", k=None)
    method.learn(Evidence(costs if prices.ndim == 2 else costs - prices, prices, train.labels))
    network = method.own_network().eval()
    with torch.no_grad(), one_thread_if_small(train.inputs.numel()):
        fit_at_once(method, network, replace(train, costs=costs), splits.price_weights)
        parts = test.rows.split(AT_ONCE)  # all of them, copied, would be a peak of memory
        return method.decide(torch.cat([network(test.source[part]) for part in parts]))


def best_of_category(known: Sequence[str], costs: Tensor, queries: Sequence[str]) -> Tensor:
    """The expert with the least mean cost in each category, or over all rows where a category is new. costs [n, p]."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(known))}
    sums, _ = group_sums(torch.tensor([numbers[name] for name in known]), costs.double(), len(numbers) + 1)
    sums[-1] = costs.double().sum(dim=0)  # of all rows
    # Sums are enough: all experts of a category have the same number of rows.
    return argmax_last(-sums)[[numbers.get(name, len(numbers)) for name in queries]]
