"""Within a budget: by hand, by properties, and against a known truth."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from l2d.core.budget import OperatingPoint, bootstrap_weights, keep_within, spend_curve
from l2d.core.decisions import argmax_last
from l2d.core.guard import HeldOut
from l2d.core.prices import Prices
from l2d.utils.errors import ParameterError
from l2d.utils.seeding import stream

PRICES = torch.tensor([0.01, 0.001])
# The first expert is expected to be better by .5, .4, .3 and −.1: worth its price up to factors of .5/.009 = 55.6, 44.4, 33.3 and never.
EXPECTED = torch.tensor([[0.0, 0.5], [0.0, 0.4], [0.0, 0.3], [0.1, 0.0]]).repeat(25, 1)
ERRORS = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64).repeat(25, 1)
HELD_OUT = HeldOut(ERRORS, EXPECTED, ERRORS.mean(dim=0))


def kept_within(
    held_out: HeldOut, prices: torch.Tensor | None, budget: float, confidence: float | None = None,
    unit: float = 1.0, currency: str = "",
) -> OperatingPoint:  # fmt: skip
    """prices, budget: in units of one error, which costs `unit` in the money of the result."""
    listed = None if prices is None else tuple(prices.tolist())
    known = Prices(listed, scale=1 / unit, error_price=unit if currency else None)
    return keep_within(held_out, known, budget * unit, confidence)


def within(budget: float, confidence: float | None = None, held_out: HeldOut = HELD_OUT) -> OperatingPoint:
    return kept_within(held_out, PRICES, budget, confidence)


@pytest.mark.parametrize(
    ("budget", "factor", "spend", "error"),
    [
        (0.01, 1, (3 * 0.01 + 0.001) / 4, 0.0),  # the budget does not bind
        (0.007, 0.3 / 0.009, (2 * 0.01 + 2 * 0.001) / 4, 0.0),
        (0.0055, 0.3 / 0.009, (2 * 0.01 + 2 * 0.001) / 4, 0.0),
        (0.005, 0.4 / 0.009, (0.01 + 3 * 0.001) / 4, 0.25),
    ],
)
def test_by_hand(budget: float, factor: float, spend: float, error: float) -> None:
    """With three quarters to large .00775, with half .0055, with a quarter .00325."""
    found = within(budget)
    assert (found.factor, found.spend) == pytest.approx((factor, spend), rel=2e-4)
    assert (found.error, found.guard.constant, found.rows, found.budget) == (error, None, 100, budget)
    assert found.allowed == ((0, 1) if budget == 0.01 else (1,))  # large costs .01
    low, high = found.spend_interval
    assert low < spend < high


def test_the_fallback_is_within_the_budget() -> None:
    """Nothing is left but small for everyone, so the router is that expert. Large alone would be better, and is too dear."""
    found = within(0.002)
    assert (found.guard.constant, found.overspend) == (1, 0.0)
    assert found.spend == pytest.approx(0.001)
    assert found.spend_interval == pytest.approx((0.001, 0.001))
    assert found.error == 0.5
    worse = HeldOut(ERRORS, 1 - EXPECTED, ERRORS.mean(dim=0))  # it prefers the wrong expert
    assert within(0.02, held_out=worse).guard.constant == 0
    guard = within(0.009, held_out=worse).guard
    assert (guard.constant, guard.pays) == (1, False)
    # .25 + .3 is more than .5 + .001, so large is no fallback although it is right more often and the budget allows it.
    assert kept_within(worse, torch.tensor([0.3, 0.001]), 1.0).guard.constant == 1
    # The router expects large to cost nothing, so no factor keeps it from there.
    prices = PRICES.double().expand(100, 2)
    rows = replace(by_row(prices), expected_prices=torch.tensor([0.0, 0.001]).expand(100, 2))
    found = kept_within(rows, None, 0.002)
    assert found.guard.constant == 1
    assert found.spend == pytest.approx(0.001)
    assert found.error == 0.5
    assert found.guard.pays  # large is better, and too dear: not the rows but the budget is the reason


def test_a_guard_without_a_fallback_keeps_its_margin() -> None:
    """No single expert is within the budget, since prices differ between rows."""
    errors = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64).repeat(20, 1)
    prices = 0.1 + errors
    own = {"prices": prices, "expected_prices": prices, "mean_prices": prices.mean(dim=0)}
    rows = HeldOut(errors, errors, errors.mean(dim=0), **own, needed=1.0)
    found = kept_within(rows, None, 0.2).guard
    assert (found.constant, found.needed) == (None, 1.0)
    # It is compared with the cheapest expert, although the other errs less.
    dearer = replace(rows, prices=prices + torch.tensor([0.6, 0.0]), mean_errors=torch.tensor([0.1, 0.9]))
    assert kept_within(dearer, None, 0.5).guard.best == 1


def crossed(deployed: torch.Tensor, seen: torch.Tensor, held_out: HeldOut = HELD_OUT) -> HeldOut:
    """Judged by the routers of folds. deployed, seen: the errors that the router and they expect on the first rows, now learned."""
    m = len(deployed)
    of_rows: Any = {"deployed_prices": PRICES.expand(m, 2), "seen_prices": PRICES.expand(m, 2)}
    return replace(held_out, learned=torch.arange(m), deployed=deployed, seen=seen, **of_rows)


def test_the_router_that_is_deployed_must_keep_it() -> None:
    """It finds the first expert better everywhere, by .6: at .0055 half of the rows may go there, so none do."""
    held_out = crossed(torch.tensor([[0.0, 0.6]]).repeat(100, 1), EXPECTED)
    found = within(0.0055, held_out=held_out)
    assert found.factor > 0.6 / 0.009
    assert found.guard.constant == 1
    free = within(0.01, held_out=held_out)
    assert (free.factor, free.spend) == pytest.approx((1, 0.01))  # the routers of the folds would spend .00775
    assert "folds" in str(free)
    assert "folds" not in str(within(0.01))


def test_rows_that_routers_learned_by_heart_say_too_little() -> None:
    """All routers know of their own rows that small is right, and would spend .001 there. On rows that they did not see, those of
    the folds spend .00775, and so will the one that is deployed."""
    known = torch.tensor([[0.1, 0.0]]).repeat(100, 1)
    for confidence in (None, 0.9):
        found = within(0.0055, confidence, crossed(known, known))
        assert replace(found, crossed=False) == within(0.0055, confidence)


def test_by_hand_what_the_deployed_router_spends_more() -> None:
    """On 60 rows of 100 that both learned from. There the folds' routers send a half to large, .0055, and it sends three quarters,
    .00775, at first: .00225 more. At factors above 33.3 it sends none there, .001, and they a quarter, .00325: .00225 less. In a
    resample the rows have the weights that they have among the 100."""
    seen, deployed = EXPECTED.clone()[:60], torch.tensor([[0.0, 0.3]] * 3 + [[0.1, 0.0]]).repeat(15, 1)
    seen[::4] = torch.tensor([0.1, 0.0])
    curve = spend_curve(crossed(deployed, seen), PRICES)
    first, later = (int((curve.factors <= most).sum()) - 1 for most in (1, 0.35 / 0.009))
    assert float(curve.spend[first]) == pytest.approx(0.00775 + 0.00225)
    assert float(curve.spend[later]) == pytest.approx(0.0055 - (0.00325 - 0.001))
    counts = bootstrap_weights(stream(0, "budget"), 100)
    unseen = PRICES.double()[argmax_last(-(EXPECTED + PRICES))]
    more = torch.zeros(100, dtype=torch.float64)
    more[:60:4] = 0.009
    expected = [float(some @ unseen + (some[:60] @ more[:60]) / some[:60].sum()) for some in counts]
    assert curve.resampled[:, first].tolist() == pytest.approx(expected)


def test_nobody_spends_less_than_the_cheapest_expert_costs() -> None:
    """The folds' routers send one row of five to large wherever they learned, and the router that is deployed none: .0018 less."""
    none, some = torch.tensor([[0.1, 0.0]]).repeat(100, 1), torch.tensor([[0.0, 0.6]] + [[0.1, 0.0]] * 4).repeat(20, 1)
    held_out = crossed(none, some, replace(HELD_OUT, expected=none))
    with pytest.raises(ParameterError, match=r"^budget=0\.0005: .*0\.001"):
        within(0.0005, held_out=held_out)
    curve = spend_curve(held_out, PRICES)
    assert curve.spend.tolist() == pytest.approx([0.001] * len(curve.factors))
    assert float(curve.resampled.min()) == pytest.approx(0.001)
    assert float(curve.factors[-1]) > 0.6 / 0.009  # where no router sends a row to large


