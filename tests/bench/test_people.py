"""A second opinion: votes and tables by hand."""

from collections.abc import Callable
from types import ModuleType

import numpy as np

Bench = Callable[[str], ModuleType]


def test_votes_are_drawn_without_replacement(bench: Bench) -> None:
    votes = bench("people").drawn_votes(np.array([[2, 0, 1], [0, 3, 0]]))
    assert sorted(votes[0]) == [0, 0, 2]
    assert votes[1].tolist() == [1, 1, 1]


def test_labels_are_compared_at_the_same_error(bench: Bench) -> None:
    """Between (.4 labels, 6 %) and (.8, 2 %) the plan needs .6 for 4 %; one choice needs 1."""
    told = {"command": "c", "machine": "m", "versions": "v", "commit": "x", "n": "10", "network": "0.3"}
    each = [("auto", 1.0, 0.04), ("plan", 0.4, 0.06), ("plan", 0.8, 0.02)]
    rows = [told | {"method": method, "labels": str(labels), "error": str(error)} for method, labels, error in each]
    assert "| 4.00% | 1.000 | 0.600 | +40% |" in bench("people").table(rows)
