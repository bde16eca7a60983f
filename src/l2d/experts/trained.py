"""Experts that are classifiers: each learns its own classes and a small share of the others (the paper's "real experts")."""

from dataclasses import replace
from typing import Any

from l2d.config import Recipe
from l2d.data.arrays import Panel
from l2d.experts.partition import class_owners, class_panel
from l2d.experts.request import ExpertRequest, Experts
from l2d.utils.errors import ParameterError
from l2d.utils.parameters import Count, Factory, Seed, Share


class TrainedExperts(Experts):
    """One classifier per expert of the setup; the keys are explained in conf/experts/trained.yaml. With cross_fit >= 2, that many
    further classifiers per expert predict the training split, each only rows that it was not trained on."""

    def __init__(self, *, seed: Seed, fraction: Share, cross_fit: Count, network: Factory, recipe: Recipe) -> None:
        self.seed, self.fraction, self.cross_fit = seed, fraction, cross_fit
        self.network, self.recipe = network, recipe
        if recipe.patience is not None:
            raise ParameterError("recipe.patience", "experts have no validation rows; use null", recipe.patience)

    def panel(self, request: ExpertRequest) -> Panel:
        import torch

        from l2d.experts.classifier import fit_experts

        owners = class_owners(request.coverage, request.arrays.num_classes)
        if self.cross_fit > len(request.train):
            raise ParameterError("cross_fit", f"there are only {len(request.train):,} training rows", self.cross_fit)
        given: Any = {"network": self.network, "recipe": self.recipe, "fraction": self.fraction}
        made = request.cache.get(lambda: fit_experts(request, owners, folds=self.cross_fit, **given))
        train, test = (torch.from_numpy(made[name]).long() for name in ("train", "test"))
        return replace(class_panel(request.arrays, request.coverage, train, test), learned=self.cross_fit == 1)
