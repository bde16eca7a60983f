"""Estimates of how right each expert will be, and on top of them a plan: whom to ask next, given what was said."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from l2d.core.plan import (
    MOST,
    SIMPLE,
    Followed,
    Plan,
    View,
    chances_of,
    follow,
    in_turn,
    least_cost,
    one_choice,
    simple_candidates,
    simple_plan,
)
from l2d.core.plan_learning import Rows, induct, learn_chances
from l2d.core.plan_log import off_policy, reached, supported, turns_of
from l2d.core.replies import Asks, Replies
from l2d.networks.estimators.best import MIXED, NETWORK, SINGLE, Best
from l2d.networks.estimators.estimator import FitRows, squared
from l2d.networks.estimators.mixture import Mixture, left_out_estimates
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.networks.estimators.perceptron import Perceptron
from l2d.networks.network import Network
from l2d.utils.errors import ParameterError
from l2d.utils.files import CANDIDATES, write_text
from l2d.utils.text import aligned

LEAST = 50  # rows on which all experts were asked; in a log, on which several were
CERTAIN = 1e-3  # chances are clamped this far from 0 and 1 before a logit
ONCE, LEARNED = "one choice", "plan"


def plan_names(p: int) -> tuple[str, ...]:
    """The plans that compete, the learned one last. Two experts need no third."""
    return (ONCE, *(SIMPLE if p > 2 else SIMPLE[:1]), LEARNED)


class Planner(Best):
    """chances, moves: see core/plan.py. simple [kinds, 4]: three experts, −1 for none, and the threshold of the best plan of each
    simple kind. factor: on the prices, to plan with. The training rows are kept to plan again at other prices: logits of estimates
    that did not see the row; paid, in units of `right`; costs of each expert and plan; turn and propensity of Asks, for a log."""

    mean: Tensor
    std: Tensor
    chances: Tensor
    moves: Tensor
    simple: Tensor
    factor: Tensor
    logits: Tensor
    kinds: Tensor
    signals: Tensor
    right: Tensor
    paid: Tensor
    costs: Tensor
    turn: Tensor
    propensity: Tensor

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.followings: dict[tuple[str, tuple[int, ...], float] | None, Followed] = {}

    def fit(self, rows: FitRows) -> None:
        check_rows(rows)
        super().fit(rows)
        replies, paid = rows.replies, rows.paid
        if replies is None or paid is None or not teaches_plans(replies):
            return
        whole = usable(rows.right, replies).nonzero().flatten()
        rows, replies, paid = rows.take(whole), replies[whole], paid.expand_as(rows.right)[whole]
        seen = replies.signals
        self.mean = seen.nanmean(dim=0).nan_to_num()
        spread = (seen - self.mean).square().nanmean(dim=0).sqrt()
        self.std = torch.where(spread > CERTAIN, spread, torch.inf)  # what never varied says nothing later
        self.logits = torch.logit(self.left_out_by_the_best(rows).clamp(CERTAIN, 1 - CERTAIN)).float()
        self.kinds, self.signals, self.right = replies.kinds, seen, rows.right.float()
        if (asks := replies.asks) is not None:
            self.right, self.turn, self.propensity = asks.right.float(), asks.turn, asks.propensity
        self.chances = learn_chances(self.view(self.logits, replies), self.right, self.seen)
        self.plan_at(paid.float().contiguous())

    @property
    def asks(self) -> Asks | None:
        """The calls on the training rows, if they are those of a log."""
        return Asks(self.turn, self.propensity, self.right) if len(self.turn) else None

    @property
    def seen(self) -> Tensor | None:
        return None if self.asks is None else reached(self.asks)

    def best_of(self, losses: Mapping[str, Tensor], estimates: Mapping[str, Tensor], rows: FitRows) -> str:  # noqa: ARG002
        """A plan needs good chances, not only a good first choice: the least squared error."""
        return min(estimates, key=lambda name: float(squared(estimates[name], rows.right.to(estimates[name])).mean()))

    def left_out_by_the_best(self, rows: FitRows) -> Tensor:
        """The estimates of the chosen candidate for rows that it was not fitted to, [n, p]."""
        name, member = self.names[int(self.chosen)], self.member
        kinds = [Perceptron if part == NETWORK else SINGLE[part] for part in MIXED.get(name, (name,))]
        weights = member.weights if isinstance(member, Mixture) else torch.ones(1)
        return torch.einsum("m,mnp->np", weights, left_out_estimates(kinds, rows))

    @cached_property
    def training_rows(self) -> Rows:
        """Made once: prices change nothing."""
        return Rows.of(self.view(self.logits, Replies(self.kinds, self.signals)), self.right, self.chances, self.seen)

    def view(self, logits: Tensor, replies: Replies) -> View:
        signals = ((replies.signals - self.mean) / self.std).nan_to_num().clamp(-5, 5)
        return View(logits.float(), replies.kinds, signals)

    def plan_at(self, paid: Tensor, factor: float = 1.0) -> None:
        """Induction, and the best plan of each simple kind, at these prices [n, p] of the training rows, times the factor."""
        self.paid, self.factor = paid, torch.tensor(factor)
        paid = paid * factor
        self.moves = induct(self.training_rows, paid)
        found, costs = [], [self.alone(paid)[0]]
        for kind in plan_names(self.right.shape[1])[1:-1]:
            tried = simple_candidates(kind, self.right, paid)
            each = torch.stack([self.judged(simple_plan(kind, *one), paid, (kind, *one))[0] for one in tried], dim=1)
            best = int(each.mean(dim=0).argmin())
            experts, threshold = tried[best]
            found.append([*experts, *[-1] * (3 - len(experts)), threshold])
            costs.append(each[:, [best]])
        self.simple = torch.tensor(found)
        once, learned = (self.judged(self.plans[name], paid)[0][:, None] for name in (ONCE, LEARNED))
        self.costs = torch.cat([costs[0], once, *costs[1:], learned], dim=1)

    def judged(
        self, plan: Plan, paid: Tensor, name: tuple[str, tuple[int, ...], float] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Costs and prices of a plan on the training rows, by estimates that did not see them. name: of a simple plan."""
        rows, errors = self.training_rows, 1 - self.right
        if self.asks is not None:
            turns = turns_of(plan, rows.view, self.asks, rows.known)
            return off_policy(turns, errors, paid, self.asks) if supported(turns) else in_vain(paid)
        followed = self.followings.get(name) or rows.follow(plan)
        if name is not None:  # prices change nothing in these
            self.followings[name] = followed
        return followed.costs(errors, paid)

    def alone(self, paid: Tensor) -> tuple[Tensor, Tensor]:
        """The same of each expert, [n, p] both."""
        if self.asks is None:
            return 1 - self.right + paid, paid
        found = [self.judged(in_turn([k], 0.0), paid) for k in range(self.right.shape[1])]
        costs, spent = (torch.stack(part, dim=1) for part in zip(*found, strict=True))
        return costs, spent

    @property
    def plans(self) -> dict[str, Plan]:
        names, found = plan_names(self.right.shape[1]), {ONCE: one_choice(self.factor * self.paid.mean(dim=0))}
        for kind, (*experts, threshold) in zip(names[1:-1], self.simple.tolist(), strict=True):
            found[kind] = simple_plan(kind, [int(k) for k in experts if k >= 0], threshold)
        floor = None if self.asks is None else self.factor * self.paid.mean(dim=0)
        return {**found, LEARNED: least_cost(self.moves, floor)}

    def followed(self, name: str, logits: Tensor, replies: Replies) -> Followed:
        view, weights = self.view(logits, replies), self.chances[-1]
        return follow(self.plans[name], view, lambda rows, asked: chances_of(weights, view.take(rows), asked))

    def outcomes(self, logits: Tensor, replies: Replies, errors: Tensor, prices: Tensor) -> tuple[Tensor, Tensor]:
        """Costs and prices of each plan on rows that it did not learn from, [n, plans]. errors: of a log, those that it has."""
        found = [self.outcome(name, logits, replies, errors, prices) for name in self.plans]
        costs, spent = (torch.stack(part, dim=1) for part in zip(*found, strict=True))
        return costs, spent

    def outcome(
        self, name: str, logits: Tensor, replies: Replies, errors: Tensor, prices: Tensor
    ) -> tuple[Tensor, Tensor]:
        if replies.asks is None:
            return self.followed(name, logits, replies).costs(errors, prices)
        rows, plan = self.training_rows, self.plans[name]
        if self.asks is not None and not supported(turns_of(plan, rows.view, self.asks, rows.known)):
            return in_vain(prices.expand_as(errors))
        view, weights = self.view(logits, replies), self.chances[-1]
        turns = turns_of(plan, view, replies.asks, lambda rows, asked: chances_of(weights, view.take(rows), asked))
        return off_policy(turns, errors, prices, replies.asks)

    def keep(self, folder: Path) -> None:
        super().keep(folder)
        if not len(self.right):
            return
        file, rows = folder / CANDIDATES, list[list[str]]()
        members = [[int(k) + 1 for k in one[:3] if k >= 0] for one in self.simple.tolist()]
        for place, (name, plan) in enumerate(self.plans.items()):
            cost, spent = (float(part.mean()) for part in self.judged(plan, self.paid))
            asked = [str(k) for k in members[place - 1]] if 0 < place <= len(members) else ["any"]
            calls = float(self.judged(plan, torch.ones_like(self.paid))[1].mean())
            rows.append([name, ", ".join(asked), f"{cost:.4f}", f"{spent:.4f}", f"{calls:.2f}"])
        table = aligned(["plan", "experts, from 1", "cost", "of which price", "calls"], rows)
        write_text(file, f"{file.read_text(encoding='utf-8')}\n{table}\n")


