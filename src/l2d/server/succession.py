"""Which run serves: reloads, also those of other servers with the same log, and a candidate that takes over."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from l2d.logs.operations import add_run, add_swap, last_swap, swaps_before
from l2d.logs.outcome_log import OutcomeLog
from l2d.server.metrics import ServerMetrics
from l2d.server.policy import Policy
from l2d.server.served import FORCE, ReloadRefused, ServedRun, about_inputs, check_successor
from l2d.server.trial import CANDIDATE, Trial

Load = Callable[[Path], ServedRun]


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
        """Swap to another run; other servers with this log follow. Requests that have begun end with the old one. Raises
        ReloadRefused, L2DError."""
        async with self._reloading:
            new = await asyncio.to_thread(self.load, folder)
            check_successor(self.policy.settings, self.current, new, force)
            about, before = new.router.description, self.current.router.description
            if about.kind != before.kind and not force:
                raise ReloadRefused(f"{folder}: it sees {about.sees}, not {before.sees}; {FORCE}")
            if about.guard.constant is not None and not new.router.raw and not force:
                raise ReloadRefused(f"{folder}: {new.router.guard_note}; {FORCE}")
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
            new = await asyncio.to_thread(self.load, Path(run))
            self.swaps, self.trial = number, None  # a run that does not fit is refused once
            check_successor(self.policy.settings, self.current, new, force=True)
            self.swap_to(new)

    async def judge(self) -> None:
        """Say which router is better, the run's or the candidate's, and let it take over if that is wanted. The log holds all that
        counts, so a server that starts again goes on."""
        if (trial := self.trial) is None:
            return
        await trial.look(self.log.address)
        for part in ("mean", "low", "high"):
            self.metrics.difference.labels(part).set(getattr(trial.found, part))
        trial.over = trial.promotes and trial.better is not None
        if trial.over and trial.better == CANDIDATE:
            async with self._reloading:
                if trial is self.trial:  # else another run serves meanwhile
                    await self._swap(trial.candidate)

    async def follow_and_judge(self) -> None:
        """In this order: a reload ends a trial, also if this server cannot follow it."""
        await self.follow()
        await self.judge()
