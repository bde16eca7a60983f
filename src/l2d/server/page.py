"""The page at /, and its requests: previews that leave no trace, and the last hour. It loads nothing from elsewhere."""

import base64
import hashlib
import re
import time
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse

from l2d.logs.readings import KeptReading, read_last_hour
from l2d.server.bodies import PreviewBody
from l2d.server.service import RouterService

PAGE_FILE = Path(__file__).with_name("page.html")
KEPT_SECONDS = 5.0  # that an answer about the last hour is kept at least
LOCKED = {"cache-control": "no-cache", "referrer-policy": "no-referrer"}


def add_page(app: FastAPI, service: RouterService) -> None:
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
