"""Teams: a greedy choice and its comparison by hand."""

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

Bench = Callable[[str], ModuleType]


def test_the_greedy_choice_uses_up_the_best(bench: Bench) -> None:
    """The second row needs expert 1 more than the first did; the third may go to expert 1 only, who has no room."""
    costs = np.array([[0.1, 0.2], [0.1, 0.9], [0.1, 10.0]])
    assert bench("team").greedy(costs, np.array([1, 2])).tolist() == [0, 1, -1]


def test_less_is_a_share_of_the_first(bench: Bench) -> None:
    found = bench("team").less(np.array([[1, 0], [1, 1], [0, 0], [1, 1]]))
    assert (found["other"], found["value"]) == ("0.7500", "0.5000")
    low, high = (float(part) for part in found["interval"].split(" to "))
    # The differences 1, 0, 0, 0 have the mean 1/4 and the standard error 1/4.
    assert (low, high) == pytest.approx(((0.25 - 1.96 * 0.25) / 0.75, (0.25 + 1.96 * 0.25) / 0.75), abs=1e-3)
