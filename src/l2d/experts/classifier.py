"""Training experts one after the other on one device, with the router's own loader and training step."""

import inspect
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LambdaCallback
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from l2d.config import Recipe
from l2d.core.out_of_memory import free_memory, more_parts
from l2d.core.ridge import channel_statistics
from l2d.data.arrays import Arrays
from l2d.data.batches import Batches, Inputs, eval_batch, even_batch, place
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.lightning.learner import Learner, learning, make_trainer, speed
from l2d.utils.errors import L2DError, ParameterError, under
from l2d.utils.parameters import Factory
from l2d.utils.seeding import derive_seed, stream


def expert_rows(labels: Tensor, train: Tensor, owned: Tensor, fraction: float, rng: np.random.Generator) -> Tensor:
    """Sorted rows: all of `train` (row numbers among the labels) with classes that the expert owns, `fraction` of the others."""
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
    train, test = (torch.full((len(labels), p), -1) for labels in (arrays.train_labels, arrays.test_labels))
    held_out = deal_into_folds(request.train, folds, stream(request.seed, "folds")) if folds > 1 else []
    for k in range(p):
        chosen = stream(request.seed, "experts", k)
        rows = expert_rows(arrays.train_labels, request.train, owners == k, fraction, chosen)
        title = f"expert {k + 1} of {p} ({len(rows):,} rows)"
        seed = derive_seed(request.seed, "experts", k)
        train[:, k], test[:, k] = classifiers.answers(rows, torch.arange(len(train)), True, seed, title)
        for number, fold in enumerate(held_out):
            others = rows[~torch.isin(rows, fold)]
            seed = derive_seed(request.seed, "experts", k, "fold", number)
            train[fold, k], _ = classifiers.answers(others, fold, False, seed, f"{title}, fold {number + 1} of {folds}")
    del classifiers
    free_memory()  # the router comes next, on the same device
    smallest = np.min_scalar_type(arrays.num_classes - 1)
    return {"train": train.numpy().astype(smallest), "test": test.numpy().astype(smallest)}


class Classifier(Learner):
    """Learns the label. Its outputs are one score per class."""

    recipe_key = "experts.recipe"

    def losses(self, outputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002 (of a router's batch)
        return F.cross_entropy(outputs, labels, reduction="none")


class Classifiers:
    """Classifiers of one kind. The images are copied to the device once."""

    def __init__(self, arrays: Arrays, network: Factory, recipe: Recipe, compute: ComputeOptions) -> None:
        self.arrays, self.network, self.recipe, self.compute = arrays, network, recipe, compute
        self._inputs: dict[str, Inputs] = {}

    def answers(self, rows: Tensor, asked: Tensor, ask_test: bool, seed: int, title: str) -> tuple[Tensor, Tensor]:
        """Train one on `rows`. Returns its predictions on the training rows `asked` and, if `ask_test`, on all test rows."""
        parts, everything = 1, torch.arange(len(self.arrays.test_labels) if ask_test else 0)
        while True:
            try:
                fitted = self._fit(rows, seed, title, parts)
                return self._predict(*fitted, "train", asked), self._predict(*fitted, "test", everything)
            except RuntimeError as error:
                setting = f"recipe.batch_size={self.recipe.batch_size}"
                parts = more_parts(error, setting, even_batch(len(rows), self.recipe.batch_size), parts)
            free_memory()  # outside the handler: the error references the tensors that used up the memory

    def _fit(self, rows: Tensor, seed: int, title: str, parts: int) -> tuple[pl.Trainer, Classifier]:
        recipe = self.recipe
        pl.seed_everything(derive_seed(seed, "weights"), verbose=False)
        how = learning(recipe, recipe.optimizer, self.compute.accelerator, [nn.Parameter(torch.zeros(1))])
        classifier = Classifier(network=self._network(rows), parts=parts, **how)
        # disable=None: a bar only on a terminal
        bar = tqdm(desc=title, total=recipe.epochs, unit="epoch", disable=None if self.compute.progress else True)

        def advance(_: pl.Trainer, learner: Any) -> None:
            if not bar.disable:  # reading the loss would make the device wait
                bar.set_postfix(loss=f"{float(learner.loss_sum) / learner.rows_seen:.4f}", refresh=False)
            bar.update()

        trainer = self._trainer(parts, LambdaCallback(on_train_epoch_end=advance))
        labels, unused = self.arrays.train_labels[rows], torch.zeros(len(rows), 0)
        drawn: Any = {"seed": seed, "augment": recipe.augment, "pad": self.arrays.train_inputs.shape[1] // 8}
        batches = Batches(self._placed("train", trainer), rows, unused, labels, recipe.batch_size, parts=parts, **drawn)
        if min(batches.sizes) < 2:
            problem = f"leaves {title} a batch of one row, which batch normalisation cannot take"
            raise ParameterError("recipe.batch_size", problem, recipe.batch_size)
        with bar:
            trainer.fit(classifier, train_dataloaders=batches)
        return trainer, classifier

    def _trainer(self, parts: int, bar: pl.Callback) -> pl.Trainer:
        accelerator = self.compute.accelerator
        options: Any = {"accelerator": accelerator, "deterministic": self.compute.deterministic, "callbacks": [bar]}
        options |= dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
        options |= {"max_epochs": self.recipe.epochs, "accumulate_grad_batches": parts}
        try:
            return make_trainer(devices=1, precision=speed(self.recipe, accelerator)["precision"], **options)
        except ParameterError as error:  # it names a key of conf/trainer: no "experts." before it
            raise L2DError(str(error)) from error

    def _network(self, rows: Tensor) -> nn.Module:
        """With mean and std of its training rows, if it takes them."""
        statistics = {}
        if {"mean", "std"} & inspect.signature(self.network).parameters.keys():
            statistics = dict(zip(("mean", "std"), channel_statistics(self.arrays.train_inputs, rows), strict=True))
        with under("network"):
            return self.network(num_outputs=self.arrays.num_classes, head="linear", **statistics)

    def _predict(self, trainer: pl.Trainer, classifier: Classifier, part: str, rows: Tensor) -> Tensor:
        if not len(rows):
            return torch.zeros(0, dtype=torch.int64)
        inputs, unused = self._placed(part, trainer), torch.zeros(len(rows), 0)
        size = eval_batch(inputs.tensor, classifier.parts)
        outputs: Any = trainer.predict(classifier, Batches(inputs, rows, unused, rows, size))
        scores = torch.cat(outputs)
        if not scores.isfinite().all():
            raise ParameterError("recipe.optimizer.lr", "training diverged: the scores are not finite; lower it")
        return scores.argmax(dim=1).cpu()

    def _placed(self, part: str, trainer: pl.Trainer) -> Inputs:
        if part not in self._inputs:
            source = self.arrays.train_inputs if part == "train" else self.arrays.test_inputs
            self._inputs[part] = place(source, trainer.strategy.root_device, self.compute.data_on_device)
        return self._inputs[part]