def test_few_rows_to_compare_on_say_nothing() -> None:
    """A quarter of the rows or fewer; some resamples have none of two."""
    large = torch.tensor([[0.0, 0.9]])
    for m in (0, 2, 25):
        found = within(0.01, held_out=crossed(large.repeat(m, 1), 1 - large.repeat(m, 1)))
        assert found.crossed
        assert replace(found, crossed=False) == within(0.01)
    assert within(0.01, held_out=crossed(large.repeat(26, 1), 1 - large.repeat(26, 1))).guard.constant is not None


def test_a_dearer_expert_that_was_expected_to_be_cheaper() -> None:
    """Paid .10 at first, and .12 where the router follows the prices that it expects. The folds' routers agree with it."""
    errors, expected = torch.tensor([[0.2, 0.3], [0.3, 0.2]]), torch.tensor([[0.115, 0.11], [0.11, 0.115]])
    paid = torch.tensor([[0.10, 0.12], [0.12, 0.10]], dtype=torch.float64)
    parts = [part.repeat(50, 1) for part in (errors, expected)]
    rows = HeldOut(ERRORS, parts[0], ERRORS.mean(dim=0), prices=paid.repeat(50, 1), expected_prices=parts[1])
    own: Any = {"deployed": parts[0], "seen": parts[0], "deployed_prices": parts[1], "seen_prices": parts[1]}
    judged = replace(rows, learned=torch.arange(100), **own)
    for held_out in (rows, judged):
        assert spend_curve(held_out, None).spend.tolist() == pytest.approx([0.10, 0.12, 0.12])


