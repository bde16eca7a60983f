"""`examples/plan_regret.py`: the best plan by hand, and that a learned one comes near it and not below."""

import numpy as np
import pytest
from plan_regret import CHANCES, PRICES, best_cost, drawn, regret


def test_the_best_plan_by_hand() -> None:
    """Ask the first: .4 + .1. Ask both: 1 − .6 − .5 + .6·.5 = .2 if all were known; they agree with .3, and else the first is right
    with .3/.5: .2 + .7·(1 − .6·.5/.7)= .2 + .7 − .3 = .6. With three that are right by .9 and cost 0, all are asked."""
    assert best_cost((0.6, 0.5), (0.1, 0.1)) == pytest.approx(0.5)
    agree = 0.9**2 * (1 + 2 * 0.1)
    only = 3 * 0.9 * 0.1**2
    assert best_cost((0.9,) * 3, (0.0,) * 3) == pytest.approx(1 - agree - only / 3)


def test_wrong_answers_never_agree() -> None:
    view, right = drawn(200, CHANCES[:3], np.random.default_rng(0))
    both = right[:, 0] * right[:, 1] == 1
    assert (view.same[:, 0, 1] == both).all()


def test_a_learned_plan_is_near_the_best_one() -> None:
    found = regret(1500, CHANCES[:3], PRICES[:3], np.random.default_rng(0))
    assert -0.006 < found < 0.012  # new rows are drawn, so it may seem to be better
