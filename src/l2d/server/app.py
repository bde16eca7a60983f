"""The endpoints, and what surrounds every request: limits, tokens, metrics, errors of one line."""

import asyncio
import hmac
import json
import logging
import time
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import TypeAdapter, ValidationError
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from l2d.logs.outcome_log import LogUnavailable, OutcomeRefused, ReportedOutcome
from l2d.server.bodies import (
    Messages,
    OneOrMany,
    OutcomeBody,
    OutcomesBody,
    QueryBody,
    ReloadBody,
    RouteBody,
)
from l2d.server.decisions import Overloaded
from l2d.server.gateway import AllFailed, Gateway
from l2d.server.page import about_asking, add_page
from l2d.server.service import Decision, ReloadRefused, RouterService, price_of
from l2d.utils.errors import L2DError, unknown
from l2d.utils.parameters import SENTENCES
from l2d.utils.text import six_digits
from l2d.utils.version import own_version

ROUTED = "l2d"  # the model that means: choose
BODY_SECONDS = 30.0  # in which a request must be there
DRAINED = 256_000_000  # bytes of a body that is too large, read so that the client hears the answer
LONGEST_MESSAGE = 1000
RETRY = {"retry-after": "1"}
# By exception: what l2d_errors_total calls it, and what the client hears.
REFUSALS: dict[type[Exception], tuple[str, str]] = {
    Overloaded: ("overload", "too many requests wait; try again"),
    LogUnavailable: ("log", "the log cannot be written, so nothing was decided or recorded; try again"),
}
MESSAGES: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(Messages)
logger = logging.getLogger("l2d.serve")


def make_app(service: RouterService) -> "Boundary":
    gateway = Gateway(service)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        service.batcher.start()
        await service.try_to_follow()  # a worker that replaces another one begins with the run that the others serve
        following = asyncio.create_task(service.keep_following())
        yield
        following.cancel()
        await service.batcher.stop()
        await gateway.close()
        await asyncio.to_thread(service.log.close)  # here: after SIGTERM uvicorn does not come back

    app = FastAPI(title="l2d", version=own_version(), docs_url=None, redoc_url=None, lifespan=running)
    add_answers_to_mistakes(app, service)
    add_decisions(app, service)
    add_gateway(app, service, gateway)
    add_operation(app, service)
    add_page(app, service)
    paths = {route.path for route in app.routes if hasattr(route, "path")}
    return Boundary(app, service, paths)


def add_decisions(app: FastAPI, service: RouterService) -> None:
    @app.post("/v1/route")
    async def route(body: RouteBody) -> JSONResponse:
        found = [one.as_dict() for one in await service.decide_for(body)]
        return JSONResponse(found[0] if body.inputs is None else {"decisions": found})

    @app.post("/v1/outcomes")
    async def outcomes(body: OneOrMany) -> JSONResponse:
        given = body.outcomes if isinstance(body, OutcomesBody) else [body]
        new = await service.record([reported(one) for one in given])
        return JSONResponse({"recorded": new, "known": len(given) - new})

    @app.get("/v1/experts")
    async def experts() -> JSONResponse:
        router, upstreams = service.current.router, service.settings.upstreams
        return JSONResponse(
            {
                "run": service.current.name,
                "sees": router.sees,
                "guard": router.guard_note,
                **about_asking(service),
                "experts": [
                    {
                        "name": name,
                        "price": six_digits(price_of(router, name)),
                        "model": upstreams[name].model if name in upstreams else None,
                    }
                    for name in router.experts
                ],
            }
        )


def reported(body: OutcomeBody) -> ReportedOutcome:
    if (body.correct is None) == (body.cost is None):
        raise L2DError("correct, cost: give one of the two")
    correct = None if body.correct is None else float(body.correct)
    return ReportedOutcome(body.decision_id, correct, body.cost, body.price, body.latency)


