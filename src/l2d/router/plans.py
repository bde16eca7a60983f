"""A router that may ask again after it has seen an answer: its steps, its prices and its score."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from l2d.core.budget import OperatingPoint
from l2d.core.guard import Guard, paired
from l2d.core.plan import chances_of
from l2d.core.prices import PriceList
from l2d.core.replies import Replies
from l2d.data.agreement import Agreement
from l2d.data.given import read_said
from l2d.lightning.threads import one_thread_if_small
from l2d.methods.priced import CostRegression
from l2d.networks.estimators.planner import Planner, plan_names, planner_of
from l2d.router.score import RouterScore, around, score_decisions, shares_of
from l2d.router.trained import TrainedRouter, decide_outputs, plan_of
from l2d.utils.errors import ParameterError
from l2d.utils.text import Z

R = TypeVar("R", bound=TrainedRouter)
FACTORS = tuple(2 ** (step / 2) for step in range(13))  # on prices, to plan with within a budget
HALVINGS = 5  # of the step between two of them


@dataclass(frozen=True)
class Said:
    expert: int
    answer: str | None = None
    confidence: float | None = None
    length: int | None = None
    failed: bool = False  # it gave no answer, so it cannot be accepted
    price: float | None = None  # of the call; None: the expected one


@dataclass(frozen=True, eq=False)
class Step:
    """Where one query stands: `ask` names the expert to ask next; if it is None, `accept` names the one whose answer to give.
    Both are None if all experts failed. A step never changes: `answered` and `failed` return the next one.

        step = router.begin("Which is larger, 9.9 or 9.11?")
        while step.ask is not None:
            step = step.answered(call(step.ask))
        print(step.accept)

    chance: that the best answer so far is right, None before any. cap: on the prices of all calls, as in training."""

    router: TrainedRouter
    outputs: Tensor  # [1, num_outputs]
    said: tuple[Said, ...] = ()
    cap: float | None = None

    def __repr__(self) -> str:
        chance = None if self.chance is None else round(self.chance, 3)
        now = f"ask={self.ask!r}, accept={self.accept!r}, chance={chance}"
        return f"Step(asked={list(self.asked)}, {now}, spent={self.spent:.6g})"

    @property
    def ask(self) -> str | None:
        return None if self._move[0] < 0 else self.router.experts[self._move[0]]

    @property
    def accept(self) -> str | None:
        return None if self._move[1] < 0 or self._move[0] >= 0 else self.router.experts[self._move[1]]

    @property
    def chance(self) -> float | None:
        return self._move[2] if self._move[1] >= 0 and self._move[2] >= 0 else None

    @property
    def asked(self) -> tuple[str, ...]:
        return tuple(self.router.experts[one.expert] for one in self.said)

    @property
    def spent(self) -> float:
        """The prices of the calls so far, in the unit of the prices in training: expected ones, where they were not told."""
        return sum(self._prices[one.expert] if one.price is None else one.price for one in self.said)

    def answered(
        self,
        answer: str | None,
        *,
        confidence: float | None = None,
        length: int | None = None,
        price: float | None = None,
    ) -> "Step":
        """The expert has answered. length: of its whole output (default: of the answer). price: default: the expected one."""
        return replace(self, said=(*self.said, Said(self._next, answer, confidence, length, price=price)))

    def failed(self, *, price: float = 0.0) -> "Step":
        """The expert that was to be asked gave no answer; the plan goes on without it. price: of this call."""
        return replace(self, said=(*self.said, Said(self._next, failed=True, price=price)))

    @property
    def _next(self) -> int:
        if self._move[0] < 0:
            raise ParameterError("answer", "no expert is to be asked; this query is decided")
        return self._move[0]

    @cached_property
    def _prices(self) -> list[float]:
        return expected_prices(self.router, self.outputs)

    @cached_property
    def _move(self) -> tuple[int, int, float]:
        """The expert to ask or −1, the one to accept or −1, and the chance that it is right or −1."""
        p = len(self.router.experts)
        here, failed = {one.expert for one in self.said}, {one.expert for one in self.said if one.failed}
        blocked = [self.cap is not None and self.spent + price > self.cap for price in self._prices]
        planner, name = plan_of(self.router)
        chances = torch.full((p,), -1.0)
        if planner is None:
            first = int(decide_outputs(self.router, self.outputs)[1])
            move, answer = (-1, first) if first in here else (first, first)
        else:
            asked = torch.tensor([[k in here for k in range(p)]])
            view = planner.view(self.outputs[:, :p].float(), replies_of(self.said, p, agreement_of(self.router)))
            chances = chances_of(planner.chances[-1], view, asked)[0]
            chances[list(failed)] = -1.0
            moves, answers = planner.plans[name](view, asked, chances[None], torch.tensor([blocked]))
            move, answer = int(moves), int(answers)
        if move >= 0 and (blocked[move] or move in here):
            move = -1
        if move < 0 and (answer in failed or answer not in here):
            left = [k for k in range(p) if k not in here and not blocked[k]]
            good = [one.expert for one in self.said if not one.failed]  # among equals, the first that was asked
            answer = max(good, key=lambda k: float(chances[k]), default=-1)
            move = min(left, key=self._prices.__getitem__, default=-1) if answer < 0 else -1
        return move, answer, float(chances[answer])


def agreement_of(router: TrainedRouter) -> Agreement:
    return Agreement(router.config["dataset"].get("agree") or "exact")


def replies_of(said: Sequence[Said], p: int, agreement: Agreement) -> Replies:
    """The answers to one query. Experts that were not asked have none."""
    by_expert, signals = {one.expert: one.answer for one in said}, torch.full((1, p, 2), torch.nan)
    for one in said:
        length = len(one.answer) if one.length is None and one.answer is not None else one.length
        known = [torch.nan if value is None else float(value) for value in (length, one.confidence)]
        signals[0, one.expert] = torch.tensor(known)
    signals[:, :, 0] = signals[:, :, 0].log1p()
    return Replies(torch.from_numpy(agreement.kinds([[by_expert.get(k) for k in range(p)]])), signals)


def given_replies(router: TrainedRouter, answers: Any, n: int) -> Replies:
    said = read_said(answers, (n, len(router.experts)), router.experts)
    if said is None:
        raise ParameterError("answers", "missing; this router decides by what experts answer")
    return said.replies(np.ones((n, len(router.experts)), dtype=bool), agreement_of(router))


def expected_prices(router: TrainedRouter, outputs: Tensor) -> list[float]:
    """The expected price of a call to each expert, in the unit of the prices in training."""
    listed = router.prices.listed
    found = router.method.expected_prices(outputs) if listed is None else torch.tensor([listed])
    prices = [0.0] * len(router.experts) if found is None else found[0].tolist()
    return [router.prices.amount(price) for price in prices]


def unit_of(router: TrainedRouter) -> float:
    """One unit of the planner, whose errors are from 0 to 1, in units of one error."""
    assert isinstance(router.method, CostRegression)
    return float(router.method.most - router.method.least)


def repriced_plan(router: R, given: PriceList | None, budget: float | None, confidence: float | None) -> R:
    """See Router.at. Plans are made anew at these prices, and the one of least cost on the training rows is followed, judged by
    estimates that did not see the row; within a budget, of those at multiples of the prices whose mean spend is within it."""
    network, experts = copy.deepcopy(router.network), router.experts
    planner = planner_of(network)
    assert planner is not None
    unit, listed = unit_of(router), router.prices.listed
    paid = planner.paid
    if given is not None:
        listed = tuple(router.prices.listed_from(given, experts))
        paid = (torch.tensor(listed) / unit).expand_as(planner.right).contiguous()
    level = None if budget is None else router.prices.in_errors(budget) / unit
    with one_thread_if_small(paid.numel()):
        tried = candidates(planner, paid, 1.0)
        if level is not None and tried[-1].most(confidence) > level:
            tried += made_cheaper(planner, paid, level, confidence)
        within = [one for one in tried if level is None or one.most(confidence) <= level]
        if not within:
            cheapest = router.prices.short(float(router.prices.amount(paid.mean(dim=0).min() * unit)))
            raise ParameterError("budget", f"nobody is asked for less than {cheapest}", budget)
        chosen = min(within, key=lambda one: one.cost)
        planner.plan_at(paid, chosen.factor)
    singles, best = planner.right.shape[1], min(range(len(experts)), key=lambda k: tried[k].cost)
    gain, error = paired((tried[best].costs - chosen.costs).double())
    single = chosen.place < singles
    guard = Guard(None, chosen.place if single else None, best, gain, error)
    name = None if single else plan_names(singles)[chosen.place - singles]
    point = None if budget is None else point_of(router, chosen, budget, confidence, guard)
    method = copy.deepcopy(router.method)
    if given is not None and listed is not None:
        method.reprice(torch.tensor(listed))
    described = replace(router.description, prices=listed, guard=guard, plan=name)
    parts: dict[str, Any] = {"network": network, "method": method, "description": described}
    return replace(router, **parts, validation=None, operating_point=point)


@dataclass(frozen=True)
class Candidate:
    """An expert or a plan, judged on the training rows by estimates that did not see the row."""

    place: int  # among the experts, then the plans
    factor: float  # on the prices, to make the plan
    costs: Tensor  # [n], at the prices themselves, in the planner's unit
    spent: Tensor

    @property
    def cost(self) -> float:
        return float(self.costs.mean())

    def most(self, confidence: float | None) -> float:
        mean, error = paired(self.spent.double())
        return mean + (0.0 if confidence is None else NormalDist().inv_cdf(confidence) * (error or 0.0))


def made_cheaper(planner: Planner, paid: Tensor, level: float, confidence: float | None) -> list[Candidate]:
    """Plans made at larger multiples of the prices, and between the last one that spends more than the level and the next."""
    found, dearer, cheaper = list[Candidate](), 1.0, 1.0
    for factor in FACTORS[1:]:
        found += candidates(planner, paid, factor)
        if found[-1].most(confidence) <= level:
            cheaper = factor
            break
        dearer = factor
    for _ in range(HALVINGS if cheaper > 1 else 0):
        middle = (dearer * cheaper) ** 0.5
        found += candidates(planner, paid, middle)
        dearer, cheaper = (dearer, middle) if found[-1].most(confidence) <= level else (middle, cheaper)
    return found


def candidates(planner: Planner, paid: Tensor, factor: float) -> list[Candidate]:
    """The experts first, then the plans made at these prices times the factor."""
    planner.plan_at(paid, factor)
    costs, spent = planner.alone(paid)
    found = list(zip(costs.T, spent.T, strict=True))
    found += [planner.judged(plan, paid) for plan in planner.plans.values()]
    return [Candidate(place, factor, *one) for place, one in enumerate(found)]


def point_of(
    router: TrainedRouter, chosen: Candidate, budget: float, confidence: float | None, guard: Guard
) -> OperatingPoint:
    unit = unit_of(router)
    pairs = (paired(part.double() * unit) for part in (chosen.costs - chosen.spent, chosen.spent))
    (wrong, wrong_se), (spend, spread) = pairs
    mean, low, high = (float(router.prices.amount(spend + side * Z * (spread or 0.0))) for side in (0, -1, 1))
    beyond = float(router.prices.amount(spread or 0.0)) or 1e-12
    return OperatingPoint(
        *(budget, chosen.factor, mean, (low, high), 1 - NormalDist().cdf((budget - mean) / beyond)),
        *(wrong, wrong_se or 0.0, guard),
        rows=len(chosen.costs),
        crossed=True,
        allowed=tuple(range(len(router.experts))),
        confidence=confidence,
        unit=router.prices,
    )


def score_plan(
    router: TrainedRouter, outputs: Tensor, replies: Replies, errors: Tensor, prices: Tensor | None
) -> RouterScore:
    """errors [n, p]; prices [p] or [n, p], in units of one error, or None. The shares are of whose answers were given."""
    planner, name = plan_of(router)
    assert planner is not None
    n, p = errors.shape
    paid = torch.zeros(p, dtype=torch.float64) if prices is None else prices.double()
    alone, followed = errors.double() + paid, planner.followed(name, outputs[:, :p].float(), replies)
    cost, spent = followed.costs(errors.double(), paid)
    costs, each = torch.cat([alone, cost[:, None]], dim=1), torch.cat([paid.expand(n, p), spent[:, None]], dim=1)
    names = (*router.experts, name)
    score = score_decisions(torch.full((n,), p), costs, names, each, unit=router.prices, allowed=range(p))
    return replace(
        score,
        shares=shares_of(followed.answer, router.experts),
        oracle_loss=around(alone.min(dim=1).values)[0],
        single_losses={expert: score.single_losses[expert] for expert in router.experts},
        within_budget=None,
        oracle_shares=shares_of(alone.argmin(dim=1), router.experts),
    )


def begin(router: TrainedRouter, outputs: Tensor, cap: float | None) -> Step:
    if cap is not None and cap < min(prices := expected_prices(router, outputs)):
        raise ParameterError("cap", f"the cheapest expert costs {min(prices):g}", cap)
    return Step(router, outputs, cap=cap)