@pytest.mark.parametrize("judged_by_folds", [False, True])
def test_no_spend_is_negative(judged_by_folds: bool) -> None:
    """A doubly robust estimate may be. In every fourth row it is far below the price that was expected."""
    prices = torch.tensor([[0.01, 0.001]] * 3 + [[-0.1, -0.1]], dtype=torch.float64).repeat(25, 1)
    own: Any = vars(crossed(EXPECTED, EXPECTED)) if judged_by_folds else vars(HELD_OUT)
    own = {name: own[name] for name in ("learned", "deployed", "seen", "deployed_prices", "seen_prices")}
    rows: Any = {"prices": prices, "expected_prices": PRICES.expand(100, 2), "mean_prices": prices.mean(dim=0)}
    for held_out in (replace(HELD_OUT, **own, **rows), replace(HELD_OUT, expected=1 - EXPECTED, **own, **rows)):
        found = kept_within(held_out, None, 0.01)
        assert (found.spend, *found.spend_interval) == (0, 0, 0)


def test_money_is_told_in_its_own_unit() -> None:
    """One error costs 5 dollars: .0055 is .0275 dollars."""
    found = kept_within(HELD_OUT, PRICES, 0.0055, unit=5.0)
    assert (found.budget, found.spend) == pytest.approx((0.0275, 0.0275))
    for shown in ("budget 0.0275 ", "spend 0.0275 ", f" {found.error:.4f} ± {1.96 * found.error_se:.4f} ", "100 rows"):
        assert shown in str(found)
    dollars = kept_within(HELD_OUT, PRICES, 0.0055, unit=5.0, currency="$")
    low, high = dollars.spend_interval
    assert re.findall(r"\$[\d.]*\d", str(dollars)) == ["$0.0275", "$0.0275", f"${low:.4g}", f"${high:.4g}"]
    assert "one expert" in str(replace(dollars, guard=replace(dollars.guard, constant=1)))
    assert "latency" in str(replace(dollars, unit=Prices(latency_price=0.1)))
    with pytest.raises(ParameterError, match=r"^budget=0\.0025: .*0\.005"):
        kept_within(HELD_OUT, PRICES, 0.0005, unit=5.0)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_budgets_out_of_range(value: float) -> None:
    with pytest.raises(ParameterError, match="budget="):
        within(value, None)


