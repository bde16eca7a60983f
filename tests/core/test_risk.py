"""An error rate that is kept with a confidence, over draws of the rows."""

from math import comb

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.core.guard import HeldOut
from l2d.core.prices import Prices
from l2d.core.risk import factors_by_spread, keep_error, last_kept, least_level, p_value, rows_needed
from l2d.utils.errors import ParameterError


def ones(k: int, n: int) -> torch.Tensor:
    return torch.cat([torch.ones(k), torch.zeros(n - k)])


@given(st.integers(1, 60), st.floats(0.01, 0.99), st.data())
def test_the_p_value_is_the_sum_of_the_binomial(n: int, level: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    slow = sum(comb(n, i) * level**i * (1 - level) ** (n - i) for i in range(k + 1))
    assert p_value(ones(k, n), level) == pytest.approx(slow, abs=1e-9)


def test_by_hand() -> None:
    """(1 − level)^n = 5 % for no error among n: the rule of three."""
    assert least_level(ones(0, 100), 0.95) == pytest.approx(1 - 0.05 ** (1 / 100), abs=1e-9)
    assert p_value(ones(0, 59), 0.05) < 0.05 < p_value(ones(0, 58), 0.05)
    # No skipping: the third would pass, but the second fails.
    errors = [ones(0, 59), ones(30, 59), ones(0, 59)]
    assert last_kept(errors, 0.05, 0.95) == 0
    assert last_kept(errors[1:], 0.05, 0.95) is None


@pytest.mark.parametrize("n", [30, 300])
def test_losses_between_0_and_1_keep_the_level(n: int) -> None:
    """At a true mean of the level, at most 5 % of the p-values are below 5 %."""
    rng = np.random.default_rng(0)
    drawn = torch.from_numpy(rng.beta(0.3, 1.2, (1_000, n)))
    assert np.mean([p_value(one, 0.2) <= 0.05 for one in drawn]) <= 0.05
    assert p_value(torch.full((n,), 0.01), 0.2) < 0.05


def held_out(rng: np.random.Generator, n: int) -> HeldOut:
    """Expert 1 is dear and errs in 5 %; expert 2 in x, which is what is expected."""
    x = torch.from_numpy(rng.random(n))
    expected = torch.stack([torch.full_like(x, 0.05), x], dim=1)
    errors = (torch.from_numpy(rng.random((n, 2))) < expected).double()
    return HeldOut(errors, expected, errors.mean(dim=0))


def test_the_promise_is_kept_over_draws_and_used() -> None:
    """Expert 2 gets rows with x < c = .05 + f(.3 − .1), so the error is c²/2 + .05(1 − c), known. Violated in at most 5 % of 100
    draws (three standard errors more), and not never."""
    rng, prices, broken, spent = np.random.default_rng(0), Prices(listed=(0.3, 0.1)), 0, 0.0
    for _ in range(100):
        point = keep_error(held_out(rng, 400), prices, 0.15, 0.95)
        c = min(0.05 + point.factor * 0.2, 1.0)
        broken += c**2 / 2 + 0.05 * (1 - c) > 0.15
        spent += point.spend / 100
    assert 0.005 < broken / 100 < 0.05 + 3 * (0.05 * 0.95 / 100) ** 0.5
    assert spent < 0.22  # of .3 for the best single expert; with the truth known, .198


def test_what_is_refused() -> None:
    rows, prices = held_out(np.random.default_rng(0), 200), Prices(listed=(0.3, 0.1))
    for wrong in (0.0, 1.0, float("nan")):
        with pytest.raises(ParameterError, match=r"^max_error"):
            keep_error(rows, prices, wrong, 0.95)
    with pytest.raises(
        ParameterError, match=r"^max_error=0.02: cannot be kept .*the least that can is 0\.\d+$"
    ) as caught:
        keep_error(rows, prices, 0.02, 0.95)
    least = float(str(caught.value).rsplit(" ", 1)[-1])
    assert keep_error(rows, prices, least, 0.95).max_error == least
    with pytest.raises(ParameterError, match=r"^max_error=0.1: needs rows"):
        keep_error(HeldOut(rows.errors * 3, rows.expected, rows.mean_errors), prices, 0.1, 0.95)


def test_factors_begin_without_prices() -> None:
    found = factors_by_spread(torch.tensor([0.1, 0.3]).double())
    assert found[0] == 0
    assert (found.diff() > 0).all()
    assert found[-1] * 0.2 == pytest.approx(4)
    assert rows_needed(0.0, 0.05, 0.95) == 59  # as above
    assert rows_needed(0.06, 0.05, 0.95) is None
    assert factors_by_spread(torch.ones(2).double()).tolist() == [0]


@pytest.mark.parametrize("price", [0.0, 1.03, 1.3])
def test_errors_that_were_taken_from_costs(price: float) -> None:
    """1 + 1.3 − 1.3 is not 1."""
    wrong = torch.stack([ones(5, 100), ones(30, 100)], dim=1).double() + price - price
    rows = HeldOut(wrong, torch.tensor([[0.05, 0.3]]).expand(100, 2).double(), wrong.mean(dim=0))
    point = keep_error(rows, Prices(listed=(price, 0.0)), 0.12, 0.95)
    assert point.error == pytest.approx(0.05)
    with pytest.raises(ParameterError, match=r"^max_error=0\.05: .*0\.1023"):  # Clopper and Pearson's bound
        keep_error(rows, Prices(listed=(price, 0.0)), 0.05, 0.95)


def test_no_number_of_rows_shows_the_mean_itself() -> None:
    assert rows_needed(0.08, 0.08 + 1e-17, 0.95) is None
    assert rows_needed(0.08, 0.08 * (1 + 1e-12), 0.95) is None


def test_equal_texts_count_once() -> None:
    """59 queries without an error, each five times: one vote each."""
    errors, groups = torch.zeros(295, 2).double(), torch.arange(59).repeat(5)
    rows = HeldOut(errors, errors, errors.mean(dim=0), groups=groups)
    assert keep_error(rows, Prices(listed=(0.1, 0.2)), 0.05, 0.95).max_error == 0.05
    with pytest.raises(ParameterError, match=r"^max_error=0\.049: .*\b59\b"):
        keep_error(rows, Prices(listed=(0.1, 0.2)), 0.049, 0.95)


def test_a_text_that_comes_often_counts_as_often() -> None:
    """199 right rows, and one text that comes 201 times and is always wrong: more than half of the rows are wrong."""
    errors = torch.cat([torch.zeros(199, 2), torch.ones(201, 2)]).double()
    groups = torch.cat([torch.arange(199), torch.full((201,), 199)])
    rows = HeldOut(errors, errors, errors.mean(dim=0), groups=groups)
    with pytest.raises(ParameterError, match=r"^max_error=0.3: "):
        keep_error(rows, Prices(listed=(0.3, 0.1)), 0.3, 0.95)


@pytest.mark.parametrize("repeats", [1, 5, 30])
def test_one_text_that_comes_often_costs_little(repeats: int) -> None:
    """770 different texts, 8 % of them wrong, and one that is right however often it comes."""
    errors = torch.zeros(770 + repeats, 2).double()
    errors[:62] = 1
    groups = torch.cat([torch.arange(770), torch.full((repeats,), 770)])
    rows = HeldOut(errors, errors, errors.mean(dim=0), groups=groups)
    assert keep_error(rows, Prices(listed=(0.3, 0.1)), 0.105, 0.95).max_error == 0.105
    with pytest.raises(ParameterError, match=r"^max_error=0\.06: "):
        keep_error(rows, Prices(listed=(0.3, 0.1)), 0.06, 0.95)


@given(st.integers(20, 400), st.floats(0, 0.3), st.floats(0.01, 0.4))
def test_more_rows_would_show_it(n: int, mean: float, level: float) -> None:
    """Where these rows do not show it, more are needed; and so many do."""
    needed, k = rows_needed(round(mean * n) / n, level, 0.95), round(mean * n)
    if needed is not None and p_value(ones(k, n), level) > 0.05:
        assert needed > n
        assert p_value(ones(int(np.ceil(k / n * needed - 1e-6)), needed), level) <= 0.05


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.floats(0.001, 0.999), st.data())
def test_any_groups_have_a_p_value(sizes: list[int], level: float, data: st.DataObject) -> None:
    """Also those that are exactly at the level, or hardly above it."""
    given_sizes = torch.tensor(sizes).double()
    wrong = torch.tensor([data.draw(st.integers(0, size)) for size in sizes]).double()
    assert 0 <= p_value(wrong, level, given_sizes) <= 1
    assert float(wrong.sum() / given_sizes.sum()) <= least_level(wrong, 0.95, given_sizes) <= 1
    assert p_value(torch.ones(10).double(), 0.5, torch.full((10,), 2.0).double()) == 1


def test_groups_keep_the_level() -> None:
    """Texts that are always wrong come three times as often as others: the rows' true error is 3·.1/(3·.1 + .9) = .25."""
    rng, below = np.random.default_rng(0), 0
    for _ in range(1_000):
        wrong = torch.from_numpy(rng.random(200) < 0.1).double()
        sizes = 1 + 2 * wrong
        below += p_value(wrong * sizes, 0.25, sizes) <= 0.05
    assert below / 1_000 <= 0.05 + 3 * (0.05 * 0.95 / 1_000) ** 0.5
