"""The page at /, and what it asks: previews that leave no trace, and the last hour. It loads nothing from elsewhere."""

import asyncio
import base64
import hashlib
import re
from pathlib import Path
from time import monotonic, time
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from l2d.logs.databases import connect
from l2d.logs.last_hour import count_last_hour
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.server.answers import ranking_of
from l2d.server.bodies import PreviewBody, read_query
from l2d.server.service import RouterService
from l2d.utils.errors import L2DError
from l2d.utils.text import six_digits

PAGE_FILE = Path(__file__).with_name("page.html")
KEPT_SECONDS = 5.0  # that an answer about the last hour is kept at least
BUSY = 0.05  # the largest share of the time in which the log is read
LOCKED = {
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def add_page(app: FastAPI, service: RouterService) -> None:
    content = PAGE_FILE.read_text(encoding="utf-8")
    headers = {**LOCKED, "content-security-policy": content_policy(content)}
    fitting, hour = asyncio.Lock(), LastHour(service)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(content, headers=headers)

    @app.post("/v1/preview")
    async def preview(body: PreviewBody) -> JSONResponse:
        run = service.current
        router, query = run.router, read_query(body, run.router.description)
        if body.prices is not None:
            async with fitting:  # one at a time: guards are fitted on the cores that decide
                router = await asyncio.to_thread(router.at, body.prices)
        [choice] = (await service.batcher.ask(router, [query])).choices
        return JSONResponse({**as_preview(choice), "guard_note": router.guard_note, "run": run.name})

    @app.get("/v1/hour")
    async def last_hour() -> JSONResponse:
        return JSONResponse(await hour.read())


def content_policy(page: str) -> str:
    """The page's own style and script, known by their hashes, and requests to this server; nothing else."""
    style, script = (re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[0] for tag in ("style", "script"))
    return (
        f"default-src 'none'; style-src {source_hash(style)}; script-src {source_hash(script)}; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_preview(choice: Choice) -> dict[str, Any]:
    return {
        "expert": choice.expert,
        "ranking": ranking_of(choice),
        "price_weight": six_digits(choice.price_weight),
        "guard": choice.guard,
    }


def about_asking(service: RouterService) -> dict[str, Any]:
    """What a client must know to ask: what a query is, and what a price counts."""
    router = service.current.router
    return {
        "kind": router.kind,
        "example": example_body(router),
        "currency": "" if router.unit.error_price is None else "$",
        "price_weight": six_digits(router.price_weight),
        "price_factor": six_digits(router.description.factor),
        "takes_prices": router.takes_prices,
        "policy": policy_notes(service),
    }


def example_body(router: Router) -> dict[str, Any] | None:
    """A query for /v1/route; None for images."""
    seen, text = router.description.seen, "What is this?"
    if router.kind == "image":
        return None
    if router.kind == "text":
        return {"text": text}
    if not seen.features:
        return {"features": [0.0] * router.description.shape[0]}
    return {"features": {**dict.fromkeys(seen.features, 0.0), **({} if seen.text is None else {seen.text: text})}}


def policy_notes(service: RouterService) -> list[str]:
    """Why the router's choice may not be the one that is served."""
    settings, found = service.settings, []
    if settings.shadow is not None:
        found.append(f"shadow: {settings.shadow} answers every query")
    if settings.explore:
        found.append(f"explore: {100 * settings.explore:.3g} % of the queries go to an expert that is drawn at random")
    if service.drift.beyond:
        router = service.current.router
        best = router.experts[router.guard.best]
        found.append(f"drift: many inputs are far from the training rows, so {best} takes the router's place")
    return found


class LastHour:
    """Read by a connection of its own, in a thread of its own: decisions go on. Kept for a while, the longer the more it took, so
    many pages cost no more than one, and a large log costs no more than a small one."""

    def __init__(self, service: RouterService) -> None:
        self.service = service
        self._reading = asyncio.Lock()
        self._found: dict[str, Any] = {}
        self._until = 0.0

    async def read(self) -> dict[str, Any]:
        async with self._reading:
            begun = monotonic()
            if begun >= self._until:
                self._found = await asyncio.to_thread(self._count)
                end = monotonic()
                self._until = end + max(KEPT_SECONDS, (end - begun) / BUSY)
            return self._found

    def _count(self) -> dict[str, Any]:
        try:
            database = connect(self.service.log.address)
        except L2DError as error:
            raise HTTPException(503, "the log cannot be read; try again") from error
        try:
            return count_last_hour(database, time(), self.service.current.router.experts)
        except database.errors as error:
            raise HTTPException(503, "the log cannot be read; try again") from error
        finally:
            database.close()
