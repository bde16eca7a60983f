"""Over- and undersampling by the cheapest expert."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.data.splits import resample

groups = st.lists(st.integers(0, 3), min_size=1, max_size=40).map(torch.tensor)


def draw(of: torch.Tensor, sampling: str, seed: int = 0) -> torch.Tensor:
    return resample(of, sampling, np.random.default_rng(seed))


def test_by_hand() -> None:
    """Group 0 has rows 0, 2, 3, group 2 row 1, group 1 none: over gives row 1 three times, under one row of each."""
    of = torch.tensor([0, 2, 0, 0])
    assert draw(of, "over").tolist() == [0, 1, 1, 1, 2, 3]
    under = draw(of, "under").tolist()
    assert len(under) == 2
    assert 1 in under
    of = torch.tensor([0] * 300 + [1] * 5)
    assert torch.bincount(draw(of, "over"))[300:].min() > 30  # 60 each on average
    assert not torch.equal(draw(of, "over", 0), draw(of, "over", 1))


@given(groups, st.integers(0, 99))
def test_groups_become_equal(of: torch.Tensor, seed: int) -> None:
    before = of.unique(return_counts=True)[1]
    over, under = draw(of, "over", seed), draw(of, "under", seed)
    assert of[over].unique(return_counts=True)[1].tolist() == [int(before.max())] * len(before)
    assert of[under].unique(return_counts=True)[1].tolist() == [int(before.min())] * len(before)
    assert {*over.tolist()} == {*range(len(of))}  # nothing is lost
    assert len({*under.tolist()}) == len(under)  # nothing comes twice
    assert over.tolist() == sorted(over.tolist())
    assert torch.equal(over, draw(of, "over", seed))
