"""The course of a query along a plan: the router's steps, with a drawn first expert and a limit of calls; its form in the log."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import Any

import torch
from torch import Tensor

from l2d.data.agreement import as_text, normalised
from l2d.logs.decision import Call, Refused
from l2d.networks.estimators.planner import unplanned
from l2d.router.choices import Choice
from l2d.router.plans import Said, Step, agreement_of, begin, expected_prices, replies_of
from l2d.router.trained import TrainedRouter, plan_of
from l2d.server.bodies import AnswerBody
from l2d.server.served import ServeSettings
from l2d.utils.errors import L2DError, unknown
from l2d.utils.text import six_digits

PLAN = "plan"


@dataclass(frozen=True, eq=False)
class Course(Step):
    """turn: the expert to ask, where that is known: the first one may be drawn. propensity: of the first. alone: its answer is
    given, unless it fails. most: answers to look at. second: drawn with the chance `explore`, to be asked after the first."""

    turn: str | None = None
    propensity: float | None = None
    alone: bool = False
    most: int | None = None
    second: str | None = None
    explore: float = 0.0

    @cached_property
    def now(self) -> Step:
        """The plan's own step; without money for another call, if there may be none."""
        answers = sum(not one.failed for one in self.said)
        last = answers > 0 and (self.alone or (self.most is not None and answers >= self.most))
        return Step(self.router, self.outputs, self.said, -1.0 if last else self.cap)

    @property
    def drawn(self) -> str | None:
        """The expert to ask whatever the plan says."""
        first = len(self.said) == 1 and not self.said[0].failed
        return self.turn or (self.second if first else None)

    @property
    def ask(self) -> str | None:
        return self.drawn or self.now.ask

    @property
    def accept(self) -> str | None:
        return self.now.accept if self.drawn is None else None

    @cached_property
    def prices(self) -> dict[str, float]:
        found = zip(self.router.experts, expected_prices(self.router, self.outputs), strict=True)
        return {name: six_digits(price) or 0.0 for name, price in found}

    @property
    def affordable(self) -> list[str]:
        return [name for name, price in self.prices.items() if self.cap is None or price <= self.cap]

    @property
    def certain(self) -> bool:
        """True if the next answer is given whatever it says: nothing, something new at length, or what was said before."""
        before = next((one.answer for one in self.said if one.answer is not None), None)
        tried = [self.heard(None, length=0), self.heard("something else", length=10**9), self.heard(before)]
        try:
            return all(one.ask is None and one.accept == self.ask for one in tried)
        except L2DError:  # of the user's own rule
            return False

    def opened(self, first: str, by: str, propensity: float | None, rng: Random) -> "Course":
        """by: who decided about the first expert. If it was not the plan or exploration, its answer is given."""
        alone, others = self.alone or by not in (PLAN, "explore"), self.seconds(first)
        explore = self.explore if others and by in (PLAN, "explore", "router") and self.most != 1 else 0.0
        second = rng.choice(others) if rng.random() < explore else None
        return replace(self, turn=first, propensity=propensity, alone=alone, second=second, explore=explore)

    def seconds(self, first: str) -> list[str]:
        left = None if self.cap is None else self.cap - self.prices[first]
        return [name for name, price in self.prices.items() if name != first and (left is None or price <= left)]

    def chance_of_last(self) -> float | None:
        """The propensity of the last call, given the answers before it."""
        said = self.said
        if len(said) != 2 or not self.explore or said[0].failed:
            return self.propensity if len(said) == 1 else 1.0
        first, last = (self.router.experts[one.expert] for one in said)
        plans = replace(self, second=None, said=said[:1]).ask
        share = self.explore / len(self.seconds(first))
        return share + (1 - self.explore if plans == last else 0.0)

    def heard(self, answer: str | None, **more: Any) -> "Course":
        """The expert to ask has answered, or failed, as in Said. A failed call costs nothing, unless its price is given."""
        if more.get("failed"):
            more["price"] = more.get("price") or 0.0
        said = Said(self.router.experts.index(str(self.ask)), answer, **more)
        return replace(self, turn=None, said=(*self.said, said))

    def last_call(self, latency: float | None) -> Call:
        router, said = self.router, self.said
        kinds = replies_of(said, len(router.experts), agreement_of(router)).kinds[0].tolist()
        last, place = said[-1], len(said)
        same = next(one.expert for one in said if kinds[one.expert] == kinds[last.expert])
        expert = router.experts[last.expert]
        paid = self.prices[expert] if last.price is None else last.price
        length = len(last.answer) if last.length is None and last.answer is not None else last.length
        same_as = None if kinds[last.expert] < 0 else router.experts[same]
        return Call(place, expert, self.chance_of_last(), paid, latency, same_as, last.confidence, length)

    def state(self, variant: Any) -> str:
        """As the log keeps it. variant: of the router, see ServedRun.variant."""
        known = {"turn": self.ask, "propensity": self.propensity, "alone": self.alone, "variant": variant}
        known |= {"second": self.second, "explore": self.explore}
        said = [astuple(one) for one in self.said]
        return json.dumps({**known, "outputs": self.outputs.tolist(), "said": said})