def population(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.tensor([1.8, 0.9, 0.2]) + torch.randn(n, 3, generator=draw)
    errors = (torch.rand(n, 3, generator=draw) > torch.sigmoid(logits)).double()
    return errors, torch.sigmoid(-logits - 0.5 * torch.randn(n, 3, generator=draw))


LIST = torch.tensor([0.01, 0.003, 0.0005])


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 20), st.floats(0.0005, 0.012), st.sampled_from([None, 0.9]))
def test_the_spend_is_within_the_budget(seed: int, budget: float, confidence: float | None) -> None:
    errors, expected = population(80, seed)
    found = kept_within(HeldOut(errors, expected, errors.mean(dim=0)), LIST, budget, confidence)
    assert found.factor >= 1
    assert found.spend <= budget * (1 + 2e-6)
    assert confidence is None or found.overspend <= 1 - confidence + 1e-9
    if found.guard.constant is None:
        chosen = argmax_last(-(expected.double() + found.factor * LIST.double()))
        assert found.spend == pytest.approx(float(LIST.double()[chosen].mean()))
        assert found.error == pytest.approx(float(errors.gather(1, chosen[:, None]).mean()))


def test_a_router_in_32_bits_decides_the_same() -> None:
    """Where many rows have the same estimates, the factor lies next to where all of them change."""
    expected = torch.tensor([[0.123456, 0.3], [0.2, 0.7654321], [0.5, 0.1]]).repeat(50, 1)
    errors = (expected > 0.25).double()
    found = kept_within(HeldOut(errors, expected, errors.mean(dim=0)), PRICES, 0.005)
    single = argmax_last(-(expected + (PRICES * found.factor).float()))
    double = argmax_last(-(expected.double() + found.factor * PRICES.double()))
    assert torch.equal(single, double)
    assert float(PRICES[single].mean()) <= 0.005


@given(st.integers(0, 20))
def test_the_spend_falls_with_the_factor(seed: int) -> None:
    errors, expected = population(60, seed)
    spend = spend_curve(HeldOut(errors, expected, errors.mean(dim=0)), LIST).spend
    assert (spend.diff() <= 1e-12).all()
    assert float(spend[-1]) == pytest.approx(0.0005)


def test_prices_that_differ_between_rows() -> None:
    """By hand. Decided by expected prices, paid in real ones: large costs .02 where it was expected to cost .01."""
    paid = torch.tensor([0.02, 0.001])
    rows = replace(HELD_OUT, prices=paid.expand(100, 2), expected_prices=PRICES.expand(100, 2), mean_prices=paid)
    found = kept_within(rows, None, 0.011)
    assert found.factor == pytest.approx(0.3 / 0.009, rel=2e-4)
    assert found.spend == pytest.approx((2 * 0.02 + 2 * 0.001) / 4)
    with pytest.raises(ParameterError, match=r"^budget=0\.0005: .*0\.001"):
        kept_within(rows, None, 0.0005)
    # The same as one list, if all rows have the same prices.
    same = replace(rows, prices=PRICES.expand(100, 2), mean_prices=PRICES)
    assert kept_within(same, None, 0.007, 0.9) == kept_within(HELD_OUT, PRICES, 0.007, 0.9)
    # Each expert costs .001 on half of the rows and .011 on the others, .006 in the mean. Falling back is then no way out.
    prices = torch.tensor([[0.001, 0.011], [0.011, 0.001]], dtype=torch.float64).repeat(50, 1)
    rows = replace(HELD_OUT, prices=prices, expected_prices=prices, mean_prices=prices.mean(dim=0))
    found = kept_within(rows, None, 0.002)
    assert found.spend == pytest.approx(0.001)
    assert found.guard.constant is None
    with pytest.raises(ParameterError, match=r"^budget=\$0\.001: .*\$0\.002$"):
        kept_within(rows, None, 0.0005, unit=2.0, currency="$")


