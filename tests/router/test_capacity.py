"""Choices of a batch under capacities."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import l2d
from l2d.commands.route import read_capacity
from l2d.router.capacity import capacities
from l2d.utils.errors import L2DError, ParameterError

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(400, 1))
ERRORS = (RNG.random((400, 2)) < np.concatenate([np.full_like(X, 0.05), X], axis=1)).astype(float)


def test_who_gains_most_from_an_expert_gets_it() -> None:
    """Both cost the same, so expert 1 is wanted for all x above .05; it goes to the largest."""
    router = l2d.fit(X, errors=ERRORS, prices=[0.1, 0.1], method="linear", options={"progress": False}).at(raw=True)
    queries = np.linspace(0.1, 0.9, 50)[:, None]
    for limit, places in (("20%", 10), (13, 13), (0, 0)):
        found = router.route(queries, capacity={"expert 1": limit})
        assert [choice.expert == "expert 1" for choice in found] == [False] * (50 - places) + [True] * places
        assert all(choice.ranking[0] == choice.expert and len(choice.ranking) == 2 for choice in found)
    free = router.route(queries, capacity={"expert 1": 50})
    assert [choice.expert for choice in free] == [choice.expert for choice in router.route(queries)]


def test_queries_without_a_text_go_to_the_best_single_expert() -> None:
    texts, errors = [f"sum {k % 50}" for k in range(200)], np.tile([1.0, 0.0, 0.0], (200, 1))
    errors[::9] = [0, 1, 1]
    router = l2d.fit(texts, errors=errors, prices=[0.3, 0.01, 0.02], method="linear", options={"progress": False})
    best = router.experts[router.description.guard.best]
    found = router.route(["", "", "sum 3", ""], capacity={best: 3})
    assert sum(choice.expert == best for choice in found) == 3
    assert all(choice.expert != "expert 1" for choice in found if choice.unread)


def test_offsets_of_the_guard() -> None:
    """They do not draw a query without a text to another expert, and those of logits are not costs."""
    texts, errors = [f"sum {k % 50}" for k in range(200)], np.tile([1.0, 0.0, 0.0], (200, 1))
    options = {"progress": False, "recipe.epochs": 1}
    for method in ("linear", "one_vs_all"):
        router = l2d.fit(texts, errors=errors, method=method, options=options)
        guard = replace(router.description.guard, offsets=(0.3, 0.0, -0.3), constant=None, best=2)
        router = replace(router, description=replace(router.description, guard=guard))
        if method == "linear":
            assert [choice.expert for choice in router.route(["", "sum 3"], capacity={})][:1] == ["expert 3"]
        else:
            with pytest.raises(ParameterError, match=r"^capacity: .*raw"):
                router.route(["sum 3"], capacity={})


def test_a_promise_is_not_moved() -> None:
    router = l2d.fit(X, errors=ERRORS, prices=[0.1, 0.0], method="linear", options={"progress": False}).at(budget=0.05)
    with pytest.raises(ParameterError, match=r"^capacity: .*budget"):
        router.route(X, capacity={"expert 1": 50})


def test_shares_are_rounded_down_and_others_have_no_limit() -> None:
    assert capacities({"a": "33%", "b": 4.0}, ("a", "b", "c"), 10).tolist() == [3, 4, 10]
    assert read_capacity('{alice: 40, "large model": "10%"}') == {"alice": "40", "large model": "10%"}
    assert read_capacity("alice=40") == {"alice": "40"}
    with pytest.raises(L2DError, match=r"^--capacity=alice"):
        read_capacity("alice=1,alice=40")


@pytest.mark.parametrize(
    "given", [{"d": 4}, {"a": "101%"}, {"a": -1}, {"a": 1.5}, {"a": "many"}, {"a": 3, "b": 3, "c": 3}, {"a": "nan"}]
)
def test_what_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"^capacity\b") as caught:
        capacities(given, ("a", "b", "c"), 10)
    assert "\n" not in str(caught.value)
    assert all(name in str(caught.value) and str(limit) in str(caught.value) for name, limit in given.items())
    with pytest.raises(L2DError, match=r"^--capacity=alice"):
        read_capacity("alice")
    router = l2d.fit(X, errors=ERRORS, method="mild", options={"progress": False, "recipe.epochs": 1})
    with pytest.raises(ParameterError, match=r"^capacity: "):
        router.route(X[:4], capacity={"expert 1": 2})
