"""Plans: features and induction against slow loops, values by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from l2d.core import plan as plans
from l2d.core.plan import View
from l2d.core.plan_learning import PENALTY, Rows, induct, learn_chances, logistic


def view_of(kinds: list[list[int]], logits: list[list[float]] | None = None) -> View:
    n, p = len(kinds), len(kinds[0])
    odds = torch.zeros(n, p) if logits is None else torch.tensor(logits)
    return View(odds, torch.tensor(kinds), torch.zeros(n, p, 1))


def drawn(n: int, p: int, seed: int) -> View:
    draw = np.random.default_rng(seed)
    kinds = torch.from_numpy(draw.integers(-1, 3, size=(n, p)))
    return View(
        *(
            torch.from_numpy(draw.normal(size=(n, p))).float(),
            kinds,
            torch.from_numpy(draw.normal(size=(n, p, 2))).float(),
        )
    )


@given(st.integers(2, 5), st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_features_count_votes_as_a_loop_does(p: int, seed: int) -> None:
    view = drawn(6, p, seed)
    asked = torch.from_numpy(np.random.default_rng(seed + 1).random((6, p)) < 0.6)
    found = plans.answer_features(view, asked)
    for i, j in itertools.product(range(6), range(p)):
        kinds, mine = view.kinds[i].tolist(), asked[i].tolist()
        pro = [mine[k] and (k == j or (kinds[k] == kinds[j] and kinds[j] >= 0)) for k in range(p)]
        con = [mine[k] and not pro[k] for k in range(p)]
        groups = [
            sum(mine[m] and (m == k or (kinds[m] == kinds[k] >= 0)) for m in range(p)) for k in range(p) if con[k]
        ]
        assert found[i, j, :p].tolist() == pro
        assert found[i, j, p : 2 * p].tolist() == con
        size, rival = 5 * p, 5 * p + p - 1
        assert found[i, j, size : size + p - 1].tolist() == [sum(pro) == count for count in range(2, p + 1)]
        assert found[i, j, rival : rival + p - 1].tolist() == [
            max(groups, default=0) == count for count in range(2, p + 1)
        ]
        assert found[i, j, rival + p - 1] == (kinds[j] < 0)


def test_experts_that_were_not_asked_are_not_seen() -> None:
    asked = torch.tensor([[True, True, False]])
    first, second = view_of([[0, 1, 0]]), view_of([[0, 1, 1]])
    assert torch.equal(plans.answer_features(first, asked)[:, :2], plans.answer_features(second, asked)[:, :2])


def test_logistic_regression_is_that_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    points = draw.normal(size=(400, 3))
    right = (draw.random(400) < 1 / (1 + np.exp(-points @ [1.0, -2.0, 0.5] - 0.3))).astype(float)
    found = logistic(torch.from_numpy(np.hstack([points, np.ones((400, 1))])), torch.from_numpy(right))
    model = LogisticRegression(C=1 / (PENALTY * 400), tol=1e-8).fit(points, right)
    assert found[:3].numpy() == pytest.approx(model.coef_[0], abs=1e-3)
    assert float(found[3]) == pytest.approx(model.intercept_[0], abs=1e-3)


def test_a_separable_fit_stays_finite() -> None:
    points = torch.stack([torch.tensor([-1.0, 1.0]).repeat(50), torch.ones(100)], dim=1)
    assert logistic(points, (points[:, 0] > 0).float()).isfinite().all()


def world(n: int, seed: int = 0) -> tuple[View, Tensor, Tensor]:
    """Two cheap experts, right with .7 apart from each other, with one wrong answer each of their own; a dear one, always right."""
    draw = torch.Generator().manual_seed(seed)
    right = torch.cat([torch.rand(n, 2, generator=draw) < 0.7, torch.ones(n, 1, dtype=torch.bool)], dim=1)
    kinds = torch.where(right, 0, torch.tensor([1, 2, 3]))
    odds = torch.tensor([math.log(7 / 3), math.log(7 / 3), 4.0]).expand(n, 3)
    return View(odds, kinds, torch.zeros(n, 3, 1)), right.float(), torch.tensor([0.01, 0.01, 0.35])


def followed_by(plan: plans.Plan, view: View, weights: Tensor) -> plans.Followed:
    return plans.follow(plan, view, lambda rows, asked: plans.chances_of(weights[-1], view.take(rows), asked))


def test_the_induction_finds_that_two_who_agree_are_right() -> None:
    """Agreeing, they are right; else ask the third: .02 + .51·.35 = .1985. One alone: .31; the dear one: .35."""
    view, right, prices = world(6000)
    chances = learn_chances(view, right)
    plan = plans.least_cost(induct(Rows.of(view, right, chances), prices))
    new, outcomes, _ = world(6000, seed=1)
    followed = followed_by(plan, new, chances)
    cost, spent = followed.costs(1 - outcomes, prices)
    assert float(cost.mean()) == pytest.approx(0.1985, abs=0.01)
    same = new.kinds[:, 0] == new.kinds[:, 1]
    assert torch.equal(followed.asked[:, 2], ~same)
    assert float(spent[same].mean()) == pytest.approx(0.02)


def test_a_dear_third_expert_is_not_asked() -> None:
    """At .9 the third costs more than guessing between two that disagree."""
    view, right, _ = world(4000)
    chances = learn_chances(view, right)
    prices = torch.tensor([0.01, 0.01, 0.9])
    followed = Rows.of(view, right, chances).follow(plans.least_cost(induct(Rows.of(view, right, chances), prices)))
    assert not followed.asked[:, 2].any()
    assert float(followed.costs(1 - right, prices)[0].mean()) == pytest.approx(0.31, abs=0.02)


def test_the_value_of_a_row_does_not_know_its_own_outcome() -> None:
    """Outcomes are coin flips and prices 0: nothing is gained by asking again, beyond noise."""
    draw = torch.Generator().manual_seed(3)
    right = (torch.rand(3000, 3, generator=draw) < 0.5).float()
    view = View(torch.zeros(3000, 3), torch.arange(3).expand(3000, 3), torch.randn(3000, 3, 1, generator=draw))
    chances = learn_chances(view, right)
    rows = Rows.of(view, right, chances)
    followed = rows.follow(plans.least_cost(induct(rows, torch.full((3,), 0.001))))
    assert float(followed.costs(1 - right, torch.full((3,), 0.001))[0].mean()) == pytest.approx(0.5, abs=0.03)


def steps(plan: plans.Plan, view: View, chances: list[float]) -> tuple[list[list[int]], list[int]]:
    """Whom a plan asks on each row, in order, and whose answer it gives. chances: of each expert's answer."""
    p, asked, given = len(chances), list[list[int]](), list[int]()
    for row in range(len(view)):
        order: list[int] = []
        while True:
            mine = torch.tensor([[k in order for k in range(p)]])
            known = torch.where(mine, torch.tensor([chances]), -1.0)
            move, answer = plan(view.take(torch.tensor([row])), mine, known, torch.zeros_like(mine))
            if int(move) < 0:
                break
            order.append(int(move))
        asked.append(order)
        given.append(int(answer))
    return asked, given


