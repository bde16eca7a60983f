"""The value of a router by a log, against estimates done by hand, and logs that cannot say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.router.finished import CELLS, PRICED, untrained
from tests.server.helpers import text_run

import l2d
from l2d.analysis import log_value as module
from l2d.analysis.log_value import fresh_rows, log_value, rows_with_prices
from l2d.core.guard import HeldOut
from l2d.core.prices import PriceUnit
from l2d.logs.export import RunInputs
from l2d.logs.rows import LoggedRows
from l2d.router.router import Router
from l2d.utils.errors import L2DError

N = 90
PRICES = [0.5, 0.1, 0.3]


@pytest.fixture(scope="module")
def router() -> Router:
    """Sends negative numbers to a, positive ones to b, and nothing to c, which is always wrong."""
    X = np.random.default_rng(5).normal(size=(200, 2))
    errors = np.stack([X[:, 0] > 0, X[:, 0] <= 0, np.ones(200)], axis=1).astype(float)
    found = l2d.fit(X, errors=errors, prices=PRICES, experts=list("abc"), method="linear", options={"progress": False})
    return replace(found, raw=True)


def logged(router: Router, seed: int = 0, **other: Any) -> Any:
    """Each expert drawn with its own chance, whatever the query is."""
    rng = np.random.default_rng(seed)
    chances = np.array([0.5, 0.2, 0.3])
    drawn = rng.choice(3, N, p=chances)
    parts = {"ids": np.arange(N).astype(str), "experts": np.array(router.experts)[drawn]}
    parts |= {
        "errors": rng.random(N).round(2),
        "prices": np.array(PRICES)[drawn],
        "latencies": rng.random(N),
        "scales": np.full(N, np.nan),
    }
    parts |= {"propensities": chances[drawn], "features": rng.normal(size=(N, 2)).astype(np.float32)}
    rest = {"texts": None, "columns": ("1", "2"), "embedded": False, "about": None}
    return LoggedRows("log.sqlite", **{**parts, **rest, **other})


def test_values_by_hand(router: Router, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the regression at 1/2 everywhere: doubly robust is the mean of 1/2 + 1[asked is chosen]·(cost − 1/2)/propensity, SNIPS the
    weighted mean of the costs where the asked expert is the chosen one."""
    rows = logged(router)
    monkeypatch.setattr(module, "expected_by", lambda _, known: torch.full_like(known, 0.5))
    found: Any = log_value(router, rows)
    costs = rows.errors + rows.prices
    chosen = np.array([choice.expert for choice in router.route(rows.features)])
    assert {*chosen} == {"a", "b"}

    def robust(choices: np.ndarray) -> np.ndarray:
        return 0.5 + (rows.experts == choices) * (costs - 0.5) / rows.propensities

    singles = zip(found.singles, (np.full(N, name) for name in router.experts), strict=True)
    for value, choices in ((found.router, chosen), *singles):
        same = rows.experts == choices
        expected, error = robust(choices).mean(), robust(choices).std(ddof=1) / N**0.5
        assert value.doubly_robust.value == pytest.approx(expected)
        assert value.doubly_robust.standard_error == pytest.approx(error)
        weights = 1 / rows.propensities[same]
        assert value.snips.value == pytest.approx((weights * costs[same]).sum() / weights.sum())
        assert value.asked == same.sum()
        if value.gain is not None:
            gains = robust(choices) - robust(chosen)
            assert value.gain.value == pytest.approx(gains.mean())
            assert value.gain.standard_error == pytest.approx(gains.std(ddof=1) / N**0.5)
    assert found.ran.doubly_robust.value == pytest.approx(costs.mean())
    assert found.ran.gain.value == pytest.approx((costs - robust(chosen)).mean())
    assert found.best_single.doubly_robust.value == min(one.doubly_robust.value for one in found.singles)
    assert (found.router.gain, found.ran.snips, found.unknown) == (None, None, [])
    prices = 0.5 + (rows.experts == chosen) * (rows.prices - 0.5) / rows.propensities
    assert found.price.value == pytest.approx(prices.mean())
    assert found.price.standard_error == pytest.approx(prices.std(ddof=1) / N**0.5)


