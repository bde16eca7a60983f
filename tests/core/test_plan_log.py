"""Plans by a log: the value of a plan against the truth and a slow reference, and what is learned of partial rows."""

import pytest
import torch
from torch import Tensor

from l2d.core.guard import paired
from l2d.core.plan import Plan, View, chances_of, follow, if_two_disagree, in_turn, least_cost
from l2d.core.plan_learning import NEVER, Rows, induct, learn_chances
from l2d.core.plan_log import off_policy, reached, supported, turns_of
from l2d.core.replies import Asks

PRICES = torch.tensor([0.02, 0.03, 0.2])
SKILL = torch.tensor([0.2, 0.1, 1.8])


def world(n: int, draw: torch.Generator) -> tuple[View, Tensor]:
    """Three experts whose right answers agree; each wrong answer is another one. They are better where x is larger."""
    logits = SKILL + torch.randn(n, 1, generator=draw)
    right = torch.rand(n, 3, generator=draw) < torch.sigmoid(logits)
    first = right.long().argmax(dim=1, keepdim=True)
    kinds = torch.where(right, first, torch.arange(3))
    return View(logits, kinds, torch.zeros(n, 3, 1)), right.double()


def logged(view: View, right: Tensor, draw: torch.Generator, tells: float = 0.15) -> tuple[View, Tensor, Asks]:
    """First often the first expert, more rarely if x is large, then maybe another, with `tells` more if the first one is wrong; a
    third if two disagree."""
    n, rows = len(view), torch.arange(len(view))
    turn, chance = torch.full((n, 3), -1), torch.ones(n, 3, dtype=torch.float64)
    often = torch.where(view.logits[:, 0] < 0.2, 0.6, 0.4)
    shares = torch.stack([often, 0.9 - often, torch.full_like(often, 0.1)], dim=1)
    going, order = torch.ones(n, dtype=torch.bool), list[Tensor]()
    for place in range(3):
        if place:
            first = order[0]
            if place == 1:
                each = 0.35 + tells * (1 - right[rows, first])
            else:
                each = (view.kinds[rows, first] != view.kinds[rows, order[1]]).double()
            shares = torch.where(turn < 0, each[:, None], 0.0) * going[:, None]
        bounds = shares.cumsum(dim=1)
        drawn = torch.rand(n, 1, generator=draw)
        going = going & (drawn < bounds[:, -1:] - 1e-6)[:, 0]
        k = (drawn < bounds).long().argmax(dim=1)
        turn[rows[going], k[going]], chance[rows[going], k[going]] = place, shares[rows, k][going].double()
        order.append(k)
    seen = turn >= 0
    hidden = View(view.logits, torch.where(seen, view.kinds, -1), view.signals)
    known = torch.where(seen, right, torch.nan)
    return hidden, known, Asks(turn, chance, known)


def sure(_: Tensor, asked: Tensor) -> Tensor:
    return torch.where(asked, 0.5, -1.0)


def by_hand(plan: Plan, view: View, right: Tensor, asks: Asks) -> float:
    """The mean of what the rows cost whose log did as the plan does, by 1/propensity: without a regression, row by row."""
    total = 0.0
    for i in range(len(view)):
        row, weight, cost, asked = view.take(torch.tensor([i])), 1.0, 0.0, torch.zeros(1, 3, dtype=torch.bool)
        while True:
            move, answer = plan(row, asked, sure(torch.tensor([0]), asked), torch.zeros_like(asked))
            if move < 0:
                total += weight * (cost + 1 - float(right[i, answer]))
                break
            if int(asks.turn[i, move]) != int(asked.sum()):
                break
            weight, cost = weight / float(asks.propensity[i, move]), cost + float(PRICES[move])
            asked = asked.clone()
            asked[0, move] = True
    return total / len(view)


def value(plan: Plan, view: View, right: Tensor, asks: Asks) -> tuple[float, float]:
    costs, _ = off_policy(turns_of(plan, view, asks, sure), 1 - right, PRICES, asks)
    mean, error = paired(costs)
    assert error is not None
    return mean, error


