"""Splits: classes in proportion, groups on one side, folds that cover every row once."""

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split
from torch import Tensor

from l2d.data.arrays import Answers, Arrays, Panel
from l2d.data.sheet import Sheet
from l2d.data.splits import (
    draw_whole_groups,
    groups_of_equal_texts,
    rows_of_split_column,
    split,
    squeezed,
    stratified_split,
)
from l2d.utils.errors import ParameterError


def arrays(labels: Tensor, own: bool = False, **more: Tensor) -> Arrays:
    """own: a user's table, with experts in it."""
    inputs, answers = torch.zeros(len(labels), 1), Answers(torch.zeros(len(labels), 2))
    panel = Panel(("a", "b"), answers, answers) if own else None
    return Arrays(inputs, labels, inputs, labels, 3, panel=panel, **more)  # type: ignore[arg-type]


@given(st.integers(0, 999))
def test_stratified_split(seed: int) -> None:
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 20)
    kept, held = stratified_split(labels, 0.1, seed)
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(100))
    assert torch.bincount(labels[held]).tolist() == [5, 3, 2]
    again = stratified_split(labels, 0.1, seed)
    assert torch.equal(held, again[1])
    assert not torch.equal(held, stratified_split(labels, 0.1, seed + 1000)[1])


@given(
    labels=st.lists(st.integers(0, 4), min_size=4, max_size=120),
    fraction=st.sampled_from([0.05, 0.1, 0.2, 1 / 3, 0.37, 0.5]),
    seed=st.integers(0, 999),
    strict=st.booleans(),
)
def test_the_same_rows_as_scikit_learn(labels: list[int], fraction: float, seed: int, strict: bool) -> None:
    n, sizes = len(labels), np.unique(labels, return_counts=True)[1]
    held = math.ceil(fraction * n)
    by_class = len(sizes) <= min(held, n - held) and sizes.min() >= 2
    if strict and not by_class:
        with pytest.raises(ParameterError, match="needs a row on both sides"):
            stratified_split(torch.tensor(labels), fraction, seed)
        return
    given_classes = labels if by_class else None
    parts = train_test_split(np.arange(n), test_size=fraction, stratify=given_classes, random_state=seed)
    found = stratified_split(torch.tensor(labels), fraction, seed, strict=strict)
    assert [rows.tolist() for rows in found] == [sorted(rows.tolist()) for rows in parts]


def test_no_row_left_for_training() -> None:
    with pytest.raises(ParameterError, match="leaves none of 3 rows for training"):
        stratified_split(torch.tensor([0, 0, 0]), 0.9, seed=0)


def test_classes_are_kept_in_proportion_where_they_can_be() -> None:
    labels = torch.tensor([0] * 50 + [1] * 30 + [2] * 20)
    for strict, loose in zip(
        stratified_split(labels, 0.1, 5), stratified_split(labels, 0.1, 5, strict=False), strict=True
    ):
        assert torch.equal(strict, loose)


def test_a_class_of_one_row_is_refused_unless_the_table_is_the_users_own() -> None:
    labels = torch.tensor([0] * 9 + [1])
    with pytest.raises(ParameterError) as caught:
        split(arrays(labels), 0.2, seed=0)
    assert str(caught.value) == (
        "validation_fraction=0.2: each of 2 classes needs a row on both sides; there are 8 and 2 rows, and the smallest"
        " class has 1"
    )
    kept, held_out = split(arrays(labels, own=True), 0.2, seed=0)
    assert (len(kept), len(held_out)) == (8, 2)


def test_the_data_may_say_what_is_held_out() -> None:
    labels, held = torch.zeros(6, dtype=torch.int64), torch.tensor([4, 1])
    kept, held_out = split(arrays(labels, validation=held), 0.5, seed=0)
    assert (kept.tolist(), held_out.tolist()) == ([0, 2, 3, 5], [1, 4])
    with pytest.raises(ParameterError, match=r"^fold=1/2: .*already"):
        split(arrays(labels, validation=held), 0.5, seed=0, fold="1/2")


