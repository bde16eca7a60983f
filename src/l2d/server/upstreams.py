"""upstreams.yaml: where the gateway finds each expert."""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired

import yaml
from typing_extensions import TypedDict

from l2d.utils.errors import L2DError, ParameterError, unknown
from l2d.utils.parameters import NonNegative, Positive, check_value

TIMEOUT = 60.0
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
NUMBERS = {"timeout", "input_price", "output_price"}


class UpstreamEntry(TypedDict):
    """An entry of the file, by the expert's name. key_variable: the environment variable with the key. timeout: seconds to the
    first byte. Prices are per token, in the unit of the training prices."""

    base_url: str
    model: str
    key_variable: NotRequired[str | None]
    timeout: NotRequired[Positive]
    input_price: NotRequired[NonNegative]
    output_price: NotRequired[NonNegative]


# A type with its own config does not inherit the config of check_value.
UpstreamEntry.__pydantic_config__ = {"extra": "forbid", "strict": True, "allow_inf_nan": False}  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Upstream:
    """key: not shown, so that no message or log has it."""

    base_url: str
    model: str
    key: str | None = field(default=None, repr=False)
    timeout: float = TIMEOUT
    input_price: float | None = None
    output_price: float | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request to it. identity: the answer is passed on as it is."""
        key = {} if self.key is None else {"authorization": f"Bearer {self.key}"}
        return {"content-type": "application/json", "accept-encoding": "identity", **key}

    def price_of(self, usage: Mapping[str, Any] | None) -> float | None:
        """By the numbers of tokens in an answer; None if they or the prices are not known."""
        if not usage or (self.input_price is None and self.output_price is None):
            return None
        read, written = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
        if not all(isinstance(tokens, int) and tokens >= 0 for tokens in (read, written)):
            return None
        return float((self.input_price or 0) * read + (self.output_price or 0) * written)  # type: ignore[operator]


def read_upstreams(file: Path, experts: Sequence[str]) -> dict[str, Upstream]:
    """One for each expert. A mistake is one line with the file and the key."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = getattr(error, "problem_mark", None)
        line = "" if place is None else f", line {place.line + 1}"
        raise L2DError(f"{file}{line}: not YAML ({getattr(error, 'problem', None) or type(error).__name__})") from error
    try:
        if not isinstance(content, dict) or not content:
            raise ParameterError("", "must be a mapping from each expert to base_url, model, …")
        for name in content:
            if name not in experts:
                raise ParameterError(str(name), unknown("expert", str(name), experts))
        if missing := [name for name in experts if name not in content]:
            raise ParameterError("", f"no entry for {', '.join(missing)}")
        entries = {name: with_numbers(name, content[name]) for name in experts}
        check_value("", entries, dict[str, UpstreamEntry])
        return {name: read_upstream(name, entry) for name, entry in entries.items()}
    except ParameterError as error:
        raise L2DError(f"{file}: {str(error).lstrip('.')}") from error


def with_numbers(name: str, entry: Any) -> Any:
    """Whole numbers as floats, and 2e-6, which is text in YAML, as the number that it is. A misspelt key is an error."""
    if not isinstance(entry, dict):
        return entry
    for key in entry:
        if key not in UpstreamEntry.__annotations__:
            raise ParameterError(f"{name}.{key}", unknown("key", str(key), UpstreamEntry.__annotations__))
    found = dict(entry)
    for key in NUMBERS & found.keys():
        if type(found[key]) in (int, str):
            with contextlib.suppress(ValueError, OverflowError):
                found[key] = float(found[key])
    return found


def read_upstream(name: str, entry: UpstreamEntry) -> Upstream:
    url = entry["base_url"].rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ParameterError(f"{name}.base_url", "must begin with http:// or https://", url)
    variable = entry.get("key_variable")
    if variable is not None and not VARIABLE.fullmatch(variable):  # it may be the key: it is not shown
        problem = "must be the name of an environment variable (A to Z, 0 to 9, _), not the key itself"
        raise ParameterError(f"{name}.key_variable", problem)
    if variable is not None and not os.environ.get(variable):
        raise ParameterError(f"{name}.key_variable", "this environment variable is not set", variable)
    return Upstream(
        url,
        entry["model"],
        None if variable is None else os.environ[variable],
        entry.get("timeout", TIMEOUT),
        entry.get("input_price"),
        entry.get("output_price"),
    )