def test_the_deployed_routers_own_expectations_count() -> None:
    """It would send every row to large until the factor is 100: .01, and .00225 more than the folds' routers."""
    by_row: Any = {"prices": PRICES.expand(100, 2), "expected_prices": PRICES.expand(100, 2), "mean_prices": PRICES}
    rows = crossed(torch.tensor([[0.0, 0.9]]).repeat(100, 1), EXPECTED, replace(HELD_OUT, **by_row))
    assert kept_within(rows, None, 0.008).factor == pytest.approx(100, rel=2e-4)
    # Rows that were not seen cost twice what was expected: .0155, and .00225 more.
    dear = replace(rows, prices=2 * PRICES.expand(100, 2))
    assert kept_within(dear, None, 0.1).spend == pytest.approx(0.0155 + 0.00225)
    # The router expects lower prices of its own rows than the folds' routers did: .0001 less, at large.
    less = replace(rows, deployed_prices=PRICES.expand(100, 2) - torch.tensor([0.0001, 0.0]))
    assert kept_within(less, None, 0.1).spend == pytest.approx(0.00775 + 0.00225 - 0.0001)


def test_a_run_without_prices() -> None:
    with pytest.raises(ParameterError, match="budget: "):
        kept_within(HELD_OUT, None, 0.01)


def test_the_chance_agrees_with_the_interval() -> None:
    """Three quarters to large cost .00775 ± .0004: within .008 on these rows, but not surely."""
    found = within(0.008)
    assert (found.factor, found.spend) == pytest.approx((1, 0.00775))
    assert found.spend_interval[1] > 0.008
    assert found.overspend == pytest.approx(0.26, abs=0.05)
    sure = within(0.008, 0.95)
    assert sure.spend == pytest.approx(0.0055)
    assert sure.spend_interval[1] < 0.008
    assert sure.overspend == 0


def by_row(prices: torch.Tensor) -> HeldOut:
    """A router that prefers the wrong expert, at prices that differ between rows."""
    own = {"prices": prices, "expected_prices": prices, "mean_prices": prices.mean(dim=0)}
    return HeldOut(ERRORS, 1 - EXPECTED, ERRORS.mean(dim=0), needed=0.0, **own)


def test_the_mean_price_of_the_fallback_is_uncertain_too() -> None:
    """Small costs .001 or .003, .002 ± .0001 in the mean of 100 rows."""
    prices = torch.tensor([[0.01, 0.001], [0.01, 0.003]], dtype=torch.float64).repeat(50, 1)
    found = kept_within(by_row(prices), None, 0.0021)
    assert found.guard.constant == 1
    assert found.spend == pytest.approx(0.002)
    assert found.spend_interval == pytest.approx((0.0018, 0.0022), abs=2e-5)
    assert found.overspend == pytest.approx(0.16, abs=0.05)
    with pytest.raises(ParameterError, match=r"^budget=0\.0021: .*0\.95.* 0\.002"):
        kept_within(by_row(prices), None, 0.0021, 0.95)
    assert kept_within(by_row(prices), None, 0.0023, 0.95).overspend <= 0.05
