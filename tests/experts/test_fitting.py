"""What trained experts learn from, what they never see, and that their predictions are kept whole."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.experts.tiny_experts import experts, request
from torch import Tensor

from l2d.data.arrays import Arrays
from l2d.data.sets.digits import Digits
from l2d.experts import classifier
from l2d.experts.cache import Cache
from l2d.experts.classifier import Classifiers, deal_into_folds, expert_rows
from l2d.experts.partition import class_owners
from l2d.utils.seeding import stream


@pytest.mark.slow
@given(st.integers(0, 999), st.sampled_from([0.0, 0.01, 0.1, 1.0]), st.integers(0, 2))
def test_its_classes_and_a_fraction_of_the_others(seed: int, fraction: float, k: int) -> None:
    rng = np.random.default_rng(seed)
    labels = torch.from_numpy(rng.integers(0, 10, 700))
    train = torch.from_numpy(np.sort(rng.permutation(700)[:600]))
    owned = class_owners([0.7, 0.2, 0.1], 10) == k
    rows = expert_rows(labels, train, owned, fraction, stream(seed))
    assert rows.tolist() == sorted({*rows.tolist()})
    assert {*rows.tolist()} <= {*train.tolist()}
    own = {row for row in train.tolist() if owned[labels[row]]}
    assert own <= {*rows.tolist()}
    assert len(rows) - len(own) == round(fraction * (len(train) - len(own)))


@given(st.integers(2, 7), st.integers(0, 99))
def test_folds_are_a_partition(number: int, seed: int) -> None:
    train = torch.arange(3, 90)
    parts = deal_into_folds(train, number, stream(seed))
    assert torch.cat(parts).sort().values.tolist() == train.tolist()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_each_expert_has_the_configured_fraction_and_a_seed_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Tensor, int]] = []
    titles: list[str] = []

    class Noted(Classifiers):
        def answers(self, rows: Tensor, about: Tensor, ask_test: bool, seed: int, title: str) -> tuple[Tensor, Tensor]:
            asked.append((rows, seed))
            titles.append(title)
            return self.arrays.train_labels[about], self.arrays.test_labels[: None if ask_test else 0]

    monkeypatch.setattr(classifier, "Classifiers", Noted)
    arrays = Digits().load(Path())
    ask = request(tmp_path, arrays)
    experts("experts.fraction=0.5").panel(ask)
    whole = torch.bincount(arrays.train_labels[ask.train]).tolist()
    for (rows, _), known in zip(asked, (range(9), range(9, 10)), strict=True):
        others = sum(count for label, count in enumerate(whole) if label not in known)
        assert len(rows) == sum(whole) - others + round(0.5 * others)
    assert len({seed for _, seed in asked}) == 2
    assert titles == [f"expert {k} of 2 ({len(rows):,} rows)" for k, (rows, _) in enumerate(asked, start=1)]
    asked.clear()
    titles.clear()
    three = dataclasses.replace(ask, coverage=[0.4, 0.4, 0.2], cache=Cache(tmp_path / "three"))
    experts("experts.fraction=0.5", "experts.cross_fit=2").panel(three)
    assert len({seed for _, seed in asked}) == 3 * (1 + 2)
    whole_title = f"expert 1 of 3 ({len(asked[0][0]):,} rows)"
    assert titles[:3] == [whole_title, f"{whole_title}, fold 1 of 2", f"{whole_title}, fold 2 of 2"]
    nines = [{*rows[arrays.train_labels[rows] == 9].tolist()} for rows, _ in asked[::3]]
    assert nines[0] != nines[1]  # neither knows the class, and each has its own draw of it


@pytest.mark.slow
@pytest.mark.parametrize("cross_fit", [1, 2, 5])
def test_cross_fit_never_asks_about_a_row_it_trained_on(
    cross_fit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every training row is answered by the one classifier of its expert that did not have its fold; the rest by the full one."""
    asked: list[tuple[Tensor, Tensor, bool]] = []

    class Fake(Classifiers):
        def answers(self, rows: Tensor, about: Tensor, ask_test: bool, *_: Any) -> tuple[Tensor, Tensor]:
            asked.append((rows, about, ask_test))
            number = len(asked)
            return torch.full((len(about),), number), torch.full((360 if ask_test else 0,), number)

    monkeypatch.setattr(classifier, "Classifiers", Fake)
    arrays = Digits().load(Path())
    ask = request(tmp_path, arrays)
    panel: Any = experts(f"experts.cross_fit={cross_fit}").panel(ask)
    predictions = panel.train.predictions
    assert len(asked) == 2 * (1 + (cross_fit if cross_fit > 1 else 0))
    training = {*ask.train.tolist()}
    for number, (rows, about, full) in enumerate(asked, start=1):
        assert {*rows.tolist()} <= training
        k = (number - 1) * 2 // len(asked)
        answered = {*torch.nonzero(predictions[:, k] == number)[:, 0].tolist()}
        if full:
            wanted = {*range(len(predictions))} - (training if cross_fit > 1 else set())
            assert answered == wanted
        else:
            assert answered == {*about.tolist()}
            assert not {*rows.tolist()} & answered
            assert len(rows) > 0.5 * len([row for row in ask.train.tolist() if int(arrays.train_labels[row]) == 9])


@pytest.mark.slow
@pytest.mark.parametrize("classes", [256, 300])
def test_predictions_are_kept_whole_however_many_classes(
    classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte holds 256 classes; of 300, the last 44 would come back as other classes."""

    class Right(Classifiers):
        def answers(self, _: Tensor, about: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
            return self.arrays.train_labels[about], self.arrays.test_labels

    monkeypatch.setattr(classifier, "Classifiers", Right)
    labels = torch.arange(classes)
    arrays = Arrays(torch.zeros(2 * classes, 1), labels.repeat(2), torch.zeros(classes, 1), labels, classes)
    ask = dataclasses.replace(request(tmp_path, Digits().load(Path())), arrays=arrays, train=torch.arange(classes))
    for _ in ("made", "read"):
        panel: Any = experts().panel(ask)
        assert panel.test.predictions[:, 0].tolist() == list(range(classes))
        assert not panel.train.errors.any()
    kept = np.load(ask.cache.entry / "arrays.npz")["test"]
    assert kept.dtype == (np.uint8 if classes == 256 else np.uint16)  # no larger than needed


@pytest.mark.slow
def test_validation_rows_teach_nothing(tmp_path: Path) -> None:
    """With every validation image and label replaced, the experts say the same about all other rows."""
    whole = Digits().load(Path())
    arrays = dataclasses.replace(whole, train_inputs=whole.train_inputs[:400], train_labels=whole.train_labels[:400])
    ask = request(tmp_path / "one", arrays)
    one: Any = experts().panel(ask)
    held_out = torch.ones(len(arrays.train_labels), dtype=torch.bool).index_fill(0, ask.train, False)
    images, labels = arrays.train_inputs.clone(), arrays.train_labels.clone()
    images[held_out], labels[held_out] = 7, 9
    other_arrays = dataclasses.replace(arrays, train_inputs=images, train_labels=labels)
    cache = Cache(tmp_path / "other", "x", {"seed": 0})
    other: Any = experts().panel(dataclasses.replace(ask, arrays=other_arrays, cache=cache))
    assert torch.equal(one.train.predictions[ask.train], other.train.predictions[ask.train])
    assert torch.equal(one.test.errors, other.test.errors)
