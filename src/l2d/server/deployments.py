"""The servers of an expert: one that fails rests for a while, then one request tries whether it is well again."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import Gauge

from l2d.server.upstreams import Upstream

FAILURES = 3  # in a row, after which a server rests
LONGEST_REST = 3600.0  # seconds, whatever its retry-after says
TRYING = 1.0  # seconds to come back after, while another request tries it
RESTING = "resting"


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
