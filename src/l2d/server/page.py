"""The page at /, and its requests: previews that leave no trace, and the last hour. It loads nothing from elsewhere."""

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse

from l2d.server.bodies import PreviewBody
from l2d.server.service import RouterService

PAGE_FILE = Path(__file__).with_name("page.html")
KEPT_SECONDS = 5.0  # that an answer about the last hour is kept at least
BUSY = 0.05  # the largest share of the time in which the log is read
LOCKED = {"cache-control": "no-cache", "referrer-policy": "no-referrer"}


def add_page(app: FastAPI, service: RouterService) -> None:
    content = PAGE_FILE.read_text(encoding="utf-8")
    headers = {**LOCKED, "content-security-policy": content_policy(content)}
    hour = LastHour(service.last_hour)

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(content, headers=headers)

    @app.post("/v1/preview")
    async def preview(body: PreviewBody) -> JSONResponse:
        return JSONResponse(await service.preview(body))

    @app.get("/v1/hour")
    async def last_hour() -> JSONResponse:
        return JSONResponse(await hour.read())


def content_policy(page: str) -> str:
    """The page's own style and script, known by their hashes, and requests to this server; nothing else."""
    found = (re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[0] for tag in ("style", "script"))
    style, script = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in found)
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


class LastHour:
    """The answer is kept for a while, longer if it took longer. So many pages cost no more than one, and a large log no more than a
    small one. count: reads the log, in a thread of its own."""

    def __init__(self, count: Callable[[], dict[str, Any]]) -> None:
        self.count = count
        self._reading = asyncio.Lock()
        self._found: dict[str, Any] = {}
        self._until = 0.0

    async def read(self) -> dict[str, Any]:
        async with self._reading:
            begun = monotonic()
            if begun >= self._until:
                self._found = await asyncio.to_thread(self.count)
                end = monotonic()
                self._until = end + max(KEPT_SECONDS, (end - begun) / BUSY)
            return self._found
