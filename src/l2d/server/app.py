"""The endpoints."""

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Header, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from pydantic import TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from l2d.logs.decision import Decision, ReportedOutcome, session_digest
from l2d.logs.readings import KeptReading, read_last_hour
from l2d.server.bodies import (
    AnswerBody,
    DecisionId,
    Messages,
    OneOrMany,
    OutcomeBody,
    OutcomesBody,
    PreviewBody,
    ReloadBody,
    RouteBody,
)
from l2d.server.boundary import Boundary, add_answers_to_mistakes, first_problem
from l2d.server.calls import CHAT, EMBEDDINGS, PATHS, Chat, json_object
from l2d.server.course import comparable
from l2d.server.gateway import Exchange, Gateway, unless_left
from l2d.server.served import about_decision, about_run
from l2d.server.service import ROUTED, RouterService
from l2d.utils.errors import L2DError, unknown
from l2d.utils.text import own_version

if TYPE_CHECKING:  # of the extra `otel`
    from l2d.server.telemetry import Telemetry

PAGE_FILE = Path(__file__).with_name("page.html")
LOCKED = {"cache-control": "no-cache", "referrer-policy": "no-referrer"}
KEPT_SECONDS = 5.0  # that an answer about the last hour is kept at least
MESSAGES: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(Messages)


def make_app(service: RouterService, telemetry: "Telemetry | None" = None) -> Boundary:
    gateway = Gateway(service)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with service.running(), gateway.running():
            yield
        if telemetry is not None:
            await asyncio.to_thread(telemetry.close)

    app = FastAPI(title="l2d", version=own_version(), docs_url=None, redoc_url=None, lifespan=running)
    add_answers_to_mistakes(app, service)
    add_decisions(app, service, gateway)
    add_gateway(app, service, gateway, telemetry)
    add_operation(app, service)
    add_page(app, service)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    return Boundary(app, service, paths)


def add_decisions(app: FastAPI, service: RouterService, gateway: Gateway) -> None:
    @app.post("/v1/route")
    async def route(body: RouteBody) -> JSONResponse:
        found = [about_decision(one) for one in await service.decide_for(body)]
        return JSONResponse(found[0] if body.inputs is None else {"decisions": found})

    @app.post("/v1/decisions/{id}/answers")
    async def answers(id: DecisionId, body: AnswerBody) -> JSONResponse:
        return JSONResponse(await service.take_answer(id, body))

    @app.post("/v1/outcomes")
    async def outcomes(body: OneOrMany) -> JSONResponse:
        given = body.outcomes if isinstance(body, OutcomesBody) else [body]
        new = await service.record([reported(one) for one in given])
        return JSONResponse({"recorded": new, "known": len(given) - new})

    @app.get("/v1/experts")
    async def experts() -> JSONResponse:
        now = (service.policy.drift.beyond, await service.left(), gateway.resting())
        about = about_run(service.runs.current, service.settings, *now)
        if (trial := service.runs.trial) is not None:
            about |= {"candidate": trial.about, "policy": [*about["policy"], trial.note]}
        return JSONResponse(about)


def reported(body: OutcomeBody) -> ReportedOutcome:
    if (body.correct is None) == (body.cost is None):
        raise L2DError("correct, cost: give one of the two")
    correct = None if body.correct is None else float(body.correct)
    if body.expert is not None and (body.price, body.latency) != (None, None):
        raise L2DError("price, latency: leave them out beside expert; the call has them")
    return ReportedOutcome(body.decision_id, correct, body.cost, body.price, body.latency, body.expert)


def add_gateway(app: FastAPI, service: RouterService, gateway: Gateway, telemetry: "Telemetry | None") -> None:
    @app.get("/v1/models")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [about_model(name) for name in service.model_names()]})

    @app.get("/v1/models/{name:path}")
    async def model_of(name: str) -> JSONResponse:
        if name not in service.model_names():
            raise no_such_model(name, service)
        return JSONResponse(about_model(name))

    async def pass_on(
        request: Request,
        x_l2d_session: Annotated[str | None, Header(max_length=256)] = None,
        x_l2d_reroute: Annotated[bool, Header()] = False,
        x_l2d_features: Annotated[str, Header(max_length=65_536)] = "{}",
    ) -> Response:
        began, path = time.time_ns(), request.scope["route"].path.removeprefix("/v1/")
        chat, session = read_chat(await request.body(), path), session_digest(x_l2d_session)
        model = chat.body["model"]
        if not gateway.servers:
            raise HTTPException(404, "this server has no upstreams; start it with --upstreams FILE")
        if model == ROUTED:
            messages, features = messages_of(chat), read_features(chat.body.get("metadata"), x_l2d_features)
            alone = path != CHAT or not comparable(chat.body)
            decision = await service.decide_chat(messages, features, session, not x_l2d_reroute, alone)
        elif model in gateway.servers:
            decision = await service.log_asked(model, session)
        else:
            raise no_such_model(model, service)
        way = Exchange(gateway, decision, chat)
        work = way.answer() if telemetry is None else telemetry.answer(way, request.headers, began)
        answer = await unless_left(request.receive, work)
        headers = {**answer.headers, **decision_headers(decision, way.expert, way.failed, way.asked)}
        if isinstance(answer.content, bytes):
            return Response(answer.content, answer.status, headers, answer.content_type)
        return StreamingResponse(answer.content, answer.status, headers, answer.content_type)

    for path in PATHS:
        app.post(f"/v1/{path}", response_model=None)(pass_on)


