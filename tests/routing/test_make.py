"""Objects from components."""

from typing import Any

from l2d.config import Component
from l2d.routing.make import make


class Parent:
    def __init__(self, *, costs: int, decision: str) -> None:
        self.costs, self.decision = costs, decision


class Child(Parent):
    def __init__(self, *, gamma: float, **others: Any) -> None:
        super().__init__(**others)
        self.gamma = gamma


def test_a_class_gets_of_what_is_offered_what_it_takes() -> None:
    one = make(Component("method", "one", f"{__name__}.Parent", {"decision": "argmax"}), costs=3, num_classes=2)
    assert (one.costs, one.decision) == (3, "argmax")


def test_a_class_with_open_arguments_gets_all_that_is_offered() -> None:
    """It hands them on to its parent."""
    one = make(Component("method", "one", f"{__name__}.Child", {"gamma": 0.5}), costs=3, decision="argmax")
    assert (one.gamma, one.costs, one.decision) == (0.5, 3, "argmax")
