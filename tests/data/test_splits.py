"""Splits: classes in proportion, groups on one side, folds that cover every row once; over- and undersampling."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from l2d.data import splits
from l2d.data.arrays import Answers, Arrays, Panel, Seen, divided
from l2d.data.sheet import Sheet
from l2d.data.splits import draw_whole_groups, latest_rows, pooled, resample, split, stratified_split, with_test_fold
from l2d.utils.errors import ParameterError


def arrays(labels: Tensor, **more: Tensor) -> Arrays:
    inputs = torch.zeros(len(labels), 1)
    return Arrays(inputs, labels, inputs, labels, 3, **more)  # type: ignore[arg-type]


def test_drawn_rows_stay_those_of_finished_runs() -> None:
    """Of 12 rows of three classes; the last seed without classes, of which there are too many for a test side of two rows."""
    for labels, seed, held_out in (([0, 1, 2] * 4, 0, [0, 5, 10]), ([0, 1, 2] * 4, 7, [7, 8, 9]), ([0, 1, 2], 1, [0])):
        kept, held = stratified_split(torch.tensor(labels), 0.25, seed)
        assert held.tolist() == held_out
        assert sorted([*kept.tolist(), *held_out]) == list(range(len(labels)))


def test_a_class_of_one_row_is_drawn_like_the_others() -> None:
    with pytest.raises(ParameterError, match=r"^validation_fraction=0.9: .* 3 rows"):
        stratified_split(torch.tensor([0, 0, 0]), 0.9, seed=0)
    labels = torch.tensor([0] * 9 + [1])
    kept, held_out = split(arrays(labels), 0.2, seed=0)
    assert (len(kept), len(held_out)) == (8, 2)


def test_the_data_may_say_what_is_held_out() -> None:
    labels, held = torch.zeros(6, dtype=torch.int64), torch.tensor([4, 1])
    kept, held_out = split(arrays(labels, validation=held), 0.5, seed=0)
    assert (kept.tolist(), held_out.tolist()) == ([0, 2, 3, 5], [1, 4])
    with pytest.raises(ParameterError, match=r"^fold=1/2: .*already"):
        split(arrays(labels, validation=held), 0.5, seed=0, fold="1/2")
    with pytest.raises(ParameterError) as caught:
        split(arrays(torch.zeros(10, dtype=torch.int64)), 0.5, 0, "11/20")
    assert (caught.value.parameter, caught.value.value) == ("fold", "11/20")


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


def test_groups_that_are_rows_change_nothing() -> None:
    labels = torch.arange(100) % 4

    def draw(labels: Tensor) -> tuple[Tensor, Tensor]:
        return stratified_split(labels, 0.2, 3)

    for groups in (torch.arange(100), torch.randperm(100, generator=torch.Generator().manual_seed(0))):
        parts = zip(draw_whole_groups(draw, labels, groups), draw(labels), strict=True)
        assert all(torch.equal(one, other) for one, other in parts)
    assert splits.groups_of_equal_texts(["a b", "c", " a  b "]).tolist() == [0, 1, 0]


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
    ("times", "groups", "held_out"),
    [
        ([3, 1, 4, 2], None, [0, 2]),
        # Group 0 begins at 1, in its second row, so rows 3 and 4 are the latest. By its first (7), last (9) or mean time, or the
        # time of its last row, group 0 would be.
        ([7, 1, 9, 4, 5, 3], [0, 0, 0, 1, 2, 3], [3, 4]),
        ([7, 9, 1, 4, 5, 3], [0, 0, 0, 1, 2, 3], [3, 4]),
        ([5, 1, 2, 9], [1, 0, 1, 2], [0, 2, 3]),  # group 1 begins at 2; half of it would be held out, so all of it is
    ],
)
def test_a_group_has_the_time_of_its_earliest_row(
    times: list[float], groups: list[int] | None, held_out: list[int]
) -> None:
    fraction = 1 / 3 if len(times) == 6 else 1 / 2
    found = latest_rows(np.array(times, dtype=float), fraction, None if groups is None else torch.tensor(groups))
    assert found[1].tolist() == held_out
    assert found[0].tolist() == [row for row in range(len(times)) if row not in held_out]
    with pytest.raises(ParameterError, match=rf"^test_fraction=0.99: .*{len(times)} rows"):
        latest_rows(np.array(times, dtype=float), 0.99, None)


def test_one_group_of_all_rows_cannot_be_divided_by_time() -> None:
    with pytest.raises(ParameterError, match=r"^test_fraction=0.2: .*training"):
        latest_rows(np.arange(10.0), 0.2, torch.zeros(10))


@pytest.mark.parametrize(
    ("groups", "repeated"),
    [([0, 1, 1, 2, 3], ""), ([0, 1, 0, 0, 3], "2 of 2"), ([0, 0, 1, 0, 3], "1 of 2")],  # row 1 is for validation
)
def test_test_rows_with_the_text_of_a_training_row_are_counted(
    groups: list[int], repeated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = Sheet(Path("t.csv"), {"part": pa.chunked_array([["train", "val", "test", "test", "train"]])})
    parts: Any = splits.rows_of_split_column(sheet, "part", torch.tensor(groups))
    assert [rows.tolist() for rows in parts] == [[0, 1, 4], [2, 3], [1]]
    printed = capsys.readouterr().err
    assert repeated in printed
    assert bool(printed) == bool(repeated)


def table(n: int, groups: torch.Tensor | None = None) -> Arrays:
    """Row i is i everywhere: in its input, its errors, its prices, its category. Every third row is a test row."""
    rows = torch.arange(n)
    is_test = rows % 3 == 2
    numbers, inputs, labels = rows.double()[:, None], rows.float()[:, None].clone(), rows % 2
    answers = Answers(torch.cat([numbers, -numbers], dim=1), None, torch.cat([10 * numbers, numbers], dim=1))
    panel, names = Panel(("a", "b"), answers, answers[:0]), tuple(f"c{row}" for row in range(n))
    more = {"panel": panel, "groups": groups, "train_categories": names, "seen": Seen(features=("x",))}
    return divided(Arrays(inputs, labels, inputs[:0], labels[:0], 2, **more), rows[~is_test], rows[is_test])  # type: ignore[arg-type]


def check_rows(part: Any) -> None:
    """Each row still belongs to itself, on both sides."""
    for inputs, labels, answers, categories in (
        (part.train_inputs, part.train_labels, part.panel.train, part.train_categories),
        (part.test_inputs, part.test_labels, part.panel.test, part.categories),
    ):
        row = inputs[:, 0].long()
        assert torch.equal(labels, row % 2)
        assert torch.equal(answers.errors[:, 0].long(), row)
        assert torch.equal(answers.errors[:, 1].long(), -row)
        assert torch.equal(answers.prices[:, 0].long(), 10 * row)
        assert categories == tuple(f"c{one}" for one in row.tolist())


def test_all_rows_are_training_rows() -> None:
    both = table(11)
    whole = pooled(both)
    check_rows(whole)
    assert (len(whole.train_labels), len(whole.test_labels)) == (11, 0)
    assert torch.equal(whole.train_inputs, torch.cat([both.train_inputs, both.test_inputs]))
    named = replace(both, train_ids=np.array(["x", "y"]), ids=np.array(["z"]))
    assert np.array_equal(np.asarray(pooled(named).train_ids), ["x", "y", "z"])
    assert (whole.seen, whole.num_classes) == (both.seen, 2)


@settings(max_examples=20)
@given(st.integers(10, 60), st.integers(0, 5))
def test_every_row_is_held_out_once(n: int, seed: int) -> None:
    whole = pooled(table(n))
    held = []
    for number in range(1, 6):
        part, rows = with_test_fold(whole, f"{number}/5", seed)
        check_rows(part)
        assert torch.equal(part.test_inputs, whole.train_inputs[rows])
        assert not torch.isin(part.train_inputs, part.test_inputs).any()
        assert len(part.train_labels) + len(rows) == n
        assert n // 5 - 1 <= len(rows) <= n // 5 + 2
        held.append(rows)
    assert torch.equal(torch.cat(held).sort().values, torch.arange(n))
    assert torch.equal(whole.train_inputs, pooled(table(n)).train_inputs)  # which stay as they were


@given(st.integers(0, 5))
def test_groups_stay_together(seed: int) -> None:
    whole: Any = pooled(table(40, torch.arange(40) // 2))
    for number in range(1, 6):
        parts: Any = with_test_fold(whole, f"{number}/5", seed)
        part, rows = parts
        assert torch.equal(part.test_groups, whole.groups[rows])
        assert not torch.isin(part.groups, whole.groups[rows]).any()


def drawn(of: torch.Tensor, sampling: str, seed: int = 0) -> torch.Tensor:
    return resample(of, sampling, np.random.default_rng(seed))


def test_sampling_by_hand() -> None:
    """Group 0 has rows 0, 2, 3, group 2 row 1, group 1 none: over gives row 1 three times, under one row of each."""
    of = torch.tensor([0, 2, 0, 0])
    assert drawn(of, "over").tolist() == [0, 1, 1, 1, 2, 3]
    under = drawn(of, "under").tolist()
    assert len(under) == 2
    assert 1 in under
    of = torch.tensor([0] * 300 + [1] * 5)
    assert torch.bincount(drawn(of, "over"))[300:].min() > 30  # 60 each on average
    assert not torch.equal(drawn(of, "over", 0), drawn(of, "over", 1))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40).map(torch.tensor), st.integers(0, 99))
def test_groups_become_equal(of: torch.Tensor, seed: int) -> None:
    before = of.unique(return_counts=True)[1]
    over, under = drawn(of, "over", seed), drawn(of, "under", seed)
    assert of[over].unique(return_counts=True)[1].tolist() == [int(before.max())] * len(before)
    assert of[under].unique(return_counts=True)[1].tolist() == [int(before.min())] * len(before)
    assert {*over.tolist()} == {*range(len(of))}  # nothing is lost
    assert len({*under.tolist()}) == len(under)  # nothing comes twice
    assert over.tolist() == sorted(over.tolist())
    assert torch.equal(over, drawn(of, "over", seed))
