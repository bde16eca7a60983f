"""Errors as clients get them: OpenAI's form, and one line."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from l2d.logs.outcome_log import LogUnavailable, OutcomeRefused
from l2d.server.decisions import Overloaded
from l2d.server.gateway import AllFailed
from l2d.server.service import ReloadRefused, RouterService
from l2d.utils.errors import L2DError
from l2d.utils.parameters import SENTENCES

LONGEST_MESSAGE = 1000
RETRY = {"retry-after": "1"}
# By exception: its kind in l2d_errors_total, and the message.
REFUSALS: dict[type[Exception], tuple[str, str]] = {
    Overloaded: ("overload", "too many requests wait; try again"),
    LogUnavailable: ("log", "the log cannot be written, so nothing was decided or recorded; try again"),
}


def add_answers_to_mistakes(app: FastAPI, service: RouterService) -> None:
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
        service.count_error("upstreams")
        return problem(504 if {*error.failed.values()} == {"timeout"} else 502, str(error))

    async def unavailable(_: Request, error: Exception) -> JSONResponse:
        kind, message = REFUSALS[type(error)]
        service.count_error(kind)
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
    """True for the names of a union's members, which pydantic puts between the keys."""
    return isinstance(part, str) and (part in ("body", "str", "float") or part.startswith("~") or "[" in part)
