"""Whom to ask next, given what was said: plans, what they see, and how rows follow them.

State: the log-odds f_k(x) that each expert is right, who was asked, and what they said. Action: answer, or ask another.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

MOST = 8  # experts: there are 2^p sets of them


@dataclass(frozen=True)
class View:
    """n rows, with all that may be seen of them. logits [n, p]: log-odds that each expert is right, from the input alone. kinds
    [n, p]: equal numbers are equal answers, −1 is none. signals [n, p, s]: standardised, 0 where not known."""

    logits: Tensor
    kinds: Tensor
    signals: Tensor

    def __len__(self) -> int:
        return len(self.logits)

    def take(self, rows: Tensor) -> "View":
        return View(self.logits[rows], self.kinds[rows], self.signals[rows])

    @cached_property
    def same(self) -> Tensor:
        """bool [n, p, p]. No answer agrees with none but itself."""
        equal = (self.kinds[:, :, None] == self.kinds[:, None, :]) & (self.kinds >= 0)[:, :, None]
        return equal | torch.eye(self.kinds.shape[1], dtype=torch.bool)


def answer_features(view: View, asked: Tensor) -> Tensor:
    """The evidence for each expert's answer, and against it: who gave it, who gave another, how good they are on this input.
    asked bool [n, p] -> [n, p, F]; meaningful where asked."""
    n, p = asked.shape
    for_it, against = asked[:, None, :] & view.same, asked[:, None, :] & ~view.same
    size = for_it.sum(dim=2)
    rival = torch.where(against, size[:, None, :], 0).amax(dim=2)  # the largest group with another answer
    counts = torch.arange(2, p + 1)
    mean = view.logits.mean(dim=1, keepdim=True)
    better, mean = (view.logits - mean)[:, None, :], mean.expand(n, p)
    pro, con = for_it.to(view.logits), against.to(view.logits)
    parts = [pro, con, pro * better, con * better, pro * (size > 1)[..., None]]
    parts += [(votes[..., None] == counts).to(pro) for votes in (size, rival)]
    parts += [part[..., None] for part in (view.kinds < 0, mean, mean * size, mean * con.sum(dim=2))]
    parts += [torch.eye(p).expand(n, p, p)]  # equal answers may be graded differently
    parts += [part * view.signals[:, None, :, s] for s in range(view.signals.shape[2]) for part in (pro, con)]
    return torch.cat([part.to(pro) for part in parts], dim=2)


def chances_of(weights: Tensor, view: View, asked: Tensor) -> Tensor:
    """π [n, p]: that each asked expert's answer is right; −1 for those not asked. weights [F + 1], or [n, F + 1] for each row."""
    features = answer_features(view, asked)
    scores = torch.einsum("npf,nf->np", features, weights[..., :-1].expand(len(view), -1)) + weights[..., -1:]
    return torch.where(asked, torch.sigmoid(scores), -1.0)


def state_features(view: View, asked: Tensor, chances: Tensor) -> Tensor:
    """What the cost from here on depends on: 1, chances of the best answer and the best other one, who is left. -> [n, G]"""
    known, found = torch.sigmoid(view.logits), chances.clamp(min=0)
    best, answer = found.max(dim=1)
    rival = torch.where(view.same[torch.arange(len(view)), answer], 0.0, found).amax(dim=1)
    common = [torch.ones_like(best), best, best * best, rival, best * rival, known.square().mean(dim=1)]
    return torch.cat([torch.stack(common, dim=1), torch.where(asked, 0.0, known)], dim=1)


def expected_costs(features: Tensor, weights: Tensor, chances: Tensor) -> Tensor:
    """Q of asking each expert next, and of stopping, infinite before any answer. weights [n, p + 1, G] -> [n, p + 1]"""
    found, best = torch.einsum("ng,nag->na", features, weights), chances.amax(dim=1)
    stop = torch.where(best >= 0, (found[:, -1] + 1 - best) / 2, torch.inf)
    return torch.cat([found[:, :-1], stop[:, None]], dim=1)


def number_of(asked: Tensor) -> Tensor:
    """The set of asked experts as a number, [n, p] -> [n]."""
    return (asked.long() << torch.arange(asked.shape[1])).sum(dim=1)


def every_set(p: int) -> Tensor:
    """bool [2^p, p], by number."""
    return (torch.arange(2**p)[:, None] >> torch.arange(p)) & 1 == 1