def no_such_model(name: str, service: RouterService) -> HTTPException:
    return HTTPException(404, f"model={name[:64]}: {unknown('model', name[:64], service.model_names())}")


def about_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "l2d"}


def read_chat(content: bytes, path: str) -> Chat:
    """The body is passed on as it is, so only what we read is checked."""
    body = json_object(content)
    if body is None:
        raise HTTPException(400, "the body is not JSON, or not an object")
    if not isinstance(body.get("model"), str):
        raise L2DError("model: must be a string")
    try:
        rest = json.dumps({name: value for name, value in body.items() if name != "model"}, allow_nan=False)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body has NaN or infinity, or is nested too deep") from None
    return Chat(body, rest.encode(), path)


def messages_of(chat: Chat) -> list[dict[str, Any]]:
    if chat.path == EMBEDDINGS:
        raise L2DError(f"model={ROUTED}: embeddings of different experts cannot be compared; name an expert")
    key = "messages" if chat.path == CHAT else "input"
    given = chat.body.get(key)
    if key == "input" and isinstance(given, str):
        given = [{"role": "user", "content": given}]
    try:
        return MESSAGES.validate_python(given)
    except ValidationError as errors:
        raise L2DError(first_problem(errors.errors(include_url=False), (key,))) from None


def read_features(metadata: Any, header: str) -> dict[str, Any]:
    """By column, from the metadata of a request and its header x-l2d-features, which counts more."""
    given = json_object(header.encode("latin-1"))
    if given is None:
        raise L2DError('x-l2d-features: must be a JSON object, such as {"tenant": "a"}')
    return {**(metadata if isinstance(metadata, dict) else {}), **given}


def decision_headers(
    decision: Decision, expert: str, failed: Mapping[str, Exception], prices: Mapping[str, float]
) -> dict[str, str]:
    """Header values are ASCII: other characters are percent-encoded."""
    cost = decision.expected_cost(expert)
    found = {
        "x-l2d-expert": expert,
        "x-l2d-decision-id": decision.id,
        "x-l2d-run": decision.run,
        "x-l2d-decided-by": "fallback" if failed and not decision.planned else decision.decided_by,
        "x-l2d-expected-cost": "" if cost is None else f"{cost:.6g}",
        "x-l2d-fallback": ", ".join(f"{name}={why}" for name, why in failed.items()),
        "x-l2d-asked": ",".join(f"{name}={price:.6g}" for name, price in prices.items()),
    }
    return {name: quote(value, safe=" !#$&'()*+,/:;=?@[]~") for name, value in found.items() if value}


def add_operation(app: FastAPI, service: RouterService) -> None:
    @app.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/ready")
    async def ready() -> JSONResponse:
        return JSONResponse({"status": "ready", "run": await service.ready()})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.show(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post("/admin/reload")
    async def reload(body: ReloadBody) -> JSONResponse:
        return JSONResponse({"run": await service.runs.reload(Path(body.run).expanduser(), body.force)})


def add_page(app: FastAPI, service: RouterService) -> None:
    """The page at /, and its requests: previews that leave no trace, and the last hour. It loads nothing from elsewhere."""
    content = PAGE_FILE.read_text(encoding="utf-8")
    headers = {**LOCKED, "content-security-policy": content_policy(content)}
    hour = KeptReading(read_last_hour, KEPT_SECONDS)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(content, headers=headers)

    @app.post("/v1/preview")
    async def preview(body: PreviewBody) -> JSONResponse:
        return JSONResponse(await service.preview(body))

    @app.get("/v1/hour")
    async def last_hour() -> JSONResponse:
        experts = service.runs.current.router.experts
        return JSONResponse(await hour.look(service.log.address, time.time(), experts))


def content_policy(page: str) -> str:
    """The page's own style and script, known by their hashes, and requests to this server; nothing else."""
    found = (re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[0] for tag in ("style", "script"))
    style, script = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in found)
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
