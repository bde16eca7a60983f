import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.data import arrays
from l2d.data.arrays import moved_to_the_front


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(1, 7))
def test_rows_move_to_the_front(kept: list[bool], at_a_time: int) -> None:
    rows, inputs = torch.tensor(kept).nonzero()[:, 0], torch.arange(3.0 * len(kept)).reshape(-1, 3)
    expected, before = inputs[rows], arrays.MOVED
    arrays.MOVED = at_a_time
    try:
        found = moved_to_the_front(inputs, rows)
    finally:
        arrays.MOVED = before
    assert torch.equal(found, expected)
    assert not len(rows) or found.data_ptr() == inputs.data_ptr()
