"""Sums and means by group, by hand."""

import torch

from l2d.core.groups import group_sums, smoothed_means

VALUES = torch.tensor([[1.0, 0.0], [0.0, torch.nan], [1.0, 1.0]])  # the second expert was not asked on the second row
MEMBER = torch.tensor([0, 0, 2])


def test_small_groups_are_near_the_overall_mean_and_unknown_values_do_not_count() -> None:
    sums, sizes = group_sums(MEMBER, VALUES, 3)
    assert sums.tolist() == [[1, 0], [0, 0], [1, 1]]
    assert sizes.tolist() == [[2, 1], [0, 0], [1, 1]]
    means = smoothed_means(MEMBER, VALUES, 3, torch.tensor([0.5, 1.0]))
    assert means.tolist() == [[1.5 / 3, 1 / 2], [0.5, 1.0], [1.5 / 2, 2 / 2]]