def add_gateway(app: FastAPI, service: RouterService, gateway: Gateway) -> None:
    def model_names() -> list[str]:
        routed = [ROUTED] if service.settings.upstreams and service.current.router.kind == "text" else []
        return [*routed, *service.settings.upstreams]

    @app.get("/v1/models")
    async def models() -> JSONResponse:
        return JSONResponse({"object": "list", "data": [about_model(name) for name in model_names()]})

    @app.get("/v1/models/{name:path}")
    async def model_of(name: str) -> JSONResponse:
        if name not in model_names():
            raise HTTPException(404, f"model={name[:64]}: {unknown('model', name[:64], model_names())}")
        return JSONResponse(about_model(name))

    @app.post("/v1/chat/completions", response_model=None)
    async def completions(
        request: Request,
        x_l2d_session: Annotated[str | None, Header(max_length=256)] = None,
        x_l2d_reroute: Annotated[bool, Header()] = False,
    ) -> Response:
        body = read_chat(await request.body())
        if not service.settings.upstreams:
            raise HTTPException(404, "this server has no upstreams; start it with --upstreams FILE")
        model, run = body["model"], service.current
        if model == ROUTED:
            query = QueryBody(messages=body["messages"])
            [decision] = await service.decide(run, run.router, [query], x_l2d_session, x_l2d_reroute)
        elif model in service.settings.upstreams:
            decision = await service.log_asked(model, x_l2d_session)
        else:
            raise HTTPException(404, f"model={model[:64]}: {unknown('model', model[:64], model_names())}")
        found = await gateway.answer(decision, body)
        answer = found.answer
        headers = {**answer.headers, **decision_headers(decision, found.expert, found.failed)}
        if isinstance(answer.content, bytes):
            finish = BackgroundTask(gateway.finish, decision, found.expert, answer.usage, found.seconds, answer.status)
            return Response(answer.content, answer.status, headers, answer.content_type, finish)
        return StreamingResponse(answer.content, answer.status, headers, answer.content_type)


def about_model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "l2d"}


def read_chat(content: bytes) -> dict[str, Any]:
    """The body is passed on as it is, so only what we read is checked."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON") from error
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise L2DError("model: must be a string")
    try:
        MESSAGES.validate_python(body.get("messages"))
    except ValidationError as errors:
        raise L2DError(first_problem(errors.errors(include_url=False), ("messages",))) from None
    return body


def decision_headers(decision: Decision, expert: str, failed: Mapping[str, str]) -> dict[str, str]:
    """Header values are ASCII: other characters are percent-encoded."""
    cost = (decision.choice.expected_costs or {}).get(expert)
    found = {
        "x-l2d-expert": expert,
        "x-l2d-decision-id": decision.id,
        "x-l2d-run": decision.run,
        "x-l2d-decided-by": decision.drawn.by if not failed else "fallback",
        **({} if cost is None else {"x-l2d-expected-cost": f"{cost:.6g}"}),
        **({"x-l2d-fallback": ", ".join(f"{name}={why}" for name, why in failed.items())} if failed else {}),
    }
    return {name: quote(value, safe=" !#$&'()*+,/:;=?@[]~") for name, value in found.items()}


def add_operation(app: FastAPI, service: RouterService) -> None:
    @app.get("/health")
    async def health() -> JSONResponse:
        return JSONResponse({"status": "ok"})

    @app.get("/ready")
    async def ready() -> JSONResponse:
        await asyncio.wrap_future(service.log.check())
        return JSONResponse({"status": "ready", "run": service.current.name})

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics.show(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post("/admin/reload")
    async def reload(body: ReloadBody) -> JSONResponse:
        return JSONResponse({"run": await service.reload(Path(body.run).expanduser(), body.force)})


def add_answers_to_mistakes(app: FastAPI, service: RouterService) -> None:
    """Every error has OpenAI's form, and one line."""

    @app.exception_handler(L2DError)
    async def mistake(_: Request, error: L2DError) -> JSONResponse:
        return problem(422, " ".join(str(error).split()))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        found = error.errors()
        if found[0]["type"] == "json_invalid":
            return problem(400, "the body is not JSON")
        return problem(422, first_problem(found))

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail))

    @app.exception_handler(OutcomeRefused)
    async def unfit(_: Request, error: OutcomeRefused) -> JSONResponse:
        return problem(error.status, str(error))

    @app.exception_handler(ReloadRefused)
    async def kept(_: Request, error: ReloadRefused) -> JSONResponse:
        return problem(409, str(error))

    @app.exception_handler(AllFailed)
    async def failed(_: Request, error: AllFailed) -> JSONResponse:
        service.metrics.errors.labels("upstreams").inc()
        return problem(504 if {*error.failed.values()} == {"timeout"} else 502, str(error))

    async def unavailable(_: Request, error: Exception) -> JSONResponse:
        kind, message = REFUSALS[type(error)]
        service.metrics.errors.labels(kind).inc()
        return problem(503, message, RETRY)

    for kind in REFUSALS:
        app.add_exception_handler(kind, unavailable)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return problem(500, f"internal error ({type(error).__name__})")


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    readable = message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()  # half a surrogate pair is no UTF-8
    error = {"message": readable, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, dict(headers or {}))


