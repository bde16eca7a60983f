"""The parts of a curve: by hand, against slow references, and what must hold whatever the outcomes are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2d.analysis.curve import points as pt
from l2d.analysis.curve.points import (
    Floats,
    Point,
    aiq,
    area,
    benchmark_figures,
    gain_at_budget,
    least_decisions,
    multipliers,
    point,
    price_saved,
    price_to_reach,
    singles,
)

# A strong model at 1 that is right on three of four, a weak one at 0.2 that is right on two.
ERRORS = np.array([[0.0, 1.0], [0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
PRICES = np.array([1.0, 0.2])


def test_points_by_hand() -> None:
    """To strong, weak, strong, weak: prices 1 + .2 + 1 + .2 over 4, no errors."""
    assert point(np.array([0, 1, 0, 1]), ERRORS, PRICES) == pytest.approx((0.6, 0))
    models = singles(ERRORS, PRICES)
    assert models == [(1.0, 0.25), (0.2, 0.5)]
    assert pt.strong_of(models) == 0
    assert pt.ends_of(models) == ((0.2, 0.5), (1.0, 0.25))
    assert pt.ends_of([(1.0, 0.3), (1.0, 0.2), (0.1, 0.9), (0.1, 0.8)]) == ((0.1, 0.8), (1.0, 0.2))
    assert pt.strong_of([(1.0, 0.2), (0.5, 0.2), (0.5, 0.2)]) == 1
    prices = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 8.0], [0.0, 0.0]])
    assert point(np.array([0, 0, 1, 1]), ERRORS, prices) == (3.0, 0.25)


def test_oracle_by_hand() -> None:
    """A small λ decides between the equally good alone: the weak model where it is right. Beyond 1/(1 − .2) it is always the weak."""
    assert least_decisions(ERRORS, PRICES, 0.01).tolist() == [0, 1, 0, 1]
    assert least_decisions(ERRORS, PRICES, 1.24).tolist() == [0, 1, 0, 1]
    assert least_decisions(ERRORS, PRICES, 1.26).tolist() == [1, 1, 1, 1]
    grid = multipliers(PRICES)
    assert (grid[0] * 0.8, grid[-1] * 0.8) == (pytest.approx(1e-3), pytest.approx(1e3))
    assert grid[40] / grid[0] == pytest.approx(10)  # forty steps for each power of ten
    assert multipliers(np.array([0.5, 0.5]))[-1] == pytest.approx(1e3)


worlds = st.tuples(st.integers(1, 12), st.integers(2, 4), st.integers(0, 999))


def world(n: int, p: int, seed: int) -> tuple[Floats, Floats, np.random.Generator]:
    rng = np.random.default_rng(seed)
    prices = rng.integers(0, 11, p) / 10 if seed % 2 else rng.integers(0, 11, (n, p)) / 10
    return rng.integers(0, 2, (n, p)).astype(np.float64), prices, rng


@given(worlds, st.floats(1e-3, 100))
def test_no_routing_is_below_the_oracle(shape: tuple[int, int, int], multiplier: float) -> None:
    errors, prices, rng = world(*shape)
    price, error = point(least_decisions(errors, prices, multiplier), errors, prices)
    for _ in range(5):
        other = point(rng.integers(0, shape[1], shape[0]), errors, prices)
        assert error + multiplier * price <= other[1] + multiplier * other[0] + 1e-9
    costs = (errors + multiplier * np.broadcast_to(prices, errors.shape)).tolist()
    least = sum(min(row) for row in costs)
    assert error + multiplier * price == pytest.approx(least / shape[0])


def test_cascade_by_hand() -> None:
    """The cheapest model, the second, that is sure enough; where none is, the surest."""
    chances = np.array([[0.9, 0.7], [0.9, 0.4], [0.5, 0.3], [0.2, 0.2]])
    assert pt.cascade_decisions(chances, PRICES, 0.0).tolist() == [1, 1, 1, 1]
    assert pt.cascade_decisions(chances, PRICES, 0.6).tolist() == [1, 0, 0, 1]  # ties to the last, as routers decide
    assert pt.cascade_decisions(chances, PRICES, 0.7).tolist() == [1, 0, 0, 1]
    assert pt.cascade_decisions(chances, PRICES, 1.0).tolist() == [0, 0, 0, 1]
    many = np.arange(1.0, 51.0) % 2
    assert pt.cascade_decisions(np.ones((1, 50)), many, 0.5).tolist() == [1]  # the first of equal prices


def test_chances_undo_scale_and_prices() -> None:
    """E[c] = 2·(1 − σ(f)) with costs up to 2; σ(0) = 1/2: c = 1, of which .6 is the price: wrong with .4."""
    scores = np.array([[0.0, math.log(3)], [1e6, -1e6]])
    found = pt.chances_of(scores, 2.0, np.array([0.6, 0.1]))
    assert found[0].tolist() == pytest.approx([0.6, 1 - (0.5 - 0.1)])
    assert found[1].tolist() == [1, 0]
    assert pt.chances_of(scores, 1.0, np.zeros(2))[0].tolist() == pytest.approx([0.5, 0.75])


ENDS = ((0.2, 0.5), (1.0, 0.25))


def test_area_by_hand() -> None:
    """Between .2 and 1: without points the mean of .5 and .75. Through (.6, .05): two halves, means of .5, .95 and of .95, .75."""
    assert area([], ENDS) == pytest.approx(0.625)
    assert area([(0.6, 0.05)], ENDS) == pytest.approx((0.725 + 0.85) / 2)
    assert area([(0.6, 0.0), (0.6, 0.1)], ENDS) == pytest.approx((0.725 + 0.85) / 2)  # of one price: their mean
    assert area([(0.1, 0.9), (2.0, 0.0)], ENDS) == pytest.approx(0.625)  # outside, which prices of rows can bring
    assert area([(0.3, 0.1)], ((0.3, 0.5), (0.3, 0.2))) is None


def test_price_to_reach_by_hand() -> None:
    """Accuracy .5 at .2 and .9 at .6: .7 half way. Later points do not matter, and none is needed to stay there."""
    curve = [(0.6, 0.1), (0.2, 0.5), (0.9, 0.8)]
    assert price_to_reach(curve, 0.7) == pytest.approx(0.4)
    assert price_to_reach(curve, 0.9) == pytest.approx(0.6)
    assert price_to_reach(curve, 0.3) == pytest.approx(0.2)
    assert price_to_reach(curve, 0.91) is None


CHEAP, MEDIUM, DEAR = (0.0, 0.6), (0.5, 0.5), (1.0, 0.2)
BETWEEN = (CHEAP, DEAR)
values = st.integers(0, 10).map(lambda tenths: tenths / 10)
routes = st.lists(st.tuples(values, values), min_size=1, max_size=6)


def test_aiq_by_hand() -> None:
    """Accuracies .4 at 0, .9 at .5, .8 at 1: the hull rises to .9 and stays there. (.65 + .9)/2 on average. The point (.25, .6) is
    below the line and (.75, .85) below the height, so they change nothing."""
    points = [(0.5, 0.1), (0.25, 0.4), (0.75, 0.15)]
    assert aiq(points, BETWEEN) == pytest.approx((0.65 + 0.9) / 2)
    assert aiq([], BETWEEN) == pytest.approx((0.4 + 0.8) / 2)
    assert aiq([(0.3, 0.3)], ((0.5, 0.4), (0.5, 0.2))) is None
    # Points outside the range: one that is cheaper than all models counts from the cheapest price on, one that is dearer up to the dearest.
    assert aiq([(0.0, 0.1)], ((0.5, 0.6), (1.0, 0.2))) == pytest.approx(0.9)
    assert aiq([(1.0, 0.0)], ((0.0, 0.4), (0.5, 0.4))) == pytest.approx((0.6 + 0.8) / 2)


def slow_aiq(points: list[Point], ends: tuple[Point, Point]) -> float:
    """The best mixture of two points at each price of a fine grid; a mixture may also spend less than the price."""
    found = [*points, *ends]
    grid = np.linspace(ends[0][0], ends[1][0], 2001)
    best = np.zeros(len(grid))
    for one in found:
        for other in found:
            if one[0] <= other[0]:
                at = np.interp(grid, [one[0], other[0]], [1 - one[1], 1 - other[1]], left=-1)
                best = np.maximum(best, np.where(grid >= one[0], at, 0))
            if one[0] <= ends[0][0] + 1e-12:
                best = np.maximum(best, 1 - one[1])
    return float(np.trapezoid(np.maximum.accumulate(best), grid) / (grid[-1] - grid[0]))


@given(routes)
def test_aiq_against_mixtures(points: list[Point]) -> None:
    assert aiq(points, BETWEEN) == pytest.approx(slow_aiq(points, BETWEEN), abs=2e-3)


def test_gain_by_hand() -> None:
    """At .75, halfway between (.5, .3) and (1, .1), the error is .2, against .5 of the best model within the budget. The curve that
    ends at (.5, .3) has .3 there. At the budget of the dear model, .1 against its .2."""
    points, models = [(1.0, 0.1), (0.5, 0.3)], [CHEAP, MEDIUM, DEAR]
    assert gain_at_budget(points, models, 0.75) == pytest.approx(0.3)
    assert gain_at_budget(points[1:], models, 0.75) == pytest.approx(0.2)
    assert gain_at_budget(points, models, 1.0) == pytest.approx(0.1)
    assert gain_at_budget(points, models, 0.25) is None  # all points are dearer
    assert gain_at_budget([(0.0, 0.3)], [MEDIUM, DEAR], 0.25) is None  # all models are dearer
    # .1 + .2 is a little more than .3
    assert gain_at_budget([(0.1 + 0.2, 0.3)], [(0.3, 0.4)], 0.3) == pytest.approx(0.1)


def test_price_saved_and_share_of_the_oracles_gap_by_hand() -> None:
    """From (.2, .6) to (.6, .1) the error .2 is reached after four fifths, at .52. The strong model costs .8: 35 % are saved."""
    points = [(0.2, 0.6), (0.6, 0.1)]
    assert price_saved(points, (0.8, 0.2)) == pytest.approx(0.35)
    assert price_saved(points, (0.4, 0.2)) == pytest.approx(-0.3)
    assert price_saved(points, (0.8, 0.05)) is None
    assert price_saved(points, (0.0, 0.2)) is None
    # The oracle gains .2, the curves .05, −.05 and nothing that is known.
    drawn = {"oracle": [(1.0, 0.0)], "up": [(1.0, 0.15)], "down": [(1.0, 0.25)], "dear": [(1.5, 0.0)]}
    gaps = benchmark_figures(drawn, [CHEAP, DEAR], BETWEEN)["gap_closed"]
    assert gaps == {"oracle": 1, "up": pytest.approx(0.25), "down": pytest.approx(-0.25), "dear": None}
    for drawn in ({"up": [(1.0, 0.15)]}, {"up": [(1.0, 0.15)], "oracle": [DEAR]}):
        assert benchmark_figures(drawn, [CHEAP, DEAR], BETWEEN)["gap_closed"]["up"] is None
