"""Shares of right answers, by hand."""

import torch

from l2d.core.metrics import accuracy_by_expert

ERRORS = torch.tensor([[0, 1], [0, 0], [1, 0], [1, 1]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 2])


def test_on_its_own_classes_and_on_the_others() -> None:
    """Expert 1 knows class 0, expert 2 classes 1 and 2. A share of no rows is None."""
    knows = torch.tensor([[True, False, False], [False, True, True]])
    first, second = accuracy_by_expert(ERRORS, LABELS, knows)
    assert first == (1.0, 0.0, 0.5)
    assert second == (0.5, 0.5, 0.5)
    first, _ = accuracy_by_expert(ERRORS, LABELS, None)
    assert first == (None, None, 0.5)
    first, _ = accuracy_by_expert(ERRORS, LABELS, torch.ones_like(knows))
    assert first == (0.5, None, 0.5)