def begun(
    router: TrainedRouter, choice: Choice, outputs: Tensor, settings: ServeSettings, alone: bool
) -> Course | None:
    """Before the first call; None for a router that asks one expert. A plan begins with another expert if the cap asks for it."""
    if unplanned(router.network) is None:
        return None
    explore = 0.0 if alone or choice.unread else settings.explore_second
    alone = alone or choice.unread or plan_of(router)[0] is None
    begin(router, outputs, settings.cap)  # refuses a cap below all prices
    course = Course(router, outputs, (), settings.cap, choice.expert, 1.0, alone, settings.most_calls, explore=explore)
    return course if choice.expert in course.affordable else replace(course, turn=course.now.ask)


def resumed(router: TrainedRouter, state: Mapping[str, Any], settings: ServeSettings) -> Course:
    """From what the log kept."""
    said = tuple(Said(*one) for one in state["said"])
    known = (settings.cap, state["turn"], state["propensity"], state["alone"], settings.most_calls)
    drawn = (state.get("second"), state.get("explore", 0.0))
    return Course(router, torch.tensor(state["outputs"]), said, *known, *drawn)


def kept_answer(answer: str | float | None, router: TrainedRouter) -> str | None:
    """An answer as a waiting plan keeps it: a digest, where that is enough to compare it."""
    text = as_text(answer)
    key = None if text is None or agreement_of(router).rule != "exact" else normalised(text)
    if key is None:
        return text
    number, *unit = key if isinstance(key, tuple) else (key,)
    known = number.normalize() if isinstance(number, Decimal) else number  # 4.0 is 4
    return "x" + hashlib.sha256(repr((known, unit)).encode("utf-8", "surrogatepass")).hexdigest()


def heard(course: Course, body: AnswerBody, id: str) -> Course:
    """The course after a reported answer. id: of the decision."""
    expert = body.expert
    if expert not in course.prices:
        raise L2DError(f"expert={expert[:64]}: {unknown('expert', expert[:64], [*course.prices])}")
    if expert != course.ask:
        why = "has answered" if expert in course.asked else "was not to be asked"
        raise Refused(409, f"expert={expert}: {why}; decision {id} waits for {course.ask}")
    if body.failed and body.answer is not None:
        raise L2DError("failed: the expert has no answer then; leave out one of the two")
    if not body.failed and "answer" not in body.model_fields_set:
        raise L2DError("answer: missing; null if the expert gave none, or failed: true")
    text = None if body.answer is None else str(body.answer)
    told: dict[str, Any] = {name: getattr(body, name) for name in ("confidence", "length", "failed", "price")}
    if body.length is None and text is not None:
        told["length"] = len(text)
    return course.heard(kept_answer(text, course.router), **told)


def comparable(chat: Mapping[str, Any]) -> bool:
    """True if answers to this chat request can be compared. Others go to one expert."""
    tools = any(chat.get(name) for name in ("tools", "functions"))
    roles = [message.get("role") for message in chat["messages"]]
    calls = "tool" in roles or "function" in roles or any(message.get("tool_calls") for message in chat["messages"])
    one_text = chat.get("n") in (None, 1) and chat.get("response_format") in (None, {"type": "text"})
    return one_text and not tools and not calls
