"""A router that may ask again after it has seen an answer: its steps and its score."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.budget import ROUNDING
from l2d.core.plan import chances_of
from l2d.core.replies import Replies
from l2d.data.agreement import Agreement, as_text
from l2d.data.given import read_said
from l2d.router.choices import amounts, ranked
from l2d.router.score import RouterScore, around, score_decisions, shares_of
from l2d.router.trained import TrainedRouter, decide_outputs, plan_of
from l2d.utils.errors import ParameterError


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
        self, answer: object, *, confidence: float | None = None, length: int | None = None, price: float | None = None
    ) -> "Step":
        """The expert has answered. length: of its whole output (default: of the answer). price: default: the expected one."""
        check_price(price)
        return replace(self, said=(*self.said, Said(self._next, as_text(answer), confidence, length, price=price)))

    def failed(self, *, price: float = 0.0) -> "Step":
        """The expert that was to be asked gave no answer; the plan goes on without it. price: of this call."""
        check_price(price)
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
        most = float("inf") if self.cap is None else self.cap * (1 + ROUNDING)
        blocked = [self.spent + price > most for price in self._prices]
        planner, name = plan_of(self.router)
        chances = torch.full((p,), -1.0)
        if planner is None:
            [order] = ranked(self.router, self.outputs, decide_outputs(self.router, self.outputs)[1])
            move, answer = (-1, order[0]) if order[0] in here else (order[0], order[0])
        else:
            order = sorted(range(p), key=self._prices.__getitem__)
            asked = torch.tensor([[k in here for k in range(p)]])
            view = planner.view(self.outputs[:, :p].float(), replies_of(self.said, p, agreement_of(self.router)))
            chances = chances_of(planner.chances[-1], view, asked)[0]
            chances[list(failed)] = -1.0
            moves, answers = planner.plans[name](view, asked, chances[None], torch.tensor([blocked]))
            move, answer = int(moves), int(answers)
        if move >= 0 and (blocked[move] or move in here):
            move = -1
        if move < 0 and (answer in failed or answer not in here):
            left = (k for k in order if k not in here and not blocked[k])
            good = [one.expert for one in self.said if not one.failed]  # among equals, the first that was asked
            answer = max(good, key=lambda k: float(chances[k]), default=-1)
            move = next(left, -1) if answer < 0 else -1
        return move, answer, float(chances[answer])


def check_price(price: float | None) -> None:
    if price is not None and not 0 <= price < float("inf"):
        raise ParameterError("price", "must be a number of at least 0", price)


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
    found = amounts(router, outputs)
    return [0.0] * len(router.experts) if found is None else found[0].tolist()


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
    if cap is not None and not cap * (1 + ROUNDING) >= min(prices := expected_prices(router, outputs)):
        raise ParameterError("cap", f"the cheapest expert costs {min(prices):g}", cap)
    return Step(router, outputs, cap=cap)
