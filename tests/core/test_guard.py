"""Offsets against a search over all that can be told apart, and the fallback to one expert by hand."""

import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from l2d.core import guard
from l2d.core.guard import Guard, HeldOut, best_offset, crossed, fit_guard, fit_offsets, paired, with_offsets
from l2d.core.results import ESTIMATED
from l2d.utils.plain import from_plain


def fitted(utilities: torch.Tensor | None, decisions: torch.Tensor, costs: torch.Tensor) -> Guard:
    """With the best single expert of the rows themselves to fall back to."""
    return fit_guard(utilities, decisions, costs, int(costs.double().mean(dim=0).argmin()))


def drawn(seed: int, n: int, p: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Utilities in quarters, so that sums are exact and ties occur; costs in tenths."""
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.integers(-6, 7, (n, p)) / 4), torch.tensor(rng.integers(0, 11, (n, p)) / 10)


def mean_cost(utilities: torch.Tensor, costs: torch.Tensor, offsets: tuple[float, ...]) -> float:
    """The mean cost of the largest sum, ties to the last, by loops."""
    total = 0.0
    for u, c in zip(utilities.tolist(), costs.tolist(), strict=True):
        sums = [a + b for a, b in zip(u, offsets, strict=True)]
        total += c[max(k for k in range(len(u)) if sums[k] == max(sums))]
    return total / len(costs)


def between(points: set[float]) -> list[float]:
    """One value below all, one in each gap, one above all."""
    found = sorted(points)
    return [found[0] - 1, *((a + b) / 2 for a, b in pairwise(found)), found[-1] + 1]


def alone(p: int, k: int, value: float) -> tuple[float, ...]:
    return tuple(value if j == k else 0.0 for j in range(p))


rows, experts, seeds = st.integers(1, 9), st.integers(2, 3), st.integers(0, 9999)


@given(rows, experts, seeds)
def test_one_offset_against_all_breakpoints(n: int, p: int, seed: int) -> None:
    utilities, costs = drawn(seed, n, p)
    for k in range(p):
        points = {max(u[:k] + u[k + 1 :]) - u[k] for u in utilities.tolist()}
        least = min(mean_cost(utilities, costs, alone(p, k, value)) for value in between(points))
        found = best_offset(utilities, costs, k)
        assert mean_cost(utilities, costs, alone(p, k, found)) == pytest.approx(least)
        assert found not in points  # where ties would decide


@given(rows, seeds)
def test_two_experts_against_all_breakpoints(n: int, seed: int) -> None:
    """One difference is all there is, so one at a time is exact; no offsets at all are an equal choice, ties and all."""
    utilities, costs = drawn(seed, n, 2)
    points = {u[1] - u[0] for u in utilities.tolist()}
    least = min(mean_cost(utilities, costs, alone(2, 0, value)) for value in [*between(points), 0.0])
    assert mean_cost(utilities, costs, fit_offsets(utilities, costs)) == pytest.approx(least)


@example(9, 3, 59)  # where an expert's offset is changed twice
@example(14, 3, 34)
@given(rows, experts, seeds)
def test_offsets_are_never_worse_where_they_were_fitted_and_no_single_change_helps(n: int, p: int, seed: int) -> None:
    utilities, costs = drawn(seed, n, p)
    offsets = fit_offsets(utilities, costs)
    assert sum(offsets) == pytest.approx(0, abs=1e-12)
    assert fit_offsets(utilities + torch.arange(n)[:, None] * 0.5, costs) == offsets  # as much for all experts of a row
    found = mean_cost(utilities, costs, offsets)
    assert found <= mean_cost(utilities, costs, (0.0,) * p) + 1e-12
    shifted = utilities + torch.tensor(offsets)
    for k in range(p):
        points = {max(u[:k] + u[k + 1 :]) - u[k] for u in shifted.tolist()}
        for value in between(points):
            assert mean_cost(shifted, costs, alone(p, k, value)) >= found - 1e-9


# u_1 − u_2 is 0.1, 0.2, 0.3, 0.4: the router always takes expert 1, though expert 2 is right on the first two rows.
BIASED = torch.tensor([[0.6, 0.5], [0.7, 0.5], [0.8, 0.5], [0.9, 0.5]], dtype=torch.float64)
COSTS = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=torch.float64)


def test_offsets_by_hand() -> None:
    """Expert 1 needs between 0.2 and 0.3 less: half of 0.25 off it, half of it on the other."""
    assert best_offset(BIASED, COSTS, 0) == pytest.approx(-0.25)
    assert best_offset(BIASED, COSTS, 1) == pytest.approx(0.25)
    offsets = fit_offsets(BIASED, COSTS)
    assert offsets == pytest.approx((-0.125, 0.125))
    assert with_offsets(BIASED, offsets).tolist() == [1, 1, 0, 0]
    assert with_offsets(BIASED, (0.0, 0.0)).tolist() == [0, 0, 0, 0]
    assert with_offsets(BIASED.to("meta"), offsets).device.type == "meta"
    assert fit_offsets(BIASED - torch.tensor([0.21, 0.0]), COSTS) == (0.0, 0.0)  # nothing to gain, nothing changed
    # beyond all rows: by the spread of what they need, and half of 1
    assert best_offset(BIASED, torch.tensor([[1.0, 0.0]] * 4).double(), 0) == pytest.approx(-0.4 - (1 + 0.3) / 2)
    assert best_offset(BIASED, torch.tensor([[0.0, 1.0]] * 4).double(), 0) == pytest.approx(-0.1 + (1 + 0.3) / 2)
    # Three rows of one difference: expert 1 saves 1 on the first and loses 0.4 on each of the others; all three or none.
    utilities = torch.tensor([[0.0, 0.5]] * 3, dtype=torch.float64)
    costs = torch.tensor([[0.0, 1.0], [0.4, 0.0], [0.4, 0.0]], dtype=torch.float64)
    assert with_offsets(utilities, fit_offsets(utilities, costs)).tolist() == [0, 0, 0]
    dear = costs + torch.tensor([0.1, 0.0])
    assert with_offsets(utilities, fit_offsets(utilities, dear)).tolist() == [1, 1, 1]


@settings(max_examples=8)
@given(st.integers(2, 8), experts, seeds)
def test_no_row_has_a_say_in_its_own_decision(n: int, p: int, seed: int) -> None:
    utilities, costs = drawn(seed, n, p)
    decided = crossed(utilities, costs)
    for row in range(n):
        other = costs.clone()
        other[row] = 10 - 20 * other[row]
        assert int(crossed(utilities, other)[row]) == int(decided[row])


def test_gain_and_standard_error_by_hand() -> None:
    """Expert 1 is right on three rows of five, expert 2 on the others: always expert 1 costs 0.4, the router nothing. The
    differences 0, 0, 0, 1, 1 have variance 0.3, so the standard error is √0.06."""
    costs = torch.tensor([[0, 1]] * 3 + [[1, 0]] * 2, dtype=torch.float64)
    assert paired(torch.tensor([0.0, 0, 0, 1, 1])) == pytest.approx((0.4, 0.06**0.5))
    for decisions, held, constant, best, gain in (
        ([0, 0, 0, 1, 1], costs, None, 0, 0.4),
        ([1, 1, 1, 0, 0], costs, 0, 0, -0.6),
        ([1, 1, 1, 0, 0], costs.flip(1), None, 1, 0.4),
    ):
        found = fitted(None, torch.tensor(decisions), held)
        assert (found.offsets, found.constant, found.best) == (None, constant, best)
        assert (found.gain, found.error) == pytest.approx((gain, 0.06**0.5))


def test_what_gain_is_enough() -> None:
    """Differences 0, 0, 0, 1: mean ¼, variance ¼, standard error ½/2. Differences 0, 0, 1, −1: no gain."""
    costs = torch.tensor([[0, 1]] * 3 + [[1, 0]], dtype=torch.float64)
    assert fitted(None, torch.tensor([0, 0, 0, 1]), costs) == Guard(None, None, 0, 0.25, 0.25)
    found = fitted(None, torch.tensor([0, 0, 1, 1]), costs)
    assert (found.constant, found.gain) == (0, 0.0)
    # By estimated costs, ¼ ± ¼ is not enough. Differences 0, 0, 0, 1, 1: .4 ± √.06 is.
    router = torch.tensor([0, 0, 0, 1])
    assert fit_guard(None, router, costs, 0, needed=ESTIMATED) == Guard(None, 0, 0, 0.25, 0.25, ESTIMATED)
    more = torch.cat([costs, costs[3:]])
    assert fit_guard(None, torch.tensor([0, 0, 0, 1, 1]), more, 0, needed=ESTIMATED).constant is None


def test_one_row_and_ties() -> None:
    """Experts of one cost: the first, with nothing to gain. A router that always takes the best is that expert."""
    equal = torch.ones(6, 3)
    assert fitted(torch.zeros(6, 3), torch.full((6,), 2), equal) == Guard(None, 0, 0, 0.0, 0.0)
    costs = torch.tensor([[1.0, 0.0]] * 6)
    assert fitted(-costs, torch.ones(6, dtype=torch.long), costs) == Guard(None, 1, 1, 0.0, 0.0)
    # Not even a gain of 1; and what is written stays readable as JSON.
    costs = torch.tensor([[1.0, 0.0]])
    for utilities in (None, torch.tensor([[0.2, 0.1]])):
        found = fitted(utilities, torch.tensor([0]), costs)
        assert found == Guard(None, 1, 1, -1.0, None)
        assert json.loads(json.dumps(asdict(found), allow_nan=False))["error"] is None


@pytest.mark.parametrize("n", [2, 3, 5])
def test_one_row_per_fold(n: int) -> None:
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0]] * 3)[:n]
    found = fitted(-costs, costs.argmin(1), costs)
    assert (found.offsets, found.best) == (None, 0)
    assert found.gain == pytest.approx((n // 2) / n)


def noisy_router(seed: int, n: int = 300) -> tuple[torch.Tensor, torch.Tensor]:
    """Costs of three experts, the first the best by far, and utilities that know nothing of them."""
    rng = np.random.default_rng(seed)
    costs = (rng.random((n, 3)) < [0.3, 0.5, 0.6]).astype(float)
    return torch.tensor(rng.normal(size=(n, 3))), torch.tensor(costs)


def test_a_router_that_is_noise_is_not_asked() -> None:
    utilities, costs = noisy_router(0)
    for given_utilities in (utilities, None):
        found = fitted(given_utilities, utilities.argmax(1), costs)
        assert (found.constant, found.best) == (0, 0)
        assert set(found.decide(utilities, utilities.argmax(1)).tolist()) == {0}


def test_a_router_that_knows_is_asked() -> None:
    noise, costs = noisy_router(0)
    utilities = 0.2 * noise - costs
    found = fitted(utilities, utilities.argmax(1), costs)
    assert found.constant is None
    assert found.gain > 5 * (found.error or 0)
    # A bias that hides what it knows is taken off again; as much on every expert is none.
    biased = utilities - torch.tensor([0.9, 0.0, 0.0])
    mended = fitted(biased, biased.argmax(1), costs)
    assert mended.constant is None
    assert mended.offsets is not None
    assert mended.offsets[0] - max(mended.offsets[1:]) > 0.4
    held_out = crossed(biased, costs)
    expected = paired(costs[:, 0] - costs.gather(1, held_out[:, None])[:, 0])
    assert (mended.gain, mended.error) == pytest.approx(expected)
    after = mended.decide(biased, biased.argmax(1))
    before = costs.gather(1, biased.argmax(1)[:, None]).mean()
    assert float(costs.gather(1, after[:, None]).mean()) < float(before) - 0.05
    # Without utilities nothing is shifted, and what it decides is worse than always the best.
    assert fitted(None, biased.argmax(1), costs).offsets is None


def test_a_guard_decides_in_one_of_three_ways() -> None:
    utilities, decisions = torch.tensor([[0.3, 0.2], [0.3, 0.1], [0.0, 0.0]]), torch.tensor([1, 0, 0])
    assert Guard(None, None, 0, 0.2, 0.1).decide(utilities, decisions).tolist() == [1, 0, 0]  # whatever the utilities
    assert Guard((0.0, 0.15), None, 0, 0.2, 0.1).decide(utilities, decisions).tolist() == [1, 0, 1]
    assert Guard((0.0, 0.0), None, 0, 0.2, 0.1).decide(utilities, decisions).tolist() == [0, 0, 1]  # ties to the last
    for offsets in (None, (9.0, 0.0)):
        decided = Guard(offsets, 1, 1, 0.0, 0.1).decide(utilities, decisions)
        assert decided.tolist() == [1, 1, 1]
        assert decided.dtype == decisions.dtype
    half = utilities.bfloat16()  # where 0.3 + 0.001 would be 0.3
    assert Guard((0.0, 0.001), None, 0, 0.2, 0.1).decide(half[2:], decisions[2:]).tolist() == [1]


@pytest.mark.parametrize("guard", [Guard(None, None, 1, 0.25, 0.1, 1.0), Guard((0.1, -0.1), 1, 1, 0.0, None)])
def test_round_trip_through_json(guard: Guard) -> None:
    again = from_plain(Guard, json.loads(json.dumps(asdict(guard))))
    assert again == guard
    assert hash(again) == hash(guard)


@pytest.mark.parametrize(("gains", "kept"), [([1, 1, 0, 0, 0], False), ([1, 1, 1, 1, 0], True)])
def test_offsets_want_two_standard_errors(gains: list[int], kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On rows they were not fitted to: .4 ± .245 is not enough, .8 ± .2 is."""
    costs = torch.stack([torch.tensor(gains), torch.zeros(5)], dim=1).double()
    monkeypatch.setattr(guard, "crossed", lambda *_: torch.ones(5, dtype=torch.long))
    found = fitted(torch.tensor([[1.0, 0.0]]).repeat(5, 1), torch.zeros(5, dtype=torch.long), costs)
    assert (found.offsets is not None) == kept


def test_a_guard_for_other_prices_by_hand() -> None:
    """Expert 1 is right on the first three rows of five, expert 2 on the others, and the router knows. Free experts: it gains 0.4
    over always expert 1. If expert 2 costs 2 more, everything goes to expert 1; if expert 1 does, to expert 2."""
    errors = torch.tensor([[0, 1]] * 3 + [[1, 0]] * 2, dtype=torch.float64)
    held_out = HeldOut(errors, errors.float(), errors.mean(dim=0))
    free = held_out.guard_at(torch.zeros(2))
    assert (free.constant, free.best) == (None, 0)
    assert free.gain == pytest.approx(0.4)
    for prices, best in (([0.0, 2.0], 0), ([2.0, 0.0], 1)):
        found = held_out.guard_at(torch.tensor(prices))
        assert (found.constant, found.best, found.gain) == (best, best, 0)
    # Four rows gain .25 ± .25: enough by known costs, not by estimated ones.
    few = HeldOut(errors[:4], errors[:4].float(), errors[:4].mean(dim=0))
    assert few.guard_at(torch.zeros(2)).constant is None
    assert replace(few, needed=ESTIMATED).guard_at(torch.zeros(2)).constant == 0
