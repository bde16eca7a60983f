"""What `l2d serve` is measured against, each as a process of its own:

python bench/bare.py upstream PORT        # answers every chat request at once
python bench/bare.py server PORT BEHIND LOG   # a bare endpoint, the same with a line in LOG that is on the disk before the
                                              # answer goes, and a bare proxy (FastAPI and httpx) of the upstream at BEHIND
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

ANSWER = {"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": {"content": "yes"}}]}
PIECES = 8


class Query(BaseModel):
    text: str


def upstream() -> FastAPI:
    app = FastAPI()
    whole = json.dumps(ANSWER).encode()
    pieces = [
        {"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "yes "}}]}
    ] * PIECES
    stream = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in pieces) + b"data: [DONE]\n\n"

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        if (await request.json()).get("stream"):
            return Response(stream, media_type="text/event-stream")
        return Response(whole, media_type="application/json")

    return app


def server(behind: str, log: str) -> FastAPI:
    app, lines = FastAPI(), Path(log).open("ab", buffering=0)  # noqa: SIM115
    client = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{behind}", limits=httpx.Limits(max_connections=100), timeout=60
    )

    @app.post("/v1/route")
    async def route(query: Query) -> dict[str, Any]:
        return {"expert": "a", "words": len(query.text.split())}

    @app.post("/v1/route/logged")
    async def logged(query: Query) -> dict[str, Any]:
        lines.write(query.model_dump_json().encode() + b"\n")
        os.fsync(lines.fileno())
        return await route(query)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.json()
        asked = client.build_request("POST", "/v1/chat/completions", json=body | {"model": "m"})
        answer = await client.send(asked, stream=True)
        kind = answer.headers["content-type"]
        if body.get("stream"):
            return StreamingResponse(answer.aiter_raw(), media_type=kind)
        return Response(await answer.aread(), media_type=kind)

    return app


if __name__ == "__main__":
    part, port, *behind = sys.argv[1:]
    uvicorn.run(
        upstream() if part == "upstream" else server(*behind), port=int(port), log_level="warning", access_log=False
    )