def first_problem(errors: Any, before: tuple[str, ...] = ()) -> str:
    """One of pydantic's errors in one line, without the value: it may be long, or somebody's prompt."""
    error = max(errors, key=lambda error: len(error["loc"]))  # in a union: the branch that fits best
    place = ".".join(str(part) for part in (*before, *error["loc"]) if not is_branch_name(part))
    sentence = SENTENCES.get(error["type"])
    said = sentence.format(**error.get("ctx", {})) if sentence else error["msg"]
    if error["type"] == "model_attributes_type" and not place:
        said += ", with the header content-type: application/json"
    return f"{place or 'the body'}: {said}"


def is_branch_name(part: object) -> bool:
    """What pydantic puts between the keys: the names of a union's members."""
    return isinstance(part, str) and (part in ("body", "str", "float") or part.startswith("~") or "[" in part)


class Boundary:
    """Around every request: reads its body within limits, asks for tokens, counts and times it, and lets no traceback out."""

    def __init__(self, app: ASGIApp, service: RouterService, paths: set[str]) -> None:
        self.app, self.service, self.paths = app, service, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, metrics = time.perf_counter(), self.service.metrics
        endpoint = scope["path"] if scope["path"] in self.paths else "other"
        status = 499  # the client has gone

        async def noting(event: Event) -> None:
            nonlocal status
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)

        try:
            await self.answer(scope, receive, noting)
        except Exception as error:  # the answer has been sent, or cannot be any more
            metrics.errors.labels("internal").inc()
            # The message may hold a prompt: only the kind of the error and where it happened.
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            logger.error("%s %s: %s\n%s", scope["method"], endpoint, type(error).__name__, where)
        metrics.requests.labels(endpoint, str(status)).inc()
        metrics.seconds.labels(endpoint).observe(time.perf_counter() - began)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self.without_token(scope)
        body = None
        if refusal is None:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await read_body(receive, self.service.settings.largest_body)
            except TimeoutError:
                refusal = problem(408, f"the body did not arrive within {BODY_SECONDS:g} seconds")
            else:
                if body is None:
                    most = self.service.settings.largest_body
                    refusal = problem(413, f"the body has more than {most:,} bytes")
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        events = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Event:
            return next(events, None) or await receive()

        await self.app(scope, replay, send)

    def without_token(self, scope: Scope) -> JSONResponse | None:
        """An answer to those who may not ask."""
        settings, path = self.service.settings, scope["path"]
        if path.startswith("/admin"):
            if settings.admin_token is None:
                return problem(403, "no admin token is set; see l2d serve --help")
            wanted: str | None = settings.admin_token
        else:
            wanted = settings.api_token if path.startswith("/v1/") else None
        scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        if wanted is None or (scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), wanted.encode())):
            return None
        return problem(401, "the token is missing or wrong", {"www-authenticate": "Bearer"})


async def read_body(receive: Receive, most: int) -> bytes | None:
    """None if it is larger. It is read to its end, but not kept: otherwise the client would not hear the answer."""
    parts: list[bytes] = []
    size, more = 0, True
    while more and size <= DRAINED:
        event = await receive()
        if event["type"] == "http.disconnect":
            break
        part, more = event.get("body", b""), event.get("more_body", False)
        size += len(part)
        if size <= most:
            parts.append(part)
        else:
            parts.clear()
    return b"".join(parts) if size <= most else None
