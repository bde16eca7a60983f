"""Event streams of answers: read as they pass, and told whether they are whole."""

import json
import re
from collections.abc import Mapping
from typing import Any

LONGEST_LINE = 1_000_000  # bytes, to look for the usage and the end
DONE, LINE_END = b"[DONE]", re.compile(rb"[\r\n]+")
LAST = ("response.completed", "response.incomplete", "response.failed", "error")  # events of /v1/responses


class EventStream:
    """The state of a stream that comes in pieces, each of which is looked at once. choices: how many answers were asked for.
    Of a line that is too long only the end is looked at."""

    def __init__(self, choices: int = 1) -> None:
        self.choices, self.size = choices, 0
        self.usage: Mapping[str, Any] | None = None
        self._ended, self._line, self._length = set[Any](), list[bytes](), 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        for place, part in enumerate(LINE_END.split(piece)):
            if place:
                self._end_line()
            if self._length + len(part) > LONGEST_LINE:
                self._line, self._length = [], 0
            self._line.append(part)
            self._length += len(part)

    def _end_line(self) -> None:
        usage, ended = read_line(b"".join(self._line))
        self.usage, self._ended = usage or self.usage, self._ended | ended
        self._line, self._length = [], 0

    def is_whole(self) -> bool:
        """True if all choices have ended, if nothing else comes."""
        self._end_line()
        return DONE in self._ended or len(self._ended) >= self.choices


def json_object(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def usage_in(answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    usage = answer.get("usage")
    return usage if isinstance(usage, dict) else None


def read_line(line: bytes) -> tuple[Mapping[str, Any] | None, set[Any]]:
    """Return the usage in one line of an event stream, if it has one, and the choices that end in it, with DONE if it is the last
    one: some servers leave that out."""
    content = line.removeprefix(b"data:").strip()
    if line.startswith(b"event:"):  # the last event of a response may be too long to be kept
        return None, {DONE} if line[6:].strip().decode("latin-1") in LAST else set()
    if not line.startswith(b"data:"):
        return None, set()
    if content == DONE:
        return None, {DONE}
    event = json_object(content) or {}
    if event.get("type") in LAST:
        response = event.get("response")
        return usage_in(response if isinstance(response, dict) else {}), {DONE}
    try:
        ended = {choice.get("index", 0) for choice in event["choices"] if choice.get("finish_reason")}
    except (AttributeError, KeyError, TypeError):
        ended = set()
    return usage_in(event), ended


def words_of(content: bytes, stream: bool) -> tuple[str, bool]:
    """The text of a completion or of a stream's chunks, and whether it calls tools."""
    lines = [line.removeprefix(b"data:") for line in LINE_END.split(content)] if stream else [content]
    said, tools = "", False
    for event in map(json_object, lines):
        try:
            choice = (event or {})["choices"][0]
            message = choice.get("message") or choice["delta"]
            said += message.get("content") or ""
            tools = tools or bool(message.get("tool_calls") or message.get("function_call"))
        except (AttributeError, LookupError, TypeError):
            continue
    return said, tools


def broken_event(problem: str) -> bytes:
    """An event that OpenAI clients raise as an error."""
    error = {"message": problem, "type": "upstream_error", "param": None, "code": None}
    return b"\n\ndata: " + json.dumps({"error": error}).encode() + b"\n\n"