def teaches_plans(replies: Replies) -> bool:
    """False if too few rows have several answers to learn a plan from: the router then makes one choice."""
    if replies.asks is None:
        return bool(((replies.kinds >= 0).sum(dim=1) > 1).any())
    return int(((replies.asks.turn >= 0).sum(dim=1) > 1).sum()) >= LEAST


def usable(right: Tensor, replies: Replies) -> Tensor:
    """The rows that a plan can learn from, bool [n]: all experts were asked or, in a log, any."""
    return ~right.isnan().any(dim=1) if replies.asks is None else (replies.asks.turn >= 0).any(dim=1)


def check_rows(rows: FitRows) -> None:
    """Refuse rows that teach no plan."""
    if rows.replies is None:
        raise ParameterError("", "needs what the experts answered: columns answer_NAME, or answers= of l2d.fit")
    if (p := rows.right.shape[1]) > MOST:
        raise ParameterError("", f"plans for at most {MOST} experts, and there are {p}; choose some, dataset.experts")
    left = int(usable(rows.right, rows.replies).sum())
    if teaches_plans(rows.replies) and left < LEAST:
        problem = f"needs {LEAST} rows to learn from on which all experts were asked, and {left} are left for training"
        raise ParameterError("", f"{problem}; use method=auto")


def in_vain(prices: Tensor) -> tuple[Tensor, Tensor]:
    """Costs and prices of a plan of which a log says nothing: as if all were asked, and wrong."""
    spent = prices.double().sum(dim=1)
    return 1 + spent, spent


def planner_of(network: Network) -> Planner | None:
    """None also for a planner whose rows taught it no plan: it makes one choice."""
    found = unplanned(network)
    return found if found is not None and len(found.right) else None


def unplanned(network: Network) -> Planner | None:
    """The planner of method=plan, whether it has a plan or not yet."""
    found = network.estimator if isinstance(network, EstimatorNetwork) else None
    return found if isinstance(found, Planner) else None
