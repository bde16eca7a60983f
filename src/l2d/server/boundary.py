"""The boundary around every request: limits, tokens, counts and times."""

import asyncio
import hmac
import logging
import time
import traceback

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from l2d.server.problems import problem
from l2d.server.service import RouterService

BODY_SECONDS = 30.0  # in which a request must be there
DRAINED = 256_000_000  # bytes of a body that is too large, read so that the client gets the answer
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
            self.service.count_error("internal")
            # The message may hold a prompt: only the kind of the error and where it happened.
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            logger.error("%s %s: %s\n%s", scope["method"], endpoint, type(error).__name__, where)
        self.service.count_request(endpoint, status, time.perf_counter() - began)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal, most, body = self.without_token(scope), self.settings.largest_body, None
        if refusal is None:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await read_body(receive, most)
                if body is None:
                    refusal = problem(413, f"the body has more than {most:,} bytes")
            except TimeoutError:
                refusal = problem(408, f"the body did not arrive within {BODY_SECONDS:g} seconds")
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        events = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Event:
            return next(events, None) or await receive()

        await self.app(scope, replay, send)

    def without_token(self, scope: Scope) -> JSONResponse | None:
        """Return the refusal of a request without the right token."""
        settings, path = self.settings, scope["path"]
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
    """Return the body, or None if it is larger. It is read to its end, but not kept: else the client would not get the answer."""
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
