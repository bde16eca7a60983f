"""Decisions for many clients: concurrent requests share a forward pass, and drift is watched."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from l2d.logs.decision import Refused
from l2d.router.choices import Choice, make_choices
from l2d.router.router import Router
from l2d.router.trained import outputs_of, readable_inputs
from l2d.utils.errors import L2DError

GATHER = 0.1  # of the last pass's time, to wait for others if it had several
LONGEST_WAIT = 0.01  # seconds
MOST_QUERIES = 64  # in one pass
MOST_WAITING = 1024  # requests; more are refused
WINDOW = 1000  # inputs whose distance counts
ENOUGH = 200  # of them, before a share is trusted
CLEARLY = 0.8  # of the limit


Asked = tuple[Router, Sequence[Any]]  # the queries of one request, and the router at the prices that it asks for


@dataclass(frozen=True)
class AnsweredTogether:
    """inputs: as the network takes them; outputs: its own. far: whether each is far from the training rows; None if not known."""

    choices: list[Choice]
    inputs: Tensor
    outputs: Tensor
    far: list[bool] | None


def decide_together(asked: Sequence[Asked]) -> list[AnsweredTogether | L2DError]:
    """One pass for all requests to the same network. If it fails, each request is tried alone: one bad query harms no other."""
    found: list[AnsweredTogether | L2DError] = []
    try:
        queries = [query for _, own in asked for query in own]
        first = asked[0][0]
        if any(router.network is not first.network for router, _ in asked):
            raise L2DError("requests to different runs")
        inputs, empty = readable_inputs(first, np.stack(queries) if first.description.kind == "image" else queries)
        outputs = outputs_of(first, inputs)
        far = None if first.training_inputs is None else first.training_inputs.far(inputs).tolist()
    except L2DError as error:
        return [error] if len(asked) == 1 else [decide_together([one])[0] for one in asked]
    # At the same prices, all requests share this step too.
    together = make_choices(first, outputs, empty) if all(router is first for router, _ in asked) else None
    start = 0
    for router, own in asked:
        rows = slice(start, start + len(own))
        choices = make_choices(router, outputs[rows], empty[rows]) if together is None else together[rows]
        found.append(AnsweredTogether(choices, inputs[rows], outputs[rows], None if far is None else far[rows]))
        start = rows.stop
    return found


class Batcher:
    """Gathers concurrent requests into one forward pass, in a thread. most: queries in one pass. observe: is told their number."""

    def __init__(self, most: int = MOST_QUERIES, observe: Callable[[int], object] = id) -> None:
        self.most, self.observe = most, observe
        self._waiting: deque[tuple[Asked, asyncio.Future[AnsweredTogether]]] = deque()
        self._pool = ThreadPoolExecutor(1, "decisions")
        self._working: asyncio.Task[None] | None = None
        self._seconds = 0.0  # of the last pass

    def stop(self) -> None:
        self._pool.shutdown()

    async def ask(self, router: Router, queries: Sequence[Any]) -> AnsweredTogether:
        """Raises L2DError for queries that the router cannot read, and Refused if too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            raise Refused(503, "too many requests wait; try again", "overload")
        answer: asyncio.Future[AnsweredTogether] = asyncio.get_running_loop().create_future()
        self._waiting.append(((router, queries), answer))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Pass after pass, until nobody waits."""
        wait = 0.0  # the other requests that are there already come first
        while self._waiting:
            await asyncio.sleep(wait)
            batch = [self._waiting.popleft()]
            number = len(batch[0][0][1])
            while self._waiting and number < self.most:
                batch.append(self._waiting.popleft())
                number += len(batch[-1][0][1])
            self.observe(number)
            asked, answers = zip(*batch, strict=True)
            found = await asyncio.get_running_loop().run_in_executor(self._pool, self._decide, asked)
            for answer, result in zip(answers, found, strict=True):
                if answer.done():  # the client has gone
                    continue
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
            # Those that were answered together ask again together.
            wait = min(GATHER * self._seconds, LONGEST_WAIT) if len(batch) > 1 and self.most > 1 else 0.0

    def _decide(self, asked: Sequence[Asked]) -> Sequence[AnsweredTogether | Exception]:
        begun = time.thread_time()  # not the time of day: others may use the processor
        try:
            return decide_together(asked)
        except Exception as error:  # a bug: the requests end with it, the server goes on
            return [error] * len(asked)
        finally:
            self._seconds = time.thread_time() - begun


class DriftMonitor:
    """The share of the last inputs that are far from the training rows. limit: beyond it the router is not followed, until the
    share is clearly below it: near the limit it would change with every query."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self.beyond = limit, False
        self._far: deque[bool] = deque(maxlen=WINDOW)

    def add(self, far: Sequence[bool] | None) -> None:
        self._far.extend(far or ())
        share = self.share
        if self.limit is not None and share is not None:
            self.beyond = share > (CLEARLY * self.limit if self.beyond else self.limit)

    @property
    def share(self) -> float | None:
        """None before there are enough inputs."""
        return sum(self._far) / len(self._far) if len(self._far) >= ENOUGH else None
