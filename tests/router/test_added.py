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


def test_the_guards_fallback_stays_with_a_bad_newcomer() -> None:
    router = fitted("linear", prices=[0.1, 0.1])
    guard = replace(router.description.guard, offsets=None, constant=1)
    router = replace(router, description=replace(router.description, guard=guard))
    bad = router.with_expert("bad", NEW, np.ones(60), price=3.0)
    assert {choice.expert for choice in bad.route(X[:50])} == {"expert 2"}
    good = router.with_expert("good", NEW, np.zeros(60), price=0.0)
    assert "expert 1" not in {choice.expert for choice in good.route(X[:50])}
    with pytest.raises(ParameterError, match=r"^errors"):
        router.with_expert("words", NEW[:2], ["yes", "no"], price=0.1)
    with pytest.raises(ParameterError, match=r"^errors"):
        router.with_expert("two", NEW, np.zeros((60, 2)), price=0.1)


def test_with_many_outcomes_the_new_one_gets_what_it_is_good_at() -> None:
    """It alone is right on all of the upper part, which the others' chances do not say; their price makes it worth while."""
    asked = RNG.normal(size=(600, 2))
    more = fitted("knn", prices=[0.6, 0.6]).with_expert("new", asked, (asked[:, 1] < 0.7).astype(float), price=0.0)
    rows = np.stack([np.zeros(50), np.linspace(1.5, 3, 50)], axis=1)
    assert np.mean([choice.expert == "new" for choice in more.route(rows)]) > 0.9
    assert more.guard_note is None


def test_with_few_outcomes_it_borrows_from_the_others(tmp_path: Path) -> None:
    """Without any outcome it is as the one it is like; each wrong answer lowers its estimate, and caution falls with outcomes."""
    router = fitted("linear", prices=[0.1, 0.1])
    like = router.with_expert("new", price=0.2, like="expert 2")
    expected: Any = like.route(QUERIES[:1])[0].expected_errors
    assert expected["new"] == pytest.approx(expected["expert 2"], abs=0.06)
    alike = [router.with_expert("new", NEW[:n], np.ones(n), price=0.2, like="expert 2") for n in (5, 20, 40)]
    errors: Any = [one.at(raw=True).route(QUERIES[1:2])[0].expected_errors for one in (like, *alike)]
    assert sorted(one["new"] for one in errors) == [one["new"] for one in errors]
    wary = [-one.description.guard.offsets[-1] for one in (like, *alike)]  # type: ignore[index]
    assert sorted(wary, reverse=True) == wary
    assert like.guard_note is not None
    second = like.with_expert("another", NEW[:5], NEW_ERRORS[:5], price=0.1)
    second.save(tmp_path / "second")
    assert Router.load(tmp_path / "second").route(QUERIES) == second.route(QUERIES)
    later: Any = second.route(QUERIES[:1])[0].expected_errors
    assert later["new"] == pytest.approx(expected["new"])


def test_with_few_outcomes_its_price_counts() -> None:
    """Known experts at .1 and .2; the dear one is better. The same outcomes say more of a dear newcomer."""
    rng = np.random.default_rng(2)
    errors = (rng.random((400, 2)) < [0.6, 0.1]).astype(float)
    router = l2d.fit(X, errors=errors, prices=[0.1, 0.2], method="linear", options={"progress": False})
    cheap, dear = (
        router.with_expert("new", NEW[:2], [0.0, 1.0], price=price)
        .at(raw=True)
        .route(QUERIES)[0]
        .expected_errors["new"]  # type: ignore[index]
        for price in (0.1, 0.2)
    )
    assert dear < cheap - 0.05


def test_outcomes_of_the_others_on_the_same_queries_count() -> None:
    """If all others were wrong too, a wrong answer says less against it."""
    rng = np.random.default_rng(1)
    hard = rng.random(400) < 0.5  # nothing in X says so
    errors = np.stack([hard, hard], axis=1).astype(float)
    errors[rng.random((400, 2)) < 0.05] = 0.5
    router = l2d.fit(X, errors=errors, method="linear", options={"progress": False})
    asked, wrong = NEW[:10], np.ones(10)
    alone, beside = (
        router.with_expert("new", asked, wrong, others=others).at(raw=True).route(QUERIES)[0].expected_errors["new"]  # type: ignore[index]
        for others in (None, np.ones((10, 2)))
    )
    assert beside < alone
    more = router.with_expert("new", asked, wrong).with_expert("newer", asked, wrong, others=np.ones((10, 3)))
    assert len(more.experts) == 4


def test_known_experts_that_err_alike() -> None:
    errors = np.repeat((np.random.default_rng(0).random(400) < 0.5)[:, None], 2, axis=1).astype(float)
    router = l2d.fit(X, errors=errors, method="linear", options={"progress": False})
    more = router.with_expert("new", NEW[:10], np.ones(10), others=np.ones((10, 2)))
    assert more.experts[-1] == "new"


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
    with pytest.raises(ParameterError, match=r"^name=new: .*budget"):
        saved.with_expert("new", NEW, NEW_ERRORS, price=0.2)
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
        ({"errors": NEW_ERRORS[:5]}, "^errors: .* 5 for 60"),
        ({"like": "expert 3"}, "^like=expert 3: "),
        ({"queries": (), "errors": ()}, "^like: missing"),
        ({"others": np.ones((60, 3))}, "^others: "),
        ({"errors": NEW_ERRORS * 3}, "^errors=3.0: .*1"),
    ]
    for given, said in cases:
        with pytest.raises(ParameterError, match=said):
            router.with_expert(**{"name": "new", "queries": NEW, "errors": NEW_ERRORS, "price": 0.1, **given})
    with pytest.raises(ParameterError, match=r"^name=new: .*trained"):
        fitted("cost_regression", options={"recipe.epochs": 1, "progress": False}).with_expert("new", NEW, NEW_ERRORS)
    more = router.with_expert("new", NEW, NEW_ERRORS, price=0.1)
    for prices in ([0.0, 0.0, 0.0], [0.1, 0.2, 0.1]):  # also its own
        with pytest.raises(ParameterError, match=r"^prices: no rows"):
            more.at(prices)
