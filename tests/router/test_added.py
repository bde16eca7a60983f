"""Another expert for a simple router, from a few rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import l2d
from l2d.router.router import Router
from l2d.utils.errors import ParameterError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 2))
ERRORS = np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)  # each is right on one half
# The new expert is right where x_1 is large, whoever else is.
NEW = RNG.normal(size=(60, 2))
NEW_ERRORS = (NEW[:, 1] < 0.7).astype(float)
QUERIES = [[-1.0, -1.0], [1.0, -1.0], [0.0, 2.5]]


def fitted(method: str, **more: object) -> Router:
    return l2d.fit(X, errors=ERRORS, method=method, **{"options": {"progress": False}, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["knn", "clusters", "linear", "mix"])
def test_what_is_known_of_the_others_stays(method: str, tmp_path: Path) -> None:
    router = fitted(method, prices=[0.1, 0.1])
    more = router.with_expert("new", NEW, NEW_ERRORS, price=0.2)
    assert more.experts == ("expert 1", "expert 2", "new")
    assert router.experts == ("expert 1", "expert 2")
    pairs: Any = zip(router.route(QUERIES), more.route(QUERIES), strict=True)
    for before, after in pairs:
        assert {name: after.expected_costs[name] for name in router.experts} == pytest.approx(before.expected_costs)
        assert after.expected_prices == pytest.approx({"expert 1": 0.1, "expert 2": 0.1, "new": 0.2})
    more.save(tmp_path / "more")
    assert Router.load(tmp_path / "more").route(QUERIES) == more.route(QUERIES)


def test_the_new_one_gets_what_it_is_good_at() -> None:
    """It alone is right on all of the upper part; the price of the others makes it worth while."""
    more = fitted("knn", prices=[0.6, 0.6]).with_expert("new", NEW, NEW_ERRORS, price=0.0)
    rows = np.stack([np.zeros(50), np.linspace(1.5, 3, 50)], axis=1)
    assert np.mean([choice.expert == "new" for choice in more.route(rows)]) > 0.9


def test_with_fewer_rows_than_neighbours_all_of_them_count() -> None:
    """By hand: the mean over all thirty rows, wherever the query is."""
    assert 0.2 < NEW_ERRORS[:30].mean() < 0.9
    more = fitted("knn", options={"method.k": 50}).with_expert("new", NEW[:30], NEW_ERRORS[:30])
    for choice in more.route(QUERIES):
        assert (choice.expected_costs or {})["new"] == pytest.approx(NEW_ERRORS[:30].mean(), abs=1e-3)


def test_prices_that_differ_between_queries() -> None:
    prices = np.stack([0.1 + 0.05 * np.abs(X[:, 0]), np.full(400, 0.2)], axis=1)
    router = fitted("linear", prices=prices)
    added: Any = router.with_expert("new", NEW, NEW_ERRORS, price=0.05).route(QUERIES[:1])[0].expected_prices
    before: Any = router.route(QUERIES[:1])[0].expected_prices
    assert (added["new"], added["expert 2"]) == pytest.approx((0.05, before["expert 2"]))
    paid = [router.with_expert("new", NEW, NEW_ERRORS, price=price).route(QUERIES[:1])[0] for price in (0.0, 0.3)]
    free, dear = ((choice.expected_costs or {})["new"] for choice in paid)
    assert dear - free == pytest.approx(0.3, abs=1e-6)
    # A list of prices takes their place.
    more = router.at([0.05, 0.2]).with_expert("new", NEW, NEW_ERRORS, price=0.5)
    choice: Any = more.route(QUERIES[:1])[0]
    parts = {name: choice.expected_costs[name] - choice.expected_errors[name] for name in more.experts}
    assert parts == pytest.approx({"expert 1": 0.05, "expert 2": 0.2, "new": 0.5}, abs=1e-6)
    with pytest.raises(ParameterError, match=r"^budget: no rows"):
        router.with_expert("new", NEW, NEW_ERRORS, price=0.1).within(0.1)


def test_a_budget_is_not_dropped_without_a_word(tmp_path: Path) -> None:
    router = fitted("knn", prices=[0.05, 0.2])
    router.within(0.08).save(tmp_path / "saved")
    saved = Router.load(tmp_path / "saved")
    for inside in (saved, replace(saved, operating_point=None)):  # an earlier l2d kept the factor alone
        with pytest.raises(ParameterError, match=r"^name=new: .*budget"):
            inside.with_expert("new", NEW, NEW_ERRORS, price=0.2)
    assert router.with_expert("new", NEW, NEW_ERRORS, price=0.2).operating_point is None


def test_without_prices_the_new_one_has_none_unless_they_were_given_later() -> None:
    router = fitted("knn", prices=[0.1, 0.1], options={"cost.scale": 0})
    for one, prices in ((router, (0.0, 0.0, 0.0)), (router.at([0.1, 0.2]), (0.1, 0.2, 0.3))):
        assert one.with_expert("new", NEW, NEW_ERRORS, price=0.3).description.prices == pytest.approx(prices)


def test_what_is_refused() -> None:
    router = fitted("knn", prices=[0.1, 0.2])
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "expert 1"}, "^name=expert 1: .*already"),
        ({"name": " Expert  2 "}, "^name= Expert  2 : .*already"),
        *(({"price": wrong}, "^price: ") for wrong in (None, -1.0, float("nan"), float("inf"), "x")),
        ({"errors": NEW_ERRORS[:5]}, "^errors: .*10.* 5 for 60"),
        ({"errors": NEW_ERRORS * 3}, "^errors=3.0: .*1"),
    ]
    for given, said in cases:
        with pytest.raises(ParameterError, match=said):
            router.with_expert(**{"name": "new", "queries": NEW, "errors": NEW_ERRORS, "price": 0.1, **given})
    with pytest.raises(ParameterError, match=r"^name=new: .*trained"):
        fitted("cost_regression", options={"recipe.epochs": 1, "progress": False}).with_expert("new", NEW, NEW_ERRORS)
    by_label = l2d.fit(X, errors=ERRORS, labels=X[:, 0] > 0, method="linear_plugin", options={"progress": False})
    with pytest.raises(ParameterError, match=r"^name=new: cannot"):
        by_label.with_expert("new", NEW, NEW_ERRORS)
    more = router.with_expert("new", NEW, NEW_ERRORS, price=0.1)
    assert more.guard_note is None
    for prices in ([0.0, 0.0, 0.0], [0.1, 0.2, 0.1]):  # also its own
        with pytest.raises(ParameterError, match=r"^prices: no rows"):
            more.at(prices)
