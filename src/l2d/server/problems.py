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
from l2d.utils.parameters import clearest_problem

LONGEST_MESSAGE = 1000
RETRY = {"retry-after": "1"}
MISTAKES = (
    *(L2DError, RequestValidationError, HTTPException, OutcomeRefused, ReloadRefused),
    *(AllFailed, Overloaded, LogUnavailable, Exception),
)


def add_answers_to_mistakes(app: FastAPI, service: RouterService) -> None:
    async def answer(_: Request, error: Exception) -> JSONResponse:
        status, message, kind = described(error)
        if kind is not None:
            service.count_error(kind)
        return problem(status, message, RETRY if status == 503 else None)

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
        case OutcomeRefused() | ReloadRefused():
            return error.status, str(error), None
        case L2DError():
            return 422, " ".join(str(error).split()), None
        case AllFailed():
            return 504 if {*error.failed.values()} == {"timeout"} else 502, str(error), "upstreams"
        case Overloaded():
            return 503, "too many requests wait; try again", "overload"
        case LogUnavailable():
            return 503, "the log cannot be used, so nothing was decided or recorded; try again", "log"
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
    header = ", with the header content-type: application/json"
    return f"{place or 'the body'}: {found.sentence}{header if found.kind == 'model_attributes_type' and not place else ''}"
