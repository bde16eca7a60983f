"""Answers that clients report: the plan of a decision goes on, in whichever process, and each answer counts once."""

import json
from typing import Any

from l2d.logs.operations import move_on, state_of
from l2d.logs.refusals import OutcomeRefused
from l2d.router.trained import TrainedRouter
from l2d.server.bodies import AnswerBody
from l2d.server.course import Course, kept_answer, resumed
from l2d.server.service import RouterService
from l2d.utils.errors import L2DError, unknown
from l2d.utils.text import six_digits


async def take_answer(service: RouterService, id: str, body: AnswerBody) -> dict[str, Any]:
    """Whom to ask next, or whose answer to give. Raises OutcomeRefused, L2DError, LogUnavailable."""
    while True:
        found = await service.log.done(state_of, id)
        if found is None:
            raise OutcomeRefused(404, f"decision_id={id[:64]}: no such decision; nothing was recorded")
        run, given, before = found
        if before is None:
            raise OutcomeRefused(409, f"decision_id={id}: waits for no answer; it ended with {given}")
        state = json.loads(before)
        course = heard(resumed(await router_of(service, run, state["variant"]), state, service.settings), body, id)
        call, ended = course.last_call(None), course.ask is None
        served = course.accept if ended and course.accept != given else None
        after = None if ended else course.state(state["variant"])
        if await service.log.done(move_on, id, before, after, call, served):
            break  # else another answer came meanwhile: look again
    service.metrics.count_spend(call.expert, call.price)
    if not ended:
        return {"ask": course.ask}
    service.metrics.calls.observe(call.place)
    return {"accept": course.accept, "chance": six_digits(course.now.chance)}


async def router_of(service: RouterService, run: str, variant: list[Any]) -> TrainedRouter:
    """The router that began the plan. Another server may have reloaded."""
    if run != service.runs.current.name:
        await service.look()
    for known in (service.runs.current, service.runs.previous):
        if known.name == run:
            return await service.router_at(known, *variant)
    now = service.runs.current.name
    raise OutcomeRefused(409, f"run={run}: it decided, and this server has {now} now; route again")


def heard(course: Course, body: AnswerBody, id: str) -> Course:
    expert = body.expert
    if expert not in course.prices:
        raise L2DError(f"expert={expert[:64]}: {unknown('expert', expert[:64], [*course.prices])}")
    if expert != course.ask:
        why = "has answered" if expert in course.asked else "was not to be asked"
        raise OutcomeRefused(409, f"expert={expert}: {why}; decision {id} waits for {course.ask}")
    if body.failed and body.answer is not None:
        raise L2DError("failed: the expert has no answer then; leave out one of the two")
    if not body.failed and "answer" not in body.model_fields_set:
        raise L2DError("answer: missing; null if the expert gave none, or failed: true")
    text = None if body.answer is None else str(body.answer)
    told: dict[str, Any] = {name: getattr(body, name) for name in ("confidence", "length", "failed", "price")}
    if body.length is None and text is not None:
        told["length"] = len(text)
    return course.heard(kept_answer(text, course.router), **told)
