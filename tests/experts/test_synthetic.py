"""Right on their classes, uniform over all classes elsewhere, drawn once per seed."""

from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.data.arrays import Arrays, Panel
from l2d.experts.cache import Cache
from l2d.experts.partition import class_owners
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.experts.synthetic import SyntheticExperts, synthetic_predictions
from l2d.utils.seeding import stream


@given(st.integers(0, 999))
def test_always_right_at_home(seed: int) -> None:
    labels = torch.arange(10).repeat(20)
    owners = class_owners([0.4, 0.2, 0.2, 0.1, 0.1], 10)
    predictions = synthetic_predictions(labels, owners, stream(seed))
    for label, row in zip(labels.tolist(), predictions.tolist(), strict=True):
        assert row[int(owners[label])] == label
        assert all(0 <= guess < 10 for guess in row)


def test_uniform_and_independent_elsewhere() -> None:
    """Off its classes an expert is right 1 time in 10: the guess runs over all classes, its own too. 5 σ on 45,000 draws."""
    labels = torch.full((45_000,), 9)
    guesses = synthetic_predictions(labels, class_owners([0.9, 0.1], 10), stream(0))[:, 0]
    counts = torch.bincount(guesses, minlength=10)
    assert ((counts - 4500).abs() < 5 * (45_000 * 0.1 * 0.9) ** 0.5).all()
    predictions = synthetic_predictions(torch.full((5000,), 9), class_owners([0.5, 0.4, 0.1], 10), stream(0))
    agree = float((predictions[:, 0] == predictions[:, 1]).double().mean())
    assert 0.07 < agree < 0.13


def test_once_per_seed() -> None:
    labels = torch.arange(10).repeat(30)
    arrays = Arrays(labels, labels, labels, labels, num_classes=10)

    def draw(seed: int) -> Panel:
        request = ExpertRequest(arrays, torch.arange(300), [0.9, 0.1], seed, Cache(Path()), Path(), ComputeOptions())
        return SyntheticExperts().panel(request)

    one = draw(3)
    assert one.names == ("expert 1", "expert 2")
    assert one.coverage == (0.9, 0.1)
    assert torch.equal(one.train.errors, draw(3).train.errors)
    assert not torch.equal(one.train.errors, one.test.errors)
    assert not torch.equal(one.train.errors, draw(4).train.errors)