@given(st.integers(0, 99), st.integers(2, 7))
def test_every_row_is_held_out_in_one_fold_and_classes_are_even(seed: int, folds: int) -> None:
    labels = torch.arange(40) % 3
    parts = [split(arrays(labels), 0.5, seed, f"{number}/{folds}") for number in range(1, folds + 1)]
    held = torch.cat([held_out for _, held_out in parts])
    assert sorted(held.tolist()) == list(range(40))
    for kept, held_out in parts:
        assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(40))
        counts = torch.bincount(labels[held_out], minlength=3)
        assert int(counts.max() - counts.min()) <= 2
    again = split(arrays(labels), 0.5, seed + 1, f"1/{folds}")[1]
    assert not torch.equal(again, parts[0][1])


def test_folds_keep_groups_together() -> None:
    labels, groups = torch.arange(40) % 2, torch.arange(40) // 4
    for number in range(1, 5):
        kept, held_out = split(arrays(labels, groups=groups), 0.5, 3, f"{number}/4")
        assert not {*groups[kept].tolist()} & {*groups[held_out].tolist()}
        assert len(held_out)


def test_more_folds_than_rows() -> None:
    with pytest.raises(ParameterError) as caught:
        split(arrays(torch.zeros(10, dtype=torch.int64)), 0.5, 0, "11/20")
    assert (caught.value.parameter, caught.value.value) == ("fold", "11/20")


def test_groups_that_are_rows_change_nothing() -> None:
    labels = torch.arange(100) % 4

    def draw(labels: Tensor) -> tuple[Tensor, Tensor]:
        return stratified_split(labels, 0.2, 3)

    for groups in (torch.arange(100), torch.randperm(100, generator=torch.Generator().manual_seed(0))):
        parts = zip(draw_whole_groups(draw, labels, groups), draw(labels), strict=True)
        assert all(torch.equal(one, other) for one, other in parts)
    assert groups_of_equal_texts(["a b", "c", " a  b "]).tolist() == [0, 1, 0]


def test_groups_are_drawn_by_the_label_of_their_first_row() -> None:
    """Four groups of rows 0 1, 2, 3 4 and 5: their labels are those of rows 0, 2, 3 and 5."""
    asked: list[list[int]] = []

    def last(labels: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(labels.tolist())
        return torch.tensor([0, 1, 3]), torch.tensor([2])

    kept, held_out = draw_whole_groups(last, torch.tensor([7, 0, 8, 9, 0, 6]), torch.tensor([3, 3, 1, 0, 0, 2]))
    assert asked == [[7, 8, 9, 6]]
    assert (kept.tolist(), held_out.tolist()) == ([0, 1, 2, 5], [3, 4])


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ([0, 1, 1, 2, 3], ""),  # the text of a validation row
        ([0, 1, 0, 0, 3], "warning: split=part: 2 of 2 test rows have the text of a training row\n"),
        ([0, 0, 1, 0, 3], "warning: split=part: 1 of 2 test rows have the text of a training row\n"),
    ],
)
def test_only_test_rows_with_the_text_of_a_training_row_are_told(
    groups: list[int], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = Sheet(Path("t.csv"), {"part": pa.chunked_array([["train", "val", "test", "test", "train"]])})
    rows, test, validation = rows_of_split_column(sheet, "part", torch.tensor(groups))
    assert (rows.tolist(), test.tolist()) == ([0, 1, 4], [2, 3])
    assert validation is not None
    assert validation.tolist() == [1]
    assert capsys.readouterr().err == said


def test_a_text_that_needs_no_squeezing_is_no_copy() -> None:
    text = " ".join(["one", "text"])
    assert squeezed(text) is text
    assert squeezed(" one\n\ttext ") == "one text"
