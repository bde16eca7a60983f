"""Shares of right answers, by hand."""

import torch

from l2d.data.arrays import Answers
from l2d.experts.accuracy import ExpertAccuracy, accuracy_by_expert

ERRORS = torch.tensor([[0, 1], [0, 0], [1, 0], [1, 1]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 2])


def test_on_its_own_classes_and_on_the_others() -> None:
    """Expert 1 knows class 0, expert 2 classes 1 and 2."""
    knows = torch.tensor([[True, False, False], [False, True, True]])
    first, second = accuracy_by_expert(Answers(ERRORS), LABELS, knows)
    assert first == ExpertAccuracy(own=1.0, others=0.0, overall=0.5)
    assert second == ExpertAccuracy(own=0.5, others=0.5, overall=0.5)


def test_without_classes_of_their_own_only_overall() -> None:
    first, _ = accuracy_by_expert(Answers(ERRORS), LABELS, None)
    assert first == ExpertAccuracy(own=None, others=None, overall=0.5)


def test_no_row_of_a_kind() -> None:
    everything = torch.ones(2, 3, dtype=torch.bool)
    first, _ = accuracy_by_expert(Answers(ERRORS), LABELS, everything)
    assert first == ExpertAccuracy(own=0.5, others=None, overall=0.5)
