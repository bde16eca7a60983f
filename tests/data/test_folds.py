"""Every row of a table is a test row once."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from l2d.data.arrays import Answers, Arrays, Panel, Seen, divided
from l2d.data.folds import pooled, with_test_fold


def table(n: int, groups: torch.Tensor | None = None) -> Arrays:
    """Row i is i everywhere: in its input, its errors, its prices, its category. Every third row is a test row."""
    rows = torch.arange(n)
    is_test = rows % 3 == 2
    numbers, inputs, labels = rows.double()[:, None], rows.float()[:, None].clone(), rows % 2
    answers = Answers(torch.cat([numbers, -numbers], dim=1), None, torch.cat([10 * numbers, numbers], dim=1))
    panel, names = Panel(("a", "b"), answers, answers[:0]), tuple(f"c{row}" for row in range(n))
    more = {"panel": panel, "groups": groups, "train_categories": names, "seen": Seen(features=("x",))}
    return divided(Arrays(inputs, labels, inputs[:0], labels[:0], 2, **more), rows[~is_test], rows[is_test])  # type: ignore[arg-type]


def check_rows(arrays: Arrays) -> None:
    """Each row still belongs to itself, on both sides."""
    assert arrays.panel is not None
    for inputs, labels, answers, categories in (
        (arrays.train_inputs, arrays.train_labels, arrays.panel.train, arrays.train_categories),
        (arrays.test_inputs, arrays.test_labels, arrays.panel.test, arrays.categories),
    ):
        row = inputs[:, 0].long()
        assert torch.equal(labels, row % 2)
        assert torch.equal(answers.errors[:, 0].long(), row)
        assert torch.equal(answers.errors[:, 1].long(), -row)
        assert answers.prices is not None
        assert torch.equal(answers.prices[:, 0].long(), 10 * row)
        assert categories == tuple(f"c{one}" for one in row.tolist())


def test_all_rows_are_training_rows() -> None:
    arrays = table(11)
    whole = pooled(arrays)
    check_rows(whole)
    assert (len(whole.train_labels), len(whole.test_labels)) == (11, 0)
    assert torch.equal(whole.train_inputs, torch.cat([arrays.train_inputs, arrays.test_inputs]))
    assert (whole.seen, whole.num_classes) == (arrays.seen, 2)


@settings(max_examples=20)
@given(st.integers(10, 60), st.integers(0, 5))
def test_every_row_is_held_out_once(n: int, seed: int) -> None:
    whole = pooled(table(n))
    held = []
    for number in range(1, 6):
        arrays, rows = with_test_fold(whole, f"{number}/5", seed)
        check_rows(arrays)
        assert torch.equal(arrays.test_inputs, whole.train_inputs[rows])
        assert not torch.isin(arrays.train_inputs, arrays.test_inputs).any()
        assert len(arrays.train_labels) + len(rows) == n
        assert n // 5 - 1 <= len(rows) <= n // 5 + 2
        held.append(rows)
    assert torch.equal(torch.cat(held).sort().values, torch.arange(n))
    assert torch.equal(whole.train_inputs, pooled(table(n)).train_inputs)  # which stay as they were


@given(st.integers(0, 5))
def test_groups_stay_together(seed: int) -> None:
    whole = pooled(table(40, torch.arange(40) // 2))
    assert whole.groups is not None
    for number in range(1, 6):
        arrays, rows = with_test_fold(whole, f"{number}/5", seed)
        assert arrays.groups is not None
        assert arrays.test_groups is not None
        assert torch.equal(arrays.test_groups, whole.groups[rows])
        assert not torch.isin(arrays.groups, whole.groups[rows]).any()
