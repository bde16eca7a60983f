"""Plans and a log that knows only the answers of those that were asked: which sets it reached, and what a plan costs by it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from l2d.core.plan import Plan, View, every_set, state_features
from l2d.core.plan_learning import LEAST_SEEN, crossed, fold_numbers
from l2d.core.replies import Asks

Chances = Callable[[Tensor, Tensor], Tensor]  # see follow in core/plan.py


def reached(asks: Asks) -> Tensor:
    """True where a set of experts was asked first, in any order. -> bool [2^p, n]"""
    sets = every_set(asks.turn.shape[1])
    first = (asks.turn >= 0) & (asks.turn < sets.sum(dim=1)[:, None, None])
    return (first == sets[:, None, :]).all(dim=2)


@dataclass(frozen=True)
class Turn:
    alive: Tensor  # the rows whose log was as the plan has it so far
    move: Tensor  # see Plan
    answer: Tensor
    features: Tensor
    followed: Tensor  # the log asked the same one


def turns_of(plan: Plan, view: View, asks: Asks, chances: Chances) -> list[Turn]:
    n, p = asks.turn.shape
    rows, asked, nobody = torch.arange(n), torch.zeros(n, p, dtype=torch.bool), torch.zeros(n, p, dtype=torch.bool)
    alive, found = torch.ones(n, dtype=torch.bool), list[Turn]()
    while alive.any():
        known = chances(rows, asked)
        move, answer = plan(view, asked, known, nobody)
        next_one = move.clamp(min=0)
        followed = alive & (move >= 0) & (asks.turn[rows, next_one] == len(found))
        asks_now = torch.nn.functional.one_hot(next_one, p) * torch.stack([torch.ones_like(view.logits), view.logits])
        features = torch.cat([state_features(view, asked, known), *asks_now], dim=1)
        found.append(Turn(alive, move, answer, features, followed))
        asked = asked.clone()
        asked[rows[followed], move[followed]] = True
        alive = followed
    return found


def supported(turns: list[Turn]) -> bool:
    """True if the log went on often enough where the plan does."""
    asking = [(int((turn.alive & (turn.move >= 0)).sum()), int(turn.followed.sum())) for turn in turns]
    return all(known >= min(LEAST_SEEN, wanted / 10) for wanted, known in asking)


def off_policy(turns: list[Turn], errors: Tensor, prices: Tensor, asks: Asks) -> tuple[Tensor, Tensor]:
    """The cost of a plan on each row, and the part of it that is prices, [n] both: sequentially doubly robust. A regression q of
    what is to come, by other rows, is corrected where the log went on as the plan does:
    V_t = q_t + 1[asked k]/propensity · (price_k + V_{t+1} − q_t). The means are right if the propensities or the regressions are;
    a single value may be negative. errors [n, p] where asked; prices [p] or [n, p]."""
    n, p = asks.turn.shape
    rows, folds, nothing = torch.arange(n), fold_numbers(n), torch.zeros(n, dtype=torch.float64)
    paid, wrong = prices.expand(n, p).double(), errors.double().nan_to_num()
    value = torch.stack([nothing, nothing], dim=1)  # errors, prices
    expected = value  # by the regressions alone: less noisy to learn from
    for turn in reversed(turns):
        k, move = turn.move.clamp(min=0), (turn.move >= 0)[:, None]
        price = torch.stack([nothing, paid[rows, k]], dim=1)
        parts = [crossed(turn.features, part, folds, turn.followed)[1] for part in (price + expected).double().T]
        guess = torch.stack(parts, dim=1).double()
        weight = torch.where(turn.followed, 1 / asks.propensity[rows, k].double(), 0.0)
        going = guess + weight[:, None] * (price + value - guess)
        stopped = torch.stack([wrong[rows, turn.answer], nothing], dim=1)
        value, expected = (torch.where(move, one, stopped) * turn.alive[:, None] for one in (going, guess))
    return value.sum(dim=1), value[:, 1]