def test_the_regression_learns_from_other_rows(router: Router) -> None:
    """If costs follow from the inputs, the regression knows them, and the estimate is more certain than SNIPS."""
    rows = logged(router)
    rows = logged(router, errors=2 + 0.3 * rows.features[:, 0].astype(float), prices=np.zeros(N))
    found: Any = log_value(router, rows)
    truth = rows.errors.mean()  # the same for every expert
    for one in (found.router, *found.singles):
        assert one.doubly_robust.standard_error < one.snips.standard_error
        assert abs(one.doubly_robust.value - truth) < 0.03


@pytest.mark.slow
def test_prices_count_as_the_run_counts_them(router: Router, tmp_path: Path) -> None:
    def ran(router: Router, rows: LoggedRows, own: bool = False) -> float:
        return log_value(router, rows, own_prices=own).ran.doubly_robust.value

    rows = logged(router)
    error, price = rows.errors.mean(), rows.prices.mean()
    assert ran(router, rows) == pytest.approx(error + price)
    dear = logged(router, prices=rows.prices * 3)
    assert ran(router, dear) == pytest.approx(error + 3 * price)  # what was paid, not what was expected
    assert ran(router.at(PRICES), dear, own=True) == pytest.approx(error + price, rel=1e-6)
    unknown = rows.prices.copy()
    unknown[::2] = np.nan
    known = ran(router, logged(router, prices=unknown))
    assert known == pytest.approx(error + price, rel=1e-6)  # the router knows them
    for given, expected in ((["cost=error"], error), ([*PRICED, "cost.error_price=0.5"], error + 2 * price)):
        other = untrained(tmp_path, "dataset.features=[x,y]", *given, "method=cost_regression")
        assert ran(Router.load(other.path), logged(router, columns=("x", "y"))) == pytest.approx(expected)


@pytest.mark.slow
def test_what_the_choices_cost(router: Router, tmp_path: Path) -> None:
    """In the unit of the prices in training, whatever a wrong answer costs. If each expert has one price, it follows from the
    choices alone: a costs 0.5, b 0.1."""
    rows = logged(router)
    chosen = router.decide(rows.features).tolist()
    found: Any = log_value(router, rows)
    assert found.price.value == pytest.approx(np.array(PRICES)[chosen].mean(), rel=1e-5)
    assert found.paid.value == pytest.approx(rows.prices.mean())
    for given in ("cost.error_price=0.5", "cost.scale=3"):
        run = untrained(tmp_path, "dataset.features=[x,y]", *PRICED, given, "method=cost_regression")
        other = Router.load(run.path)
        found = log_value(other, logged(router, columns=("x", "y")))
        expected = np.array(PRICES)[other.decide(rows.features).tolist()].mean()
        assert found.price.value == pytest.approx(expected, rel=1e-5)
        assert found.paid.value == pytest.approx(rows.prices.mean())
    for free in (["cost=error"], [*PRICED, "cost.scale=0"]):
        other = Router.load(untrained(tmp_path, "dataset.features=[x,y]", *free, "method=cost_regression").path)
        found = log_value(other, logged(router, columns=("x", "y")))
        assert (found.price, found.paid) == (None, None)