PLANS = {"one": in_turn([1], 0.0), "cascade": in_turn([0, 2], 0.6), "two agree": if_two_disagree(0, 1, 2)}


def truth(plan: Plan) -> float:
    view, right = world(400_000, torch.Generator().manual_seed(99))
    return float(follow(plan, view, sure).costs(1 - right, PRICES)[0].mean())


@pytest.mark.parametrize("name", PLANS)
def test_the_value_is_right_and_more_certain_than_weights_alone(name: str) -> None:
    draw, plan = torch.Generator().manual_seed(3), PLANS[name]
    ours, plain = [], []
    for _ in range(8):
        parts = logged(*world(400, draw), draw)
        ours.append(value(plan, *parts)[0])
        plain.append(by_hand(plan, *parts))
    for found in (ours, plain):
        spread = torch.tensor(found).std() / 8**0.5
        assert float(torch.tensor(found).mean()) == pytest.approx(truth(plan), abs=4 * float(spread))
    assert torch.tensor(ours).std() < 1.2 * torch.tensor(plain).std()


@pytest.mark.full
@pytest.mark.parametrize("name", ["cascade", "two agree"])
def test_intervals_cover_the_truth(name: str) -> None:
    draw, known, hits, runs = torch.Generator().manual_seed(5), truth(PLANS[name]), 0, 400
    for _ in range(runs):
        mean, error = value(PLANS[name], *logged(*world(1000, draw), draw))
        hits += abs(mean - known) <= 1.96 * error
    assert 0.93 <= hits / runs <= 0.97


def test_a_log_that_went_on_as_the_plan_says_what_it_costs() -> None:
    """By hand: propensities 1, nothing is guessed."""
    view, right = world(50, torch.Generator().manual_seed(1))
    plan = PLANS["two agree"]
    asked = follow(plan, view, sure).asked
    turn = torch.where(asked, torch.tensor([0, 1, 2]), -1)
    asks = Asks(turn, torch.ones(50, 3).double(), right)
    costs, spent = off_policy(turns_of(plan, view, asks, sure), 1 - right, PRICES, asks)
    expected = follow(plan, view, sure).costs(1 - right, PRICES.double())
    torch.testing.assert_close(costs, expected[0])
    torch.testing.assert_close(spent, expected[1])
    assert supported(turns_of(plan, view, asks, sure))
    assert not supported(turns_of(in_turn([1, 0], 2.0), view, asks, sure))


def test_sets_that_a_row_reached() -> None:
    """Third, then first: the sets {}, {3}, {1, 3}."""
    asks = Asks(torch.tensor([[1, -1, 0]]), torch.ones(1, 3), torch.ones(1, 3))
    assert reached(asks)[:, 0].nonzero().flatten().tolist() == [0, 4, 5]


def test_a_log_teaches_what_whole_rows_teach() -> None:
    draw = torch.Generator().manual_seed(7)
    whole, right = world(3000, draw)
    hidden, known, asks = logged(whole, right, draw, tells=0.0)
    seen = reached(asks)
    rows = Rows.of(hidden, known.float(), learn_chances(hidden, known.float(), seen), seen)
    moves = induct(rows, PRICES)
    assert float(moves[7, :-1].abs().sum()) == 0
    nothing = Rows(hidden, rows.right, rows.chances, torch.zeros_like(seen))
    assert (induct(nothing, PRICES)[0, :-1, 0] == NEVER).all()
    test, truly = world(20_000, draw)

    def cost(view: View, outcome: Tensor, mask: Tensor | None) -> float:
        weights = learn_chances(view, outcome, mask)
        plan = least_cost(induct(Rows.of(view, outcome, weights, mask), PRICES), PRICES)
        followed = follow(plan, test, lambda some, asked: chances_of(weights[-1], test.take(some), asked))
        return float(followed.costs(1 - truly, PRICES)[0].mean())

    by_log, by_all = cost(hidden, known.float(), seen), cost(whole, right.float(), None)
    single = float((1 - truly + PRICES).mean(dim=0).min())
    assert by_log < single - 0.02
    assert by_log < by_all + 0.015
