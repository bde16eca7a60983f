"""Experts that are classifiers: each trained on its own classes and a little of the others' (the paper's "real experts")."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.config import Recipe
from l2d.data.arrays import Panel
from l2d.experts.classifier import Classifiers, Network
from l2d.experts.partition import class_owners, class_panel
from l2d.experts.request import Request
from l2d.learning.learner import check_recipe
from l2d.utils.errors import L2DError
from l2d.utils.out_of_memory import free_memory
from l2d.utils.seeding import derive_seed, stream


def expert_rows(labels: Tensor, train: Tensor, owned: Tensor, fraction: float, rng: np.random.Generator) -> Tensor:
    """The sorted rows that an expert learns from: all training rows of its classes and that fraction of each other class.

    labels int [N], train: row numbers among them, owned bool [num_classes].
    """
    rows = [train[owned[labels[train]]]]
    for other in torch.nonzero(~owned)[:, 0].tolist():
        there = train[labels[train] == other]
        chosen = rng.permutation(len(there))[: round(fraction * len(there))]
        rows.append(there[torch.from_numpy(chosen)])
    return torch.cat(rows).sort().values


def folds(train: Tensor, number: int, rng: np.random.Generator) -> list[Tensor]:
    """The training rows, dealt out at random into `number` sorted parts of equal size."""
    return [torch.from_numpy(np.sort(part)) for part in np.array_split(rng.permutation(train.numpy()), number)]


class TrainedExperts:
    """One classifier per expert of the setup. All of a router's seeds share them: they and the validation split go by `seed`.

    fraction: of the other classes' training rows, beside all of its own. cross_fit: from 2 on, predictions on the training split
    come from that many classifiers per expert, each asked only about rows it was not trained on; validation and test are
    always answered by the one that learned from all of its rows.
    """

    seed: int | None

    def __init__(
        self, *, seed: int, fraction: float, cross_fit: int, network: Network, recipe: Mapping[str, Any]
    ) -> None:
        if not 0 <= fraction <= 1:
            raise L2DError(f"experts.fraction={fraction}: must be between 0 and 1")
        if not isinstance(cross_fit, int) or cross_fit < 1:
            raise L2DError(f"experts.cross_fit={cross_fit}: must be a whole number, 1 (off) or more")
        try:
            self.recipe = Recipe(**{**recipe, "compile": str(recipe["compile"]).lower()})
        except TypeError as error:
            raise L2DError(f"experts.recipe: {str(error).partition(' got an ')[2] or error}") from error
        check_recipe(self.recipe, "experts.recipe")
        if self.recipe.patience is not None:
            raise L2DError("experts.recipe.patience: experts have no validation rows to stop by; leave it at null")
        try:
            self.recipe.optimizer([torch.zeros(1, requires_grad=True)])
        except (TypeError, ValueError, RuntimeError) as error:
            raise L2DError(f"experts.recipe.optimizer={self.recipe.optimizer.keywords}: {error}") from error
        self.seed, self.fraction, self.cross_fit, self.network = seed, fraction, cross_fit, network

    def panel(self, request: Request) -> Panel:
        owners = class_owners(request.coverage, request.arrays.num_classes)
        if self.cross_fit > len(request.train):
            raise L2DError(f"experts.cross_fit={self.cross_fit}: there are {len(request.train):,} training rows")
        made = request.cache.get(lambda: self._make(request, owners))
        train, test = (torch.from_numpy(made[name]).long() for name in ("train", "test"))
        return replace(class_panel(request.arrays, request.coverage, train, test), learned=self.cross_fit == 1)

    def _make(self, request: Request, owners: Tensor) -> dict[str, np.ndarray]:
        arrays, p = request.arrays, int(owners.max()) + 1
        classifiers = Classifiers(arrays, self.network, self.recipe, request.machine)
        train = torch.full((len(arrays.train_labels), p), -1)
        test = torch.full((len(arrays.test_labels), p), -1)
        everything = torch.arange(len(train))
        held_out = folds(request.train, self.cross_fit, stream(request.seed, "folds")) if self.cross_fit > 1 else []
        for k in range(p):
            chosen = stream(request.seed, "experts", k)
            rows = expert_rows(arrays.train_labels, request.train, owners == k, self.fraction, chosen)
            title = f"expert {k + 1} of {p} ({len(rows):,} rows)"
            seed = derive_seed(request.seed, "experts", k)
            train[:, k], test[:, k] = classifiers.answers(rows, everything, True, seed, title)
            for number, fold in enumerate(held_out):
                part = f"{title}, fold {number + 1} of {len(held_out)}"
                others = rows[~torch.isin(rows, fold)]
                seed = derive_seed(request.seed, "experts", k, "fold", number)
                train[fold, k], _ = classifiers.answers(others, fold, False, seed, part)
        del classifiers
        free_memory()  # the router comes next, on the same device
        smallest = np.uint8 if arrays.num_classes <= 256 else np.uint16
        return {"train": train.numpy().astype(smallest), "test": test.numpy().astype(smallest)}
