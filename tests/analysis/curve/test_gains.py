"""The figures of public benchmarks: by hand, against slow references, and what must hold for all curves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2d.analysis.curve.gains import aiq, gain_at_budget, gap_closed, price_saved
from l2d.analysis.curve.points import Point, area

CHEAP, MEDIUM, DEAR = (0.0, 0.6), (0.5, 0.5), (1.0, 0.2)
ENDS = (CHEAP, DEAR)
values = st.integers(0, 10).map(lambda tenths: tenths / 10)
curves = st.lists(st.tuples(values, values), min_size=1, max_size=6)


def test_aiq_by_hand() -> None:
    """Accuracies .4 at 0, .9 at .5, .8 at 1: the hull rises to .9 and stays there. (.65 + .9)/2 on average. The point (.25, .6) is
    below the line and (.75, .85) below the height, so they change nothing."""
    points = [(0.5, 0.1), (0.25, 0.4), (0.75, 0.15)]
    assert aiq(points, ENDS) == pytest.approx((0.65 + 0.9) / 2)
    assert aiq([], ENDS) == pytest.approx((0.4 + 0.8) / 2)
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


@given(curves)
def test_aiq_against_mixtures(points: list[Point]) -> None:
    assert aiq(points, ENDS) == pytest.approx(slow_aiq(points, ENDS), abs=2e-3)


@given(curves, st.tuples(values, values))
def test_more_points_never_lower_aiq(points: list[Point], another: Point) -> None:
    found, more, under_lines = aiq(points, ENDS), aiq([*points, another], ENDS), area(points, ENDS)
    assert found is not None
    assert more is not None
    assert under_lines is not None
    assert under_lines - 1e-9 <= found <= more + 1e-9
    assert 0.6 - 1e-9 <= found <= 1


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


@given(curves, values)
def test_the_best_model_alone_gains_nothing(points: list[Point], budget: float) -> None:
    """And a curve whose errors are all lower by d gains d more."""
    models = [CHEAP, MEDIUM, DEAR]
    affordable = min((error, price) for price, error in models if price <= budget)
    assert gain_at_budget([(affordable[1], affordable[0])], models, budget) == pytest.approx(0)
    found = gain_at_budget(points, models, budget)
    better = gain_at_budget([(price, error - 0.125) for price, error in points], models, budget)
    assert (found is None) == (better is None)
    if found is not None and better is not None:
        assert better == pytest.approx(found + 0.125)


def test_price_saved_and_share_of_the_oracles_gap_by_hand() -> None:
    """From (.2, .6) to (.6, .1) the error .2 is reached after four fifths, at .52. The strong model costs .8: 35 % are saved."""
    points = [(0.2, 0.6), (0.6, 0.1)]
    assert price_saved(points, (0.8, 0.2)) == pytest.approx(0.35)
    assert price_saved(points, (0.4, 0.2)) == pytest.approx(-0.3)
    assert price_saved(points, (0.8, 0.05)) is None
    assert price_saved(points, (0.0, 0.2)) is None
    assert gap_closed(0.03, 0.12) == pytest.approx(0.25)
    assert gap_closed(-0.03, 0.12) == pytest.approx(-0.25)
    assert [gap_closed(0.0, 0.0), gap_closed(None, 0.1), gap_closed(0.1, None)] == [None] * 3


@given(curves)
def test_the_strong_model_on_the_curve_never_costs_more(points: list[Point]) -> None:
    cheaper_or_equal = [*((price, error) for price, error in points if price < DEAR[0]), DEAR]
    saved = price_saved(cheaper_or_equal, DEAR)
    assert saved is not None
    assert -1e-9 <= saved <= 1
