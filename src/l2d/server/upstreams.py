"""upstreams.yaml: where the gateway finds each expert."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from annotated_types import MinLen
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from l2d.utils.errors import NO_VALUE, L2DError, ParameterError
from l2d.utils.parameters import ByForm, NonNegative, NonNegativeInt, Positive, clearest_problem

MOST_TOKENS = 10**9  # of one answer; who reports more is not believed
TOKENS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))  # of chats, of responses
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")


@dataclass(frozen=True, config=ConfigDict(extra="forbid", allow_inf_nan=False))
class Upstream:
    """An entry of the file, by the expert's name. key_variable: the environment variable with the key. timeout: seconds to the
    first byte. retries: how often it is asked again if it fails. rest: seconds in which it is not asked, after several failures.
    Prices are per token, in the unit of the training prices. Numbers may be text: 2e-6 is that in YAML."""

    base_url: str
    model: str
    key_variable: str | None = None
    timeout: Positive = 60.0
    input_price: NonNegative | None = None
    output_price: NonNegative | None = None
    retries: NonNegativeInt = 1
    rest: Positive = 30.0

    def url(self, path: str) -> str:
        return f"{self.base_url.rstrip('/')}/{path}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request to it. identity: the answer is passed on as it is."""
        key = {} if self.key_variable is None else {"authorization": f"Bearer {os.environ[self.key_variable]}"}
        return {"content-type": "application/json", "accept-encoding": "identity", **key}

    def price_of(self, usage: Mapping[str, Any] | None) -> float | None:
        """By the numbers of tokens in an answer; None if they or the prices are not known."""
        if not usage or (self.input_price is None and self.output_price is None):
            return None
        read, written = tokens_in(usage)
        if not all(isinstance(tokens, int) and 0 <= tokens <= MOST_TOKENS for tokens in (read, written)):
            return None
        return float((self.input_price or 0) * read + (self.output_price or 0) * written)


def tokens_in(usage: Mapping[str, Any]) -> tuple[Any, Any]:
    """The numbers of tokens that were read and written, as chats, responses and embeddings report it."""
    read, written = (usage.get(name, usage.get(other)) for name, other in TOKENS)
    return read, 0 if written is None and read == usage.get("total_tokens") else written


SeveralUpstreams = Annotated[list[Upstream], MinLen(1)]
UPSTREAMS = TypeAdapter(dict[str, Annotated[Any, ByForm(Upstream, SeveralUpstreams, Upstream)]])


def read_upstreams(file: Path, experts: Sequence[str]) -> dict[str, list[Upstream]]:
    """The servers of each expert. A mistake is one line with the file and the key."""
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        line = "" if mark is None else f", line {mark.line + 1}"
        raise L2DError(f"{file}{line}: not YAML") from error
    try:
        found = UPSTREAMS.validate_python(content)
        if {*found} != {*experts}:
            lacking = f"needs one entry for each expert ({', '.join(experts)}); has {', '.join(found)}"
            raise ParameterError("", lacking)
        several = {name: found[name] if isinstance(found[name], list) else [found[name]] for name in experts}
        for name, upstreams in several.items():
            for place, upstream in enumerate(upstreams):
                check_upstream(name if len(upstreams) == 1 else f"{name}.{place}", upstream)
        return several
    except ValidationError as errors:
        worst = clearest_problem(errors.errors(include_url=False))
        value = worst.value if worst.path else NO_VALUE
        problem = ParameterError(".".join(map(str, worst.path)), worst.sentence, value)
        raise L2DError(f"{file}: {problem}") from None
    except ParameterError as error:
        raise L2DError(f"{file}: {error}") from error


def check_upstream(name: str, upstream: Upstream) -> None:
    variable = upstream.key_variable
    if not upstream.base_url.startswith(("http://", "https://")):
        raise ParameterError(f"{name}.base_url", "must begin with http:// or https://", upstream.base_url)
    if variable is not None and not VARIABLE.fullmatch(variable):  # it may be the key: it is not shown
        problem = "must be the name of an environment variable (A to Z, 0 to 9, _), not the key itself"
        raise ParameterError(f"{name}.key_variable", problem)
    if variable is not None and not os.environ.get(variable):
        raise ParameterError(f"{name}.key_variable", "this environment variable is not set", variable)
