"""The servers of the experts: upstreams.yaml names them. One that fails rests for a while, then one request tries it."""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import yaml
from annotated_types import MinLen
from prometheus_client import Gauge
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from l2d.utils.errors import NO_VALUE, L2DError, ParameterError
from l2d.utils.parameters import NonNegative, NonNegativeInt, Positive, clearest_problem

MOST_TOKENS = 10**9  # of one answer; who reports more is not believed
TOKENS = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))  # of chats, of responses
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
FAILURES = 3  # in a row, after which a server rests
LONGEST_REST = 3600.0  # seconds, whatever its retry-after says
TRYING = 1.0  # seconds to come back after, while another request tries it
RESTING = "resting"


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


UPSTREAMS: TypeAdapter[Any] = TypeAdapter(dict[str, Upstream | Annotated[list[Upstream], MinLen(1)]])


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


class UpstreamFailed(Exception):
    """Nothing of its answer was passed on. The message is a word or two: timeout, 429. retry_after: seconds. blamed: whether the
    server is to blame. answer: what it said, if a client may see that."""

    def __init__(self, why: str, retry_after: float | None = None, blamed: bool = True, answer: Any = None) -> None:
        super().__init__(why)
        self.retry_after, self.blamed, self.answer = retry_after, blamed, answer


class Deployment:
    """A server of an expert, as this process knows it. until: the end of its rest, None if it does not rest; then one request at a
    time tries it. resting: how many servers of the expert rest."""

    def __init__(self, name: str, upstream: Upstream, resting: Gauge) -> None:
        self.name, self.upstream, self.resting = name, upstream, resting
        self.failures, self.tried = 0, False
        self.until: float | None = None

    @property
    def wait(self) -> float:
        """Seconds until it may be asked; 0 if now."""
        left = 0.0 if self.until is None else self.until - time.monotonic()
        return TRYING if left <= 0 and self.tried else max(0.0, left)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Surrounds a call, and learns from its end. Requests that began before a rest do not end it."""
        if wait := self.wait:
            raise UpstreamFailed(RESTING, wait, blamed=False)
        self.tried = first = self.until is not None
        try:
            yield
        except UpstreamFailed as failure:
            if failure.blamed:
                self.fail(failure, first)
            elif first:  # it answers, if only that this request is not for it
                self.recover()
            raise
        else:
            if first or self.until is None:
                self.recover()
        finally:
            self.tried = self.tried and not first

    def fail(self, failure: UpstreamFailed, first: bool = False) -> None:
        """first: it was to show whether it is well again."""
        self.failures += 1
        if failure.retry_after is None and self.failures < FAILURES and not first:
            return
        seconds = self.upstream.rest if failure.retry_after is None else min(failure.retry_after, LONGEST_REST)
        if self.until is None:
            self.resting.inc()
            print(f"upstream {self.name} rests for {seconds:g} s ({failure})", file=sys.stderr, flush=True)
        self.until = max(self.until or 0.0, time.monotonic() + seconds)

    def recover(self) -> None:
        if self.until is not None:
            self.resting.dec()
            print(f"upstream {self.name} answers again", file=sys.stderr, flush=True)
        self.failures, self.until = 0, None
