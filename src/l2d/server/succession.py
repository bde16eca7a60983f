"""Which run serves: reloads, also those of other servers with the same log, and a candidate that takes over."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from l2d.core.sequential import Difference, difference, difference_parts
from l2d.logs.decision import Compared, Refused
from l2d.logs.operations import add_run, add_swap, last_swap, swaps_before
from l2d.logs.outcome_log import OutcomeLog
from l2d.logs.readings import KeptReading, read_sums
from l2d.networks.estimators.planner import unplanned
from l2d.router.choices import Choice
from l2d.server.decisions import Batcher
from l2d.server.metrics import ServerMetrics
from l2d.server.policy import Policy, draw_expert, propensity
from l2d.server.served import FORCE, ServedRun, ServeSettings, about_inputs, check_settings, check_successor
from l2d.utils.errors import ParameterError
from l2d.utils.text import six_digits

Load = Callable[[Path], ServedRun]
CANDIDATE, CURRENT = "candidate", "current"  # who costs less


class Trial:
    """A candidate beside the router that serves: the log tells which of the two costs less. share: of the queries that it decides.
    promotes: whether the better router takes over by itself. A request's cost counts up to most: an error and the dearest price."""

    def __init__(
        self, run: ServedRun, candidate: ServedRun, share: float, settings: ServeSettings, promotes: bool
    ) -> None:
        self.run, self.candidate, self.share, self.promotes = run, candidate, share, promotes
        self.explore, prices = settings.explore, run.router.prices
        self.most = 1.0 + max(prices.listed or (float(prices.counted),))
        self.rate = float(prices.in_costs(1.0))
        self.bound = self.most / (self.explore / len(run.router.experts) + min(share, 1 - share) * (1 - self.explore))
        # The same runs at other prices are another trial.
        policies = [(one.raw, one.prices.listed, one.operating_point) for one in (run.router, candidate.router)]
        self.key = f"{candidate.name} {crc32(repr(policies).encode()):08x}"
        self.batcher = Batcher()
        self.found = Difference(0, 0.0, -self.bound, self.bound)
        self.sums = KeptReading(read_sums)

    async def choices(self, queries: Sequence[Any]) -> Sequence[Choice]:
        """The candidate's; none if it fails: the run decides, and the decisions are no part of the comparison."""
        try:
            return (await self.batcher.ask(self.candidate.router, queries)).choices
        except Exception:
            return ()

    def draw(
        self, pair: tuple[Choice, Choice], own: str, by: str, free: Sequence[str], rng: Random
    ) -> tuple[str, str, float, Compared]:
        """pair: the choices of the run and of the candidate. own: whom the run prefers. Return who gets the query, who decided
        that, the propensity under both, π(k) = (1 − share)·π_own(k) + share·π_other(k), and what the log keeps for the test."""
        other = next(name for name in pair[1].ranking if name in free)
        preferred, by = (other, CANDIDATE) if rng.random() < self.share else (own, by)
        expert, by, _ = draw_expert(preferred, by, free, self.explore, rng)
        chances = [propensity(expert, name, free, self.explore) for name in (own, other)]
        chance = (1 - self.share) * chances[0] + self.share * chances[1]
        expected = (self.expected(pair, name) for name in (other, own))
        parts = difference_parts(expert == other, expert == own, chance, *expected)
        return expert, by, chance, (self.key, other, self.bound, *parts)

    def expected(self, pair: tuple[Choice, Choice], expert: str) -> float:
        """The mean of both routers' expected costs of it; 0 if they estimate none."""
        known = [one.expected_costs[expert] for one in pair if one.expected_costs is not None]
        return min(max(sum(known) / len(known), 0.0), self.most) if known else 0.0

    async def look(self, address: Path | str) -> None:
        """Read the log, and say so if another router is better than before. Raises LogUnavailable."""
        asked = (address, self.run.name, self.key, self.bound, self.most, self.rate)
        n, total, squares = await self.sums.look(*asked)
        before = self.better
        self.found = difference(n, total, squares, self.bound) if n else self.found
        if self.better not in (None, before):
            print(self.note, file=sys.stderr, flush=True)

    @property
    def better(self) -> str | None:
        """The router that costs less; None if the interval contains 0."""
        return CANDIDATE if self.found.high < 0 else CURRENT if self.found.low > 0 else None

    @property
    def about(self) -> dict[str, Any]:
        found = {name: six_digits(getattr(self.found, name)) for name in ("mean", "low", "high")}
        told = {"run": self.candidate.name, "share": self.share, "outcomes": self.found.n}
        return {**told, **found, "better": self.better}

    @property
    def note(self) -> str:
        interval = "{mean:+.3g} ({low:+.3g} to {high:+.3g}) after {n:,} outcomes".format(**vars(self.found))
        verdict = {CANDIDATE: "it is better", CURRENT: "the run is better", None: "not clear yet"}[self.better]
        who = f"candidate: {self.candidate.name} decides {100 * self.share:.3g} % of the queries"
        return f"{who}; its mean cost differs by {interval}: {verdict}"


