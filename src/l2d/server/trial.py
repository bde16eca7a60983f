"""A candidate beside the router that serves: it decides a share of the queries, and the log tells which of the two costs less."""

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

from l2d.core.sequential import Difference, difference, difference_parts
from l2d.logs.decision import Compared
from l2d.logs.readings import KeptReading, read_sums
from l2d.networks.estimators.planner import unplanned
from l2d.router.choices import Choice
from l2d.server.decisions import Batcher
from l2d.server.served import ServedRun, ServeSettings, check_settings
from l2d.utils.errors import ParameterError
from l2d.utils.text import six_digits

CANDIDATE, CURRENT = "candidate", "current"  # who costs less


class Trial:
    """share: of the queries that the candidate decides. promotes: whether the better router takes over by itself. A request's cost
    counts up to `most`: an error and the dearest price. over: the candidate decides nothing more."""

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
        self.batcher = Batcher(settings.batch)
        self.found = Difference(0, 0.0, -self.bound, self.bound)
        self.over, self.sums = False, KeptReading(read_sums)

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
        parts = difference_parts(
            expert == other, expert == own, chance, self.expected(pair, other), self.expected(pair, own)
        )
        return expert, by, chance, (self.key, other, self.bound, *parts)

    def expected(self, pair: tuple[Choice, Choice], expert: str) -> float:
        """The mean of both routers' expected costs of it; 0 if they estimate none."""
        known = [one.expected_costs[expert] for one in pair if one.expected_costs is not None]
        return min(max(sum(known) / len(known), 0.0), self.most) if known else 0.0

    async def look(self, address: Path | str) -> None:
        """Read the log, and say so if another router is better than before. Raises LogUnavailable."""
        if self.over:
            return
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
        told = {"run": self.candidate.name, "share": 0.0 if self.over else self.share, "outcomes": self.found.n}
        return {**told, **found, "better": self.better}

    @property
    def note(self) -> str:
        decides = "no longer decides" if self.over else f"decides {100 * self.share:.3g} % of the queries"
        interval = "{mean:+.3g} ({low:+.3g} to {high:+.3g}) after {n:,} outcomes".format(**vars(self.found))
        verdict = {CANDIDATE: "it is better", CURRENT: "the run is better", None: "not clear yet"}[self.better]
        return f"candidate: {self.candidate.name} {decides}; its mean cost differs by {interval}: {verdict}"


def draw_expert(preferred: str, by: str, experts: Sequence[str], explore: float, rng: Random) -> tuple[str, str, float]:
    """Draw any expert with probability `explore`, all equally likely; else take the preferred one. Return the expert, who decided,
    and the propensity."""
    expert, drawn_by = (rng.choice(experts), "explore") if rng.random() < explore else (preferred, by)
    return expert, drawn_by, propensity(expert, preferred, experts, explore)


def propensity(expert: str, preferred: str, experts: Sequence[str], explore: float) -> float:
    """π(k) = explore/p + (1 − explore)·1[k is preferred]"""
    return explore / len(experts) + (1 - explore if expert == preferred else 0.0)


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
