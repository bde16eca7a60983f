"""A new expert's chances, borrowed from the known ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from l2d.core.newcomer import ALIKE, SPREAD, Borrowed, Prior, Surprise, borrow, borrow_beside, level_by_price

EVEN = torch.full((3,), 1 / 3).double()


def rows(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.uniform(0.1, 0.9, (n, 3))), torch.from_numpy((rng.random(n) < 0.4).astype(float))


@given(st.integers(0, 40), st.integers(0, 99))
def test_the_mode_is_where_a_slow_search_finds_it(n: int, seed: int) -> None:
    known, right = rows(n, seed)
    centre = torch.tensor(0.3).double()
    found = borrow(known, right, Prior(EVEN, centre, level=0.4))
    logits, y = (torch.logit(known) @ EVEN).numpy(), right.numpy()

    def loss(t: np.ndarray) -> float:
        z = 0.3 + t[0] + t[1] * (logits - 0.3)
        prior = ((t[0] - 0.4) / SPREAD[0]) ** 2 / 2 + ((t[1] - 1) / SPREAD[1]) ** 2 / 2
        return float(np.logaddexp(0, z).sum() - (y * z).sum() + prior)

    slow = minimize(loss, [0.4, 1.0], tol=1e-12)
    assert found.mean.tolist() == pytest.approx(slow.x.tolist(), abs=1e-4)


def test_without_outcomes_it_is_the_prior() -> None:
    """By hand: with a, b at 0 and 1 the log-odds are the expert's own, pulled to 0 by the width of the prior."""
    known, none = torch.tensor([[0.8, 0.5, 0.2]]).double(), torch.zeros(0).double()
    found = borrow(known[:0], none, Prior(torch.eye(3).double()[0], torch.zeros(()).double(), ALIKE))
    logit = np.log(4)
    variance = ALIKE[0] ** 2 + (ALIKE[1] * logit) ** 2
    chance = 1 / (1 + np.exp(-logit / np.sqrt(1 + np.pi * variance / 8)))
    assert [float(part) for part in found.chances(known)] == pytest.approx(
        [chance, np.sqrt(variance) * chance * (1 - chance)]
    )
    again = Borrowed.unpacked(found.packed())
    assert torch.equal(again.chances(known)[0], found.chances(known)[0])


def test_a_dearer_expert_is_expected_to_be_better_if_dearer_ones_are() -> None:
    """By hand: places −1/2, 0, 1/2 and levels 0, 1, 2 have the slope 1/(.5 + .2); at the dearest price it is half of that."""
    levels, prices = torch.tensor([0.0, 1.0, 2.0]).double(), torch.tensor([0.1, 0.2, 0.3]).double()
    assert level_by_price(levels, prices, 0.3) == pytest.approx(0.5 / 0.7)
    assert level_by_price(levels, prices, 9.0) == pytest.approx(1 / 0.7)  # not followed further
    assert level_by_price(levels, torch.ones(3).double(), 0.3) == 0


def test_the_shared_surprise_is_what_it_was_drawn_with() -> None:
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=(100_000, 1)), rng.normal(size=(100_000, 3))
    found = Surprise.of(torch.from_numpy(shared + own))
    # The mean of two others has variance 1 + 1/2 and covariance 1 with the third, which has variance 2.
    assert (found.slope, found.explained) == pytest.approx((1 / 1.5, 1 / 1.5 / 2), abs=0.01)
    assert Surprise.of(torch.from_numpy(own)).explained == pytest.approx(0, abs=0.001)


def test_beside_the_others_the_interval_is_narrower_and_right() -> None:
    """A known level: 95 % of the intervals of a contain it, also with the others' outcomes, and these make it narrower."""
    rng, inside, widths = np.random.default_rng(0), {True: 0, False: 0}, {True: 0.0, False: 0.0}
    known, prior = torch.full((20, 3), 0.5).double(), Prior(EVEN, torch.zeros(()).double())
    strong = Surprise.of(torch.from_numpy(draw(rng, 20_000, np.zeros(4)) - 0.5)[:, :3])
    for _ in range(400):
        level = rng.normal() * SPREAD[0]
        drawn = torch.from_numpy(draw(rng, 20, np.array([0, 0, 0, level])))
        for beside in (True, False):
            surprise = strong if beside else Surprise()
            found = borrow_beside(known, drawn[:, 3], drawn[:, :3], surprise, prior)
            width = float(found.covariance[0, 0]) ** 0.5
            inside[beside] += abs(float(found.mean[0]) - level) < 1.96 * width
            widths[beside] += width / 400
    assert all(0.92 < count / 400 < 0.98 for count in inside.values()), inside
    assert widths[True] < 0.97 * widths[False]


def draw(rng: np.random.Generator, n: int, levels: np.ndarray) -> np.ndarray:
    """Outcomes of experts whose chances are σ(level), with a common cause. [n, experts]"""
    common = np.sqrt(0.6) * rng.normal(size=(n, 1)) + np.sqrt(0.4) * rng.normal(size=(n, len(levels)))
    from scipy.stats import norm

    return (norm.cdf(common) < 1 / (1 + np.exp(-levels))).astype(float)
