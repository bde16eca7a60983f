"""The boundary around every request: limits, tokens, counts and times; and errors in OpenAI's form, in one line."""

import asyncio
import hmac
import ipaddress
import logging
import re
import time
import traceback
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from l2d.logs.decision import LogUnavailable, Refused
from l2d.server.gateway import LEFT
from l2d.server.service import RouterService
from l2d.utils.errors import L2DError
from l2d.utils.parameters import clearest_problem

BODY_SECONDS = 30.0  # in which a request must be there
LONGEST = 3600.0  # seconds for a request in all; a client that reads nothing is cut off
NO_SNIFFING = (b"x-content-type-options", b"nosniff")  # a browser believes the content type of an answer
DRAINED = 256_000_000  # bytes of a body that is too large, read so that the client gets the answer
LONGEST_MESSAGE = 1000
ID = re.compile(r"^(/v1/decisions/)[^/]+(/answers)$")  # of paths
MISTAKES = (L2DError, RequestValidationError, HTTPException, Refused, Exception)
logger = logging.getLogger("l2d.serve")


class Boundary:
    """Surrounds every request: reads its body within limits, asks for tokens, counts and times it, and lets no traceback out."""

    def __init__(self, app: ASGIApp, service: RouterService, paths: set[str]) -> None:
        self.app, self.service, self.paths = app, service, paths
        self.settings = service.settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()
        path = ID.sub(r"\1{id}\2", scope["path"])
        endpoint = path if path in self.paths else "other"
        status, ended = LEFT, False

        async def noting(event: Event) -> None:
            nonlocal status, ended
            if event["type"] == "http.response.start":
                status = event["status"]
                event["headers"] = [*event.get("headers", ()), NO_SNIFFING]
            ended = event["type"] == "http.response.body" and not event.get("more_body", False)
            await send(event)

        async def watching() -> Event:
            nonlocal status
            event = await receive()
            if event["type"] == "http.disconnect" and not ended:
                status = LEFT
            return event

        try:
            async with asyncio.timeout(LONGEST):
                await self.answer(scope, watching, noting)
        except asyncio.CancelledError:  # the server stops, and has waited long enough
            pass
        except Exception as error:  # the answer has been sent, or cannot be any more
            self.service.metrics.count_error("internal")
            # The message may hold a prompt: only the kind of the error and where it happened.
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            logger.error("%s %s: %s\n%s", scope["method"], endpoint, type(error).__name__, where)
        self.service.metrics.requests.labels(endpoint, str(status)).inc()
        self.service.metrics.seconds.labels(endpoint).observe(time.perf_counter() - began)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        try:
            self.check_place(scope, headers)
            self.check_token(scope, headers)
            check_type(scope, headers)
            body = await read_body(receive, self.settings.largest_body)
        except HTTPException as refusal:
            await problem(refusal.status_code, refusal.detail, refusal.headers)(scope, receive, send)
            return
        events = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Event:
            return next(events, None) or await receive()

        await self.app(scope, replay, send)

    def check_place(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request that a web page sent from another place, or to a name that somebody else gave to this machine. With a
        token there is no need: no page has it."""
        if self.settings.api_token is not None or not scope["path"].startswith("/v1/"):
            return
        host = headers.get(b"host", b"").decode("latin-1")
        name, origin = host_name(host), headers.get(b"origin")
        if not (name == "localhost" or name in self.settings.names or is_address(name)):
            raise HTTPException(403, "Host: not a name of this server; start it with --name, or set an API token")
        came = host if origin is None else origin.decode("latin-1").partition("://")[2]
        if came != host and host_name(came) not in self.settings.names:
            raise HTTPException(403, "Origin: a page from elsewhere; start the server with --name, or set an API token")

    def check_token(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        settings, path = self.settings, scope["path"]
        if path.startswith("/admin"):
            if settings.admin_token is None:
                raise HTTPException(403, "no admin token is set; see l2d serve --help")
            wanted: str | None = settings.admin_token
        else:
            wanted = settings.api_token if path.startswith("/v1/") else None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if wanted is None or (scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), wanted.encode())):
            return
        raise HTTPException(401, "the token is missing or wrong", {"www-authenticate": "Bearer"})


def check_type(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body of another type than JSON: a page from elsewhere may send those without asking."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if scope["method"] == "POST" and kind != b"application/json":
        raise HTTPException(415, "the body must be JSON, with the header content-type: application/json")


def host_name(host: str) -> str:
    """Without the port: localhost:8080, [::1]:8080."""
    return host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0].lower()


def is_address(name: str) -> bool:
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


async def read_body(receive: Receive, most: int) -> bytes:
    """The body. A larger one is read to its end, but not kept: else the client would not get the answer."""
    body, size, more = bytearray(), 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more and size <= max(most, DRAINED):
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise HTTPException(LEFT, "the client left")
                part, more = event.get("body", b""), event.get("more_body", False)
                size += len(part)
                if size <= most:
                    body += part
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {BODY_SECONDS:g} seconds") from None
    if size > most:
        raise HTTPException(413, f"the body has more than {most:,} bytes")
    return bytes(body)


def add_answers_to_mistakes(app: FastAPI, service: RouterService) -> None:
    async def answer(_: Request, error: Exception) -> JSONResponse:
        status, message, kind = described(error)
        if kind is not None:
            service.metrics.count_error(kind)
        known = error.retry_after if isinstance(error, Refused) else None
        after = known or (1 if status == 503 else None)
        return problem(status, message, None if after is None else {"retry-after": str(after)})

    for kind in MISTAKES:
        app.add_exception_handler(kind, answer)


def described(error: Exception) -> tuple[int, str, str | None]:
    """The status and the message; for errors that the client did not make, also the kind in l2d_errors_total."""
    match error:
        case RequestValidationError():
            found = error.errors()
            no_json = found[0]["type"] == "json_invalid"
            return (400, "the body is not JSON", None) if no_json else (422, first_problem(found), None)
        case HTTPException():
            return error.status_code, str(error.detail), None
        case Refused():
            return error.status, str(error), error.kind
        case LogUnavailable():
            return 503, "the log cannot be used; try again", "log"
        case L2DError():
            return 422, " ".join(str(error).split()), None
    return 500, f"internal error ({type(error).__name__})", None


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    readable = message[:LONGEST_MESSAGE].encode("utf-8", "replace").decode()  # half a surrogate pair is no UTF-8
    error = {"message": readable, "type": kind, "param": None, "code": None}
    return JSONResponse({"error": error}, status, dict(headers or {}))


def first_problem(errors: Any, before: tuple[str, ...] = ()) -> str:
    """One of pydantic's errors in one line, without the value: it may be long, or somebody's prompt."""
    found = clearest_problem(errors)
    place = ".".join(str(part) for part in (*before, *found.path) if part != "body")
    return f"{place or 'the body'}: {found.sentence}"
