"""What experts answered goes wherever their outcomes go."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from l2d.core.replies import Replies
from l2d.data.arrays import Answers, Arrays, Panel, divided
from l2d.data.splits import Split, pooled, with_test_fold


def replies(n: int, begin: int = 0) -> Replies:
    """Row i has the kinds [i, -1] and the signals i + 0.5."""
    rows = torch.arange(begin, begin + n)
    return Replies(
        torch.stack([rows, torch.full_like(rows, -1)], dim=1), (rows + 0.5)[:, None, None].expand(n, 2, 2).float()
    )


def answers(n: int, begin: int = 0) -> Answers:
    return Answers(torch.arange(begin, begin + n)[:, None].expand(n, 2).double(), replies=replies(n, begin))


def are_of(found: Answers, rows: Tensor) -> bool:
    """Whether outcomes and replies are of these rows, in this order."""
    assert found.replies is not None
    kinds, signals = found.replies.kinds[:, 0], found.replies.signals[:, 0, 0]
    return kinds.tolist() == found.errors[:, 0].tolist() == (signals - 0.5).tolist() == rows.tolist()


@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)))
def test_rows_that_repeat_and_rows_that_follow_others(first: list[int], second: list[int]) -> None:
    whole = answers(10)
    one, two = (torch.tensor(rows, dtype=torch.int64) for rows in (first, second))
    assert are_of(whole[one].followed_by(whole[two]), torch.cat([one, two]))


def test_replies_that_only_some_rows_have_are_dropped() -> None:
    found = answers(3).followed_by(Answers(torch.zeros(2, 2)))
    assert found.replies is None
    assert len(found.errors) == 5


def test_splits_and_folds_keep_the_replies_of_their_rows() -> None:
    n = 20
    panel = Panel(("one", "two"), answers(n), answers(0))
    labels = torch.zeros(n, dtype=torch.int64)
    whole = Arrays(torch.rand(n, 1), labels, torch.rand(0, 1), labels[:0], 0, panel=panel)
    train, test = torch.arange(n).tensor_split([15])
    part = divided(whole, train, test)
    assert part.panel is not None
    assert are_of(part.panel.train, train)
    assert are_of(part.panel.test, test)
    again = pooled(part)
    assert again.panel is not None
    assert are_of(again.panel.train, torch.arange(n))
    fold, held = with_test_fold(again, "2/5", 0)
    assert fold.panel is not None
    assert are_of(fold.panel.test, held)


def test_a_split_takes_the_replies_of_its_rows() -> None:
    rows = torch.arange(5)
    split = Split(torch.rand(5, 1), rows, answers(5), torch.zeros(5, 2).double(), torch.zeros(2).double(), rows)
    assert are_of(split.take(torch.tensor([4, 0, 0])).answers, torch.tensor([4, 0, 0]))
