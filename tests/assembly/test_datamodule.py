"""Batches of the assembled splits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from tests.running import build

from l2d.assembly.datamodule import DeferralData
from l2d.data.sets.digits import Digits
from l2d.utils.errors import L2DError


@pytest.fixture
def data(tiny: Callable[..., DictConfig]) -> DeferralData:
    return build(tiny("recipe.batch_size=64"))[0]


def test_batches_and_that_validation_is_not_the_test_split(data: DeferralData) -> None:
    validation = torch.cat([inputs for inputs, _, _ in data.val_dataloader()])
    test = torch.cat([inputs for inputs, _, _ in data.predict_dataloader()])
    assert torch.equal(validation, data.splits.validation.inputs)
    assert torch.equal(test, Digits().load(Path()).test_inputs)
    inputs, costs, labels = next(iter(data.train_dataloader()))
    assert (inputs.shape[1:], costs.shape, labels.shape) == ((8, 8, 1), (len(inputs), 5), (len(inputs),))
    assert costs.dtype == torch.float32
    assert sum(len(batch[0]) for batch in data.train_dataloader()) == 1293
    assert sum(len(batch[0]) for batch in data.predict_dataloader()) == 360


@pytest.mark.slow
def test_resampled_rows_are_handed_out_and_a_batch_of_one_row_is_refused(tiny: Callable[..., DictConfig]) -> None:
    data, _ = build(tiny("recipe.batch_size=64", "sampling=under"))
    rows = sum(len(batch[0]) for batch in data.train_dataloader())
    assert rows == len(data.splits.train) < 1293
    with pytest.raises(L2DError, match=r"^recipe\.batch_size=2: "):
        build(tiny("recipe.batch_size=2"))


def test_recipe_and_machine_reach_the_batches(tiny: Callable[..., DictConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    """With two micro-batches per batch, evaluation takes half as many rows at a time."""
    monkeypatch.setattr("l2d.data.batches.EVAL_BATCH", 90)
    data, _ = build(tiny("seed=3", "recipe.augment=crop", "trainer.data_on_device=false"), parts=2)
    train, test = data.train_dataloader(), data.predict_dataloader()
    assert (train.seed, train.augment, train.pad, train.inputs.resident) == (3, "crop", 1, False)
    assert (test.seed, test.augment, test.sizes) == (None, "none", [45] * 8)
    assert sum(train.weights) == len(train)


def test_only_images_are_augmented(data: DeferralData) -> None:
    rows = replace(data.splits.train, source=torch.zeros(1437, 3))
    given: dict[str, Any] = {"batch_size": 64, "on_device": "auto", "seed": 0}
    DeferralData(replace(data.splits, train=rows), augment="none", **given)
    with pytest.raises(L2DError, match=r"^augment=crop: "):
        DeferralData(replace(data.splits, train=rows), augment="crop", **given)
