"""The rows that each trained expert learns from, and its predictions."""

import numpy as np
import torch
from torch import Tensor

from l2d.config import Recipe
from l2d.core.out_of_memory import free_memory
from l2d.experts.classifier import Classifiers
from l2d.experts.request import ExpertRequest
from l2d.utils.parameters import Factory
from l2d.utils.seeding import derive_seed, stream


def expert_rows(labels: Tensor, train: Tensor, owned: Tensor, fraction: float, rng: np.random.Generator) -> Tensor:
    """The sorted rows that an expert learns from: all training rows of its own classes, and `fraction` of all other rows.
    labels int [N], train: row numbers among them, owned bool [num_classes]."""
    own = owned[labels[train]]
    others = train[~own]
    chosen = rng.permutation(len(others))[: round(fraction * len(others))]
    return torch.cat([train[own], others[torch.from_numpy(chosen)]]).sort().values


def deal_into_folds(train: Tensor, number: int, rng: np.random.Generator) -> list[Tensor]:
    """The training rows, split at random into `number` sorted folds of (nearly) equal size."""
    return [torch.from_numpy(np.sort(part)) for part in np.array_split(rng.permutation(train.numpy()), number)]


def fit_experts(
    request: ExpertRequest, owners: Tensor, *, network: Factory, recipe: Recipe, fraction: float, folds: int
) -> dict[str, np.ndarray]:
    """Predictions [N, p] of every expert on all training and all test rows, in the smallest integer type that holds the
    classes. owners: the expert of each class. The others are arguments of TrainedExperts; folds is its cross_fit."""
    arrays, p = request.arrays, int(owners.max()) + 1
    classifiers = Classifiers(arrays, network, recipe, request.compute)
    train = torch.full((len(arrays.train_labels), p), -1)
    test = torch.full((len(arrays.test_labels), p), -1)
    everything = torch.arange(len(train))
    held_out = deal_into_folds(request.train, folds, stream(request.seed, "folds")) if folds > 1 else []
    for k in range(p):
        chosen = stream(request.seed, "experts", k)
        rows = expert_rows(arrays.train_labels, request.train, owners == k, fraction, chosen)
        title = f"expert {k + 1} of {p} ({len(rows):,} rows)"
        seed = derive_seed(request.seed, "experts", k)
        train[:, k], test[:, k] = classifiers.answers(rows, everything, True, seed, title)
        for number, fold in enumerate(held_out):
            others = rows[~torch.isin(rows, fold)]
            seed = derive_seed(request.seed, "experts", k, "fold", number)
            part = f"{title}, fold {number + 1} of {folds}"
            train[fold, k], _ = classifiers.answers(others, fold, False, seed, part)
    del classifiers
    free_memory()  # the router comes next, on the same device
    smallest = np.min_scalar_type(arrays.num_classes - 1)
    return {"train": train.numpy().astype(smallest), "test": test.numpy().astype(smallest)}
