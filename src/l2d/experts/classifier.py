"""Training classifiers one after the other on one device, through the router's own loader and step."""

from collections.abc import Callable
from functools import partial

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from l2d.config import Recipe
from l2d.data.arrays import Arrays, channel_statistics
from l2d.data.batches import Batches, Inputs, eval_batch, even_batch, place
from l2d.experts.request import Machine
from l2d.learning.learner import Learner, make_trainer, speed
from l2d.utils.errors import L2DError
from l2d.utils.out_of_memory import forget_earlier_runs, more_parts
from l2d.utils.seeding import derive_seed

Network = Callable[..., nn.Module]


class Classifier(Learner):
    """Learns the label. Its outputs are one score per class."""

    recipe_key = "experts.recipe"

    def losses(self, inputs: Tensor, costs: Tensor, labels: Tensor) -> Tensor:  # noqa: ARG002 (of a router's batch)
        return F.cross_entropy(self.network(inputs), labels, reduction="none")


class Classifiers:
    """network: from mean, std, num_outputs and head to a module. recipe: keys of conf/recipe. The images go to the device once."""

    def __init__(self, arrays: Arrays, network: Network, recipe: Recipe, machine: Machine) -> None:
        self.arrays, self.network, self.recipe, self.machine = arrays, network, recipe, machine
        self._inputs: dict[str, Inputs] = {}

    def answers(self, rows: Tensor, asked: Tensor, ask_test: bool, seed: int, title: str) -> tuple[Tensor, Tensor]:
        """Train one on some training rows; its predictions on the training rows `asked` and, if asked for, on all test rows."""
        parts = 1
        while True:
            try:
                return self._answers(rows, asked, ask_test, seed, title, parts)
            except RuntimeError as error:
                setting = f"experts.recipe.batch_size={self.recipe.batch_size}"
                parts = more_parts(error, setting, even_batch(len(rows), self.recipe.batch_size), parts)
            forget_earlier_runs()  # out here, where the error no longer holds what it ran out with

    def _answers(
        self, rows: Tensor, asked: Tensor, ask_test: bool, seed: int, title: str, parts: int
    ) -> tuple[Tensor, Tensor]:
        trainer, classifier = self._fit(rows, seed, title, parts)
        everything = torch.arange(len(self.arrays.test_labels) if ask_test else 0)
        return self._predict(trainer, classifier, "train", asked), self._predict(
            trainer, classifier, "test", everything
        )

    def _fit(self, rows: Tensor, seed: int, title: str, parts: int) -> tuple[pl.Trainer, Classifier]:
        fast = speed(self.recipe, self.machine.accelerator)
        mean, std = channel_statistics(self.arrays.train_inputs, rows)
        pl.seed_everything(derive_seed(seed, "weights"), verbose=False)
        if not callable(self.network):
            raise L2DError(
                f"experts.network={self.network}: must be a mapping; choose with router@experts.network=NAME"
            )
        try:
            network = self.network(mean=mean, std=std, num_outputs=self.arrays.num_classes, head="linear")
        except (L2DError, TypeError, ValueError) as error:
            raise L2DError(f"experts.network: {str(error).replace('router.', '', 1)}") from error
        classifier = Classifier(
            network=network,
            optimizer=partial(self.recipe.optimizer, **({"fused": True} if fast["fused"] else {})),
            schedule=self.recipe.schedule,
            channels_last=fast["channels_last"],
            compile_mode=str(fast["compile"]).lower(),
            ema=self.recipe.ema,
            parts=parts,
        )
        bar = tqdm(desc=title, total=self.recipe.epochs, unit="epoch", disable=not self.machine.progress)
        trainer = make_trainer(
            accelerator=self.machine.accelerator,
            devices=1,
            precision=fast["precision"],
            deterministic=self.machine.deterministic,
            max_epochs=self.recipe.epochs,
            accumulate_grad_batches=parts,
            logger=False,
            callbacks=[EpochBar(bar)],
            enable_checkpointing=False,
            enable_progress_bar=False,
        )
        batches = Batches(
            self._placed("train", trainer),
            rows,
            torch.zeros(len(rows), 0),
            self.arrays.train_labels[rows],
            self.recipe.batch_size,
            seed=seed,
            augment=self.recipe.augment,
            pad=self.arrays.train_inputs.shape[1] // 8,
            parts=parts,
        )
        if min(batches.sizes) < 2:
            raise L2DError(
                f"experts.recipe.batch_size={self.recipe.batch_size}: leaves {title} a batch of one row, which batch"
                " normalisation cannot take"
            )
        with bar:
            trainer.fit(classifier, train_dataloaders=batches)
        return trainer, classifier

    def _predict(self, trainer: pl.Trainer, classifier: Classifier, part: str, rows: Tensor) -> Tensor:
        if not len(rows):
            return torch.zeros(0, dtype=torch.int64)
        inputs, unused = self._placed(part, trainer), torch.zeros(len(rows), 0)
        size = max(1, eval_batch(inputs.tensor) // classifier.parts)
        outputs = trainer.predict(classifier, Batches(inputs, rows, unused, rows, size))
        assert outputs is not None
        scores = torch.cat([torch.as_tensor(batch) for batch in outputs])
        if not scores.isfinite().all():
            raise L2DError("training diverged: an expert's scores are not finite; lower experts.recipe.optimizer.lr")
        return scores.argmax(dim=1).cpu()

    def _placed(self, part: str, trainer: pl.Trainer) -> Inputs:
        if part not in self._inputs:
            source = self.arrays.train_inputs if part == "train" else self.arrays.test_inputs
            self._inputs[part] = place(source, trainer.strategy.root_device, self.machine.data_on_device)
        return self._inputs[part]


class EpochBar(pl.Callback):
    """One bar per classifier, one step per epoch."""

    def __init__(self, bar: "tqdm[None]") -> None:
        self.bar = bar

    def on_train_epoch_end(self, _: pl.Trainer, learner: pl.LightningModule) -> None:
        assert isinstance(learner, Learner)
        if not self.bar.disable:  # reading the loss makes the device wait
            self.bar.set_postfix(loss=f"{float(learner.loss_sum) / learner.rows_seen:.4f}", refresh=False)
        self.bar.update()
