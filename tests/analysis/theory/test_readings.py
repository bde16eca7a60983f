"""The two readings of m_k at the exact minimum of MILD's loss."""

from typing import Any

import numpy as np
import pytest
import torch

from l2d.analysis.theory.consistency import judge
from l2d.analysis.theory.readings import outcomes, readings
from l2d.core.costs import cheapest
from l2d.core.rewards import sum_others
from l2d.core.rho import cheapest_counts, reward_mass, rho_shares
from l2d.experts.partition import class_owners
from l2d.experts.synthetic import synthetic_predictions

SETUPS = {"I": [0.7, 0.2, 0.1], "II": [0.5, 0.2, 0.2, 0.1], "III": [0.4, 0.2, 0.2, 0.1, 0.1]}


@pytest.mark.parametrize(("setup", "collapsed"), [("I", 0.63), ("II", 0.45), ("III", 0.72)])
def test_only_one_reading_collapses(setup: str, collapsed: float) -> None:
    """Ten balanced classes. By reward mass the bare theory loses nothing; by how often an expert is the cheapest it collapses."""
    mass, cheapest_first = readings(SETUPS[setup], 10, offsets=[0.0])
    assert (mass.counts, cheapest_first.counts) == ("reward_mass", "cheapest")
    assert mass.deferral_loss == pytest.approx(0, abs=1e-12)
    assert cheapest_first.deferral_loss == pytest.approx(collapsed)
    assert mass.oracle == cheapest_first.oracle == 0


def test_by_hand() -> None:
    """Two classes, an expert for each, right by chance on half of the other's. Class 0: (0, 1) and (0, 0) with a half each; the
    reward of (0, 1) is all expert 0's, and (0, 0) has none. So each has a mass of a quarter; expert 1 is the cheapest only on its
    own class, if expert 0 is wrong there."""
    mass, first = readings([0.5, 0.5], 2, offsets=[1.0], train=[1, 3], test=[1, 1])
    assert mass.shares.tolist() == pytest.approx([0.25, 0.75])
    assert first.shares.tolist() == pytest.approx([0.25 + 0.75 / 2, 0.75 / 2])
    shares = rho_shares(torch.tensor([0.625, 0.375], dtype=torch.float64))
    assert first.rho.tolist() == pytest.approx((shares + 1).tolist())
    assert first.decisions.tolist() == [0, 1]
    assert (first.deferral_loss, first.offset) == (0, 1)


def test_against_a_simulation() -> None:
    """m_k of many drawn experts, and the decisions of the minimiser that is found numerically."""
    coverage, frequencies = SETUPS["II"], [5, 3, 2, 2, 1, 1, 1, 1, 1, 1]
    rng = np.random.default_rng(0)
    labels = torch.from_numpy(rng.choice(10, size=200_000, p=np.array(frequencies) / sum(frequencies)))
    owners = class_owners(coverage, 10)
    drawn = synthetic_predictions(labels, owners, rng)
    prices = torch.tensor([0.3, 0.1, 0.2, 0.0], dtype=torch.float64)
    costs = (drawn != labels[:, None]).double() + prices
    counts = {"reward_mass": reward_mass(sum_others(costs)), "cheapest": cheapest_counts(costs)}
    rule: dict[str, Any] = {"prices": prices.tolist(), "total": 3, "offsets": [0.0, 1.0]}
    found = readings(coverage, 10, train=frequencies, test=frequencies, **rule)
    assert [(one.counts, one.offset) for one in found] == [(name, offset) for name in counts for offset in (0.0, 1.0)]
    errors, chances = outcomes(owners)
    expected = chances @ (errors + prices)
    rewards = sum_others(expected)
    for one in found:
        shares = counts[one.counts] / counts[one.counts].sum()
        torch.testing.assert_close(one.shares, shares, atol=3e-3, rtol=0)
        torch.testing.assert_close(one.rho, 3 * rho_shares(one.shares) + one.offset)
        verdict = judge(rewards / rewards.sum(dim=1, keepdim=True), one.rho)
        assert one.decisions.tolist() == verdict.argmax.tolist()
        paid = costs[torch.arange(len(labels)), one.decisions[labels]].mean()
        assert one.deferral_loss == pytest.approx(float(paid), abs=5e-3)
        best = costs[torch.arange(len(labels)), cheapest(expected)[labels]].mean()
        assert one.oracle == pytest.approx(float(best), abs=5e-3)


def test_every_outcome_is_counted_once() -> None:
    errors, chances = outcomes(class_owners(SETUPS["I"], 10))
    assert errors.shape == (8, 3)
    assert len({tuple(row) for row in errors.tolist()}) == 8
    torch.testing.assert_close(chances.sum(dim=1), torch.ones(10, dtype=torch.float64))
    right = chances @ (1 - errors)
    torch.testing.assert_close(right[0], torch.tensor([1.0, 0.1, 0.1], dtype=torch.float64))
    torch.testing.assert_close(right[9], torch.tensor([0.1, 0.1, 1.0], dtype=torch.float64))