@pytest.mark.parametrize(
    ("plan", "asked", "given"),
    [
        (plans.in_turn([1, 2], 0.8), [[1, 2], [1, 2]], [2, 2]),
        (plans.in_turn([1, 2], 0.6), [[1], [1]], [1, 1]),
        (plans.if_two_disagree(0, 1, 2), [[0, 1], [0, 1, 2]], [0, 2]),
        (plans.majority([2, 1, 0]), [[2, 1, 0], [2, 1, 0]], [1, 2]),
        (plans.one_choice(torch.tensor([0.0, 0.3, 0.3])), [[0], [0]], [0, 0]),
    ],
)
def test_simple_plans_by_hand(plan: plans.Plan, asked: list[list[int]], given: list[int]) -> None:
    """Experts 0 and 1 agree on the first row; on the second 1 and 2 have no answer, which agrees with nothing."""
    found = steps(plan, view_of([[5, 5, 7], [5, -1, -1]]), [0.5, 0.7, 0.9])
    assert found == (asked, given)


def test_costs_are_the_error_of_the_answer_and_the_prices_of_all_calls() -> None:
    followed = plans.Followed(torch.tensor([[True, True, False], [True, False, False]]), torch.tensor([1, 0]))
    errors = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    cost, spent = followed.costs(errors, torch.tensor([0.25, 0.5, 4.0]))
    assert cost.tolist() == [0.75, 1.25]
    assert spent.tolist() == [0.75, 0.25]


def test_prices_may_differ_between_rows() -> None:
    followed = plans.Followed(torch.tensor([[True, True], [True, False]]), torch.tensor([0, 0]))
    cost, _ = followed.costs(torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [4.0, 8.0]]))
    assert cost.tolist() == [3.0, 4.0]


def test_sets_have_numbers() -> None:
    sets = plans.every_set(3)
    assert sets[6].tolist() == [False, True, True]
    assert plans.number_of(sets).tolist() == list(range(8))


@pytest.mark.parametrize(("kind", "count"), [("cascade", 6 * len(plans.LEVELS)), ("two agree", 12), ("majority", 4)])
def test_candidates_of_each_simple_kind(kind: str, count: int) -> None:
    right = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    found = plans.simple_candidates(kind, right, torch.tensor([[4.0, 3.0, 2.0, 1.0]]).expand(2, 4))
    assert len(found) == count
    if kind == "cascade":
        assert {experts for experts, _ in found} == {(3, 2), (3, 1), (3, 0), (2, 1), (2, 0), (1, 0)}
    if kind == "majority":
        assert all(experts[0] in (2, 3) for experts, _ in found)


def test_one_who_may_not_be_asked_is_not() -> None:
    view, right, prices = world(2000)
    chances = learn_chances(view, right)
    plan = plans.least_cost(induct(Rows.of(view, right, chances), prices))
    nobody = torch.zeros(2000, 3, dtype=torch.bool)
    free, _ = plan(view, nobody, torch.full((2000, 3), -1.0), nobody)
    blocked = nobody.clone()
    blocked[:, int(free[0])] = True
    other, _ = plan(view, nobody, torch.full((2000, 3), -1.0), blocked)
    assert (other != free).all()