def make_trial(
    settings: ServeSettings, run: ServedRun, candidate: ServedRun, share: float, promotes: bool = False
) -> Trial:
    """Refuses a candidate that cannot take the run's place, and settings under which the two cannot be compared."""
    if not 0 < share < 1:
        raise ParameterError("share", "must be above 0 and below 1", share)
    theirs, ours = candidate.router, run.router
    facts = [f"{', '.join(one.experts)}; {one.description.sees}; {one.prices.unit}" for one in (theirs, ours)]
    if facts[0] != facts[1]:
        problem = f"its experts, inputs and unit of prices ({facts[0]}) must be those of the run ({facts[1]})"
        raise ParameterError("candidate", problem, candidate.name)
    if settings.shadow is not None or settings.capacity or any(unplanned(one.network) for one in (theirs, ours)):
        problem = "cannot be compared with shadow, capacity or a plan, where no single choice of a router counts"
        raise ParameterError("candidate", problem, candidate.name)
    check_settings(settings, theirs)
    return Trial(run, candidate, share, settings, promotes)


class Succession:
    """load: reads a run's folder, with the options of the first run. swaps: the number of reloads in the log when the first worker
    started; later ones are followed. None: from now on. reloaded: the run of the last reload in the log. trial: of a candidate
    beside the run; it ends when another run serves."""

    def __init__(
        self, run: ServedRun, log: OutcomeLog, policy: Policy, load: Load, swaps: int | None, trial: Trial | None
    ) -> None:
        self.current = self.previous = run  # plans that wait for an answer go on with the run that began them
        self.log, self.policy, self.load, self.metrics = log, policy, load, ServerMetrics()
        self.trial, self._reloading = trial, asyncio.Lock()
        self.metrics.run.labels(run.name).set(1)
        log.do(add_run, run.name, about_inputs(run.router)).result()
        last, self.reloaded = log.do(last_swap).result()
        self.swaps = last if swaps is None else swaps
        # A trial that began before goes on as if this server had never stopped: what ended it, holds.
        before = None if trial is None else log.do(swaps_before, run.name, trial.key, trial.bound).result()
        self.swaps = self.swaps if before is None else min(self.swaps, before)

    async def reload(self, folder: Path, force: bool) -> str:
        """Swap to another run, or refuse it. Other servers with this log follow; what began ends with the old one."""
        async with self._reloading:
            new = await asyncio.to_thread(self.load, folder)
            check_successor(self.policy.settings, self.current, new, force)
            about, before = new.router.description, self.current.router.description
            if about.kind != before.kind and not force:
                raise Refused(409, f"{folder}: it sees {about.sees}, not {before.sees}; {FORCE}")
            if about.guard.constant is not None and not new.router.raw and not force:
                raise Refused(409, f"{folder}: {new.router.guard_note}; {FORCE}")
            await self._swap(new)
            return new.name

    async def _swap(self, new: ServedRun) -> None:
        await self.log.done(add_run, new.name, about_inputs(new.router))
        self.swaps = await self.log.done(add_swap, new.name)
        self.swap_to(new)

    def swap_to(self, new: ServedRun) -> None:
        self.previous, self.current, self.trial = self.current, new, None
        self.policy.begin()
        self.metrics.run.labels(self.previous.name).set(0)
        self.metrics.run.labels(new.name).set(1)
        print(f"l2d serves {new.name} now", file=sys.stderr, flush=True)

    async def follow(self) -> None:
        """Swap to the run that another server with this log reloaded, if this one can serve it. Its guard was checked there."""
        async with self._reloading:
            number, run = await self.log.done(last_swap)
            if number <= self.swaps or run is None:
                return
            self.trial = None
            new = await asyncio.to_thread(self.load, Path(run))
            self.swaps = number  # a run that does not fit is refused once
            check_successor(self.policy.settings, self.current, new, force=True)
            self.swap_to(new)

    async def judge(self) -> None:
        """Say which router is better; let it take over if wanted. The log has all that counts, so a restart goes on."""
        if (trial := self.trial) is None:
            return
        await trial.look(self.log.address)
        for part in ("mean", "low", "high"):
            self.metrics.difference.labels(part).set(getattr(trial.found, part))
        if trial.promotes and trial.better is not None:
            async with self._reloading:
                if trial is self.trial:  # else another run serves meanwhile
                    await self._swap(trial.candidate if trial.better == CANDIDATE else trial.run)

    async def follow_and_judge(self) -> None:
        """In this order: a reload ends a trial, also if this server cannot follow it."""
        await self.follow()
        await self.judge()