@pytest.mark.slow
def test_prices_of_rows(tmp_path: Path, router: Router) -> None:
    """cost=columns: those of the log, and what its seconds cost; there is no other price to take, so rows without them are left
    out."""
    prices = {f"price_{name}": [1.0] * 80 for name in "abc"}
    cells = {**CELLS, **prices, **{f"latency_{name}": [2.0] * 80 for name in "abc"}}
    given = ["dataset.features=[x,y]", "cost=columns", "cost.latency_price=0.1", "method=cost_regression"]
    own = Router.load(untrained(tmp_path, *given, cells=cells).path)
    rows = logged(router, columns=("x", "y"))
    costs = rows.errors + rows.prices + 0.1 * rows.latencies
    assert log_value(own, rows).ran.doubly_robust.value == pytest.approx(costs.mean())
    some, late = rows.prices.copy(), rows.latencies.copy()
    some[:20] = late[15:30] = np.nan
    left, number = rows_with_prices(logged(router, columns=("x", "y"), prices=some, latencies=late), own)
    assert (number, left.ids.tolist()) == (30, rows.ids[30:].tolist())
    assert log_value(own, left).ran.doubly_robust.value == pytest.approx(costs[30:].mean())
    with pytest.raises(L2DError, match="price and a latency"):
        rows_with_prices(logged(router, columns=("x", "y"), prices=np.full(N, np.nan)), own)
    # A list of prices contains no latency, neither the router's own nor the log's; and no row needs one.
    held_out = HeldOut(torch.rand(9, 3), torch.rand(9, 3), torch.rand(3), expected_prices=torch.ones(9, 3))
    listed = replace(own, held_out=held_out).at(PRICES)
    assert log_value(listed, rows).ran.doubly_robust.value == pytest.approx((rows.errors + rows.prices).mean())
    assert rows_with_prices(logged(router, columns=("x", "y"), latencies=late), listed)[1] == 0
    for plain in (["cost=error"], PRICED):  # no price is needed, or the router has one
        other = untrained(tmp_path, "dataset.features=[x,y]", *plain, "method=cost_regression")
        assert rows_with_prices(logged(router, prices=some), Router.load(other.path))[1] == 0


def test_rows_that_trained_the_router_are_left_out(router: Router, tmp_path: Path) -> None:
    rows = logged(router)
    assert fresh_rows(rows, tmp_path) == (rows, 0)  # a saved router does not say
    np.savez(tmp_path / "test.npz", ids=rows.ids)  # of test rows
    assert fresh_rows(rows, tmp_path)[1] == 0
    np.savez(tmp_path / "test.npz", train_ids=np.array(["3", "5", "none of these"]))
    left, number = fresh_rows(rows, tmp_path)
    assert (number, len(left)) == (2, N - 2)
    assert not {"3", "5"} & {*left.ids.tolist()}
    assert len(left.features) == N - 2  # type: ignore[arg-type]
    np.savez(tmp_path / "test.npz", train_ids=np.arange(N))
    with pytest.raises(L2DError, match="ids"):
        fresh_rows(rows, tmp_path)


def test_experts_that_were_hardly_asked(router: Router) -> None:
    """c is never chosen, so its value is not needed; b's is."""
    rows = logged(router)
    found = log_value(router, logged(router, experts=np.where(rows.experts == "c", "a", rows.experts)))
    assert found.unknown == ["c"]
    assert [one.name for one in found.singles] == ["always a", "always b"]
    with pytest.raises(L2DError, match=r"b .* 10 of 90 rows"):
        log_value(router, logged(router, experts=np.where(rows.experts == "b", "a", rows.experts)))


@pytest.mark.slow
def test_logs_of_another_router(router: Router, tmp_path: Path) -> None:
    rows = logged(router)
    texts = Router.load(text_run(tmp_path).path)
    about = RunInputs(router.experts, (2,), router.description.seen, None, PriceUnit(1.0))
    assert log_value(router, logged(router, about=about)).router.asked
    other = RunInputs(router.experts, (2,), router.description.seen, {"name": "another"}, PriceUnit(1.0))
    for bad, said in (
        (logged(router, experts=np.full(N, "z")), r" z .*\(a, b, c\)"),
        (logged(router, features=np.zeros((N, 3), np.float32)), "--keep text"),
        (logged(router, columns=("x", "y")), "--keep text"),
        (logged(router, about=other), "--keep text"),
        (logged(router, features=None, texts=np.full(N, "how", object)), "texts"),
    ):
        with pytest.raises(L2DError, match=said):
            log_value(router, bad)
    with pytest.raises(L2DError, match="text prompt"):
        log_value(texts, rows)
    words = np.array([f"how many apples of {place}" for place in range(N)], dtype=object)
    assert log_value(texts, logged(router, features=None, texts=words)).router.doubly_robust.value > 0
