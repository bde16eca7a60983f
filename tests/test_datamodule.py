"""The splits, and that costs belong to their rows."""

from pathlib import Path
from typing import Any

import pytest
import torch

from l2d.data.arrays import channel_statistics
from l2d.data.digits import Digits
from l2d.datamodule import DeferralData
from l2d.errors import L2DError
from l2d.experts.cache import Cache
from l2d.experts.request import Machine
from l2d.experts.synthetic import SyntheticExperts


def build(**changes: Any) -> DeferralData:
    arguments: dict[str, Any] = {
        "dataset": Digits(),
        "data_dir": Path(),
        "experts": SyntheticExperts(),
        "coverage": [0.4, 0.2, 0.2, 0.1, 0.1],
        "cache": Cache(Path()),
        "machine": Machine(),
        "prices": None,
        "noise": 0.0,
        "noise_kind": "multiplicative",
        "validation_fraction": 0.1,
        "batch_size": 64,
        "augment": "none",
        "seed": 0,
    }
    return DeferralData(**{**arguments, **changes})


def as_rows(images: torch.Tensor) -> list[bytes]:
    return [image.numpy().tobytes() for image in images]


def test_sizes_and_disjointness() -> None:
    """1,437 training rows: a stratified tenth is validation. Digits has no two equal images, so bytes tell rows apart."""
    data = build()
    splits = [as_rows(split.inputs) for split in (data.train, data.validation, data.test)]
    assert [len(rows) for rows in splits] == [1293, 144, 360]
    assert len({row for rows in splits for row in rows}) == len({*as_rows(Digits().load(Path()).train_inputs)}) + 360
    assert not {*splits[0]} & {*splits[1]}
    assert not {*splits[1]} & {*splits[2]}
    assert not {*splits[0]} & {*splits[2]}


def test_validation_is_not_the_test_split() -> None:
    data = build()
    validation = torch.cat([inputs for inputs, _, _ in data.val_dataloader()])
    test = torch.cat([inputs for inputs, _, _ in data.predict_dataloader()])
    assert torch.equal(validation, data.validation.inputs)
    assert torch.equal(test, Digits().load(Path()).test_inputs)


def test_seed_moves_validation_and_experts_but_not_test_images() -> None:
    one, other = build(seed=0), build(seed=1)
    assert torch.equal(one.test.inputs, other.test.inputs)
    assert not torch.equal(one.test.costs, other.test.costs)
    assert {*as_rows(one.validation.inputs)} != {*as_rows(other.validation.inputs)}
    assert torch.equal(one.train.costs, build(seed=0).train.costs)


@pytest.mark.parametrize("prices", [None, "coverage"])
def test_costs_belong_to_their_rows(prices: str | None) -> None:
    data = build(prices=prices)
    for split in (data.train, data.validation, data.test):
        assert split.answers.predictions is not None
        wrong = (split.answers.predictions != split.labels[:, None]).double()
        assert torch.equal(split.costs, wrong + split.prices)
        # the expert that owns the label's class is right
        owner = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 3, 4])[split.labels]
        assert torch.equal(split.costs.gather(1, owner[:, None])[:, 0], split.prices[owner])


def test_labels_belong_to_their_images() -> None:
    source = Digits().load(Path())
    known = dict(zip(as_rows(source.train_inputs), source.train_labels.tolist(), strict=True))
    data = build()
    for split in (data.train, data.validation):
        assert [known[row] for row in as_rows(split.inputs)] == split.labels.tolist()


def test_batches() -> None:
    data = build()
    inputs, costs, labels = next(iter(data.train_dataloader()))
    assert inputs.shape[1:] == (8, 8, 1)
    assert costs.shape == (len(inputs), 5)
    assert costs.dtype == torch.float32
    assert labels.shape == (len(inputs),)
    assert sum(len(batch[0]) for batch in data.train_dataloader()) == 1293
    assert sum(len(batch[0]) for batch in data.predict_dataloader()) == 360


def test_pixel_statistics_are_those_of_the_training_images() -> None:
    data = build()
    mean, std = channel_statistics(data.train.source, data.train.rows)
    pixels = data.train.inputs.double()
    assert mean == pytest.approx([float(pixels.mean())])
    assert std == pytest.approx([float(pixels.std(correction=0))])


def test_one_expert_is_refused() -> None:
    with pytest.raises(L2DError, match="at least 2"):
        build(coverage=[1.0])


def test_noise_is_on_the_training_split_alone() -> None:
    clean, noisy = build(prices="coverage"), build(prices="coverage", noise=0.2)
    assert not torch.equal(clean.train.costs, noisy.train.costs)
    assert torch.equal(noisy.train.costs, build(prices="coverage", noise=0.2).train.costs)
    for name in ("validation", "test"):
        assert torch.equal(getattr(clean, name).costs, getattr(noisy, name).costs)


def test_experts_with_a_seed_of_their_own_are_shared_by_the_runs() -> None:
    """So is the validation split: what experts have learned from must not become validation under another seed."""
    one, other = (build(experts=SyntheticExperts(seed=5), seed=seed) for seed in (0, 1))
    assert torch.equal(one.train.rows, other.train.rows)
    assert torch.equal(one.test.costs, other.test.costs)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"validation_fraction": 0.0}, "validation_fraction"),
        ({"validation_fraction": 1.5}, "validation_fraction"),
        ({"batch_size": 2}, "recipe.batch_size"),
    ],
)
def test_bad_values(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(L2DError, match=key):
        build(**changes)