# A plan: the next expert to ask on each row, −1 to stop, and the expert whose answer is given then. blocked: who may not be asked.
# view, asked bool [n, p], chances [n, p], blocked bool [n, p] -> int [n], int [n]
Plan = Callable[[View, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def least_cost(moves: Tensor, prices: Tensor | None = None) -> Plan:
    """The plan of the induction. prices [p]: a call costs no less; for a log, see induct."""

    def plan(view: View, asked: Tensor, chances: Tensor, blocked: Tensor) -> tuple[Tensor, Tensor]:
        expected = expected_costs(state_features(view, asked, chances), moves[number_of(asked)], chances)
        if prices is not None:
            expected[:, :-1] = expected[:, :-1].maximum(prices)
        expected[:, :-1][asked | blocked] = torch.inf
        move = expected.argmin(dim=1)
        return torch.where(move == asked.shape[1], -1, move), chances.argmax(dim=1)

    return plan


def one_choice(prices: Tensor) -> Plan:
    """A router that chooses once, before any answer."""

    def plan(view: View, asked: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        move = (prices - torch.sigmoid(view.logits)).argmin(dim=1)
        return torch.where(asked.any(dim=1), -1, move), move

    return plan


def in_turn(experts: Sequence[int], threshold: float) -> Plan:
    """A cascade: ask one after another until an answer's chance reaches the threshold; else the last one's answer."""

    def plan(_: View, asked: Tensor, chances: Tensor, *_more: Tensor) -> tuple[Tensor, Tensor]:
        done = asked.sum(dim=1)
        order = torch.tensor(experts)
        last = order[(done - 1).clamp(min=0)]
        sure = (done > 0) & (chances.gather(1, last[:, None])[:, 0] >= threshold)
        return torch.where(sure | (done == len(experts)), -1, order[done.clamp(max=len(experts) - 1)]), last

    return plan


def if_two_disagree(first: int, second: int, third: int) -> Plan:
    """Ask two; if they agree, take the first one's answer, else the third one's."""

    def plan(view: View, asked: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        done, agree = asked.sum(dim=1), view.same[:, first, second]
        move = torch.tensor([first, second, third, -1])[done]
        return torch.where((done == 2) & agree, -1, move), torch.where(done == 3, third, first)

    return plan


def majority(experts: Sequence[int]) -> Plan:
    """Ask all of these, the first being the best: its answer counts if no other has more votes."""

    def plan(view: View, asked: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.tensor([*experts, -1])
        votes = (view.same & asked[:, None, :]).sum(dim=2)[:, order[:-1]]
        return order[asked.sum(dim=1)], order[votes.argmax(dim=1)]

    return plan


@dataclass(frozen=True)
class Followed:
    """The course of a plan on n rows: whom it asked, bool [n, p], and whose answer it gave, int [n]."""

    asked: Tensor
    answer: Tensor

    def costs(self, errors: Tensor, prices: Tensor) -> tuple[Tensor, Tensor]:
        """Error plus the prices of all calls, and these prices, [n]. errors [n, p]; prices [p] or [n, p]."""
        spent = torch.where(self.asked, prices.to(errors).expand_as(errors), 0.0).sum(dim=1)
        return errors.gather(1, self.answer[:, None])[:, 0] + spent, spent


def follow(plan: Plan, view: View, chances: Callable[[Tensor, Tensor], Tensor]) -> Followed:
    """chances: of the answers on some rows [m] after these were asked, bool [m, p] -> [m, p]."""
    n, p = view.logits.shape
    asked, answer = torch.zeros(n, p, dtype=torch.bool), torch.zeros(n, dtype=torch.long)
    going = torch.arange(n)
    while len(going):
        mine = asked[going]
        move, answer[going] = plan(view.take(going), mine, chances(going, mine), torch.zeros_like(mine))
        going, move = going[move >= 0], move[move >= 0]
        asked[going, move] = True
    return Followed(asked, answer)


SIMPLE = ("cascade", "two agree", "majority")
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)  # of a cascade's threshold


def simple_plan(kind: str, experts: Sequence[int], threshold: float) -> Plan:
    if kind == "cascade":
        return in_turn(experts, threshold)
    return if_two_disagree(*experts) if kind == "two agree" else majority(experts)


def simple_candidates(kind: str, right: Tensor, prices: Tensor) -> list[tuple[tuple[int, ...], float]]:
    """Experts and threshold. Cascades go from cheap to dear; of several that agree the best one's answer counts. prices [n, p]."""
    p, good = right.shape[1], right.nanmean(dim=0).tolist()
    pairs = list(itertools.combinations(prices.mean(dim=0).argsort(stable=True).tolist(), 2))
    if kind == "cascade":
        return [(pair, level) for pair in pairs for level in LEVELS]
    best = sorted(range(p), key=lambda k: -good[k])
    if kind == "two agree":
        return [((*pair, k), 0.0) for pair in itertools.combinations(best, 2) for k in range(p) if k not in pair]
    return [(three, 0.0) for three in itertools.combinations(best, 3)]
