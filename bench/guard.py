"""Errors of the guard, by simulation with known gains. Writes bench/results/guard.csv.

    python bench/guard.py         # some minutes

Three simulated experts with prices answer queries of 20 topics. A router estimates their costs with as much noise as gives it the
wanted gain over the best single expert on a large population. The guard is then fitted to n rows drawn from it, again and again.
What it deploys is judged on the population.
"""

import statistics
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from l2d.core.guard import fit_guard, with_offsets
from records import MADE, Results, Row, about, markdown

PEOPLE, DRAWS, TOPICS = 100_000, 300, 20
GAINS = (-0.03, -0.01, -0.003, 0.003, 0.01, 0.02, 0.04, 0.08)
ROWS = (100, 400, 1_600, 6_400)
RULES = (0.0, 0.5, 1.0, 2.0)  # standard errors by which the router must be cheaper
DRAWN = Results("guard", "gain rows rule", f"falls_back lost draws {MADE}")


class Population:
    """costs [N, p] of all rows, and the costs that a perfect router would expect."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        topic = torch.randint(TOPICS, (PEOPLE,), generator=draw)
        right = (torch.tensor([0.75, 0.66, 0.55]) + 0.18 * torch.randn(TOPICS, 3, generator=draw)).clamp(0.05, 0.98)
        prices = torch.tensor([0.2, 0.1, 0.0])
        wrong = torch.rand(PEOPLE, 3, generator=draw) > right[topic]
        self.costs = wrong.double() + prices
        self.expected = 1 - right[topic] + prices
        self.noise = torch.randn(PEOPLE, 3, generator=draw)
        self.best = int(self.costs.mean(dim=0).argmin())
        self.alone = float(self.costs[:, self.best].mean())

    def utilities(self, noise: float) -> Tensor:
        return -(self.expected + noise * self.noise).double()

    def loss(self, decisions: Tensor) -> float:
        return float(paid(self.costs, decisions).mean())

    def router(self, gain: float) -> Tensor:
        """The utilities of a router with this gain: more noise, less gain."""
        low, high = 0.0, 64.0
        for _ in range(40):
            middle = (low + high) / 2
            more = self.alone - self.loss(argmax_last(self.utilities(middle))) > gain
            low, high = (middle, high) if more else (low, middle)
        return self.utilities((low + high) / 2)


def simulated() -> list[Row]:
    population, rows = Population(), []
    made = about("python bench/guard.py")
    for gain, n in product(GAINS, ROWS):
        utilities = population.router(gain)
        least = min(population.alone, population.loss(argmax_last(utilities)))
        deployed = [one_guard(population, utilities, n, seed) for seed in range(DRAWS)]
        for rule in RULES:
            found = [loss if seen > rule * error else population.alone for seen, error, loss in deployed]
            share = statistics.fmean(seen <= rule * error for seen, error, _ in deployed)
            told = {"gain": f"{gain:g}", "rows": str(n), "rule": f"{rule:g}", "draws": str(DRAWS), **made}
            rows.append({**told, "falls_back": f"{share:.4f}", "lost": f"{statistics.fmean(found) - least:.6f}"})
        print(f"gain {gain:+.3f}, {n:,} rows: done", flush=True)
    return rows


def one_guard(population: Population, utilities: Tensor, n: int, seed: int) -> tuple[float, float, float]:
    """The gain that the guard sees on n rows, its standard error, and the loss of the router that it would deploy."""
    drawn = torch.randint(PEOPLE, (n,), generator=torch.Generator().manual_seed(seed))
    seen = utilities[drawn]
    guard = fit_guard(seen, argmax_last(seen), population.costs[drawn], population.best)
    assert guard.error is not None
    decisions = argmax_last(utilities) if guard.offsets is None else with_offsets(utilities, guard.offsets)
    return guard.gain, guard.error, population.loss(decisions)


def table(rows: Sequence[Row]) -> str:
    by_cell = {(float(row["gain"]), int(row["rows"]), float(row["rule"])): row for row in rows}
    falls, lost = [], []
    for gain in GAINS:
        falls.append([f"{gain:+.3f}", *(f"{float(by_cell[gain, n, 0]['falls_back']):.0%}" for n in ROWS)])
    for rule in RULES:
        name = "anything (the guard's rule)" if rule == 0 else f"{rule:g} standard error{'s' * (rule > 1)}"
        most = (max(float(by_cell[gain, n, rule]["lost"]) for gain in GAINS) for n in ROWS)
        lost.append([name, *(f"{loss:.4f}" for loss in most)])
    columns = [f"{n:,} rows" for n in ROWS]
    falling = markdown(("the router's true gain; falls back with", *columns), falls)
    losing = markdown(("must be cheaper by; most that is lost with", *columns), lost)
    first = rows[0]
    made = f"{first['draws']} draws each; {first['machine']}, commit {first['commit']}"
    return f"{falling}\n\n{losing}\n\n(Simulated; {made}. Command: `{first['command']}`)"


if __name__ == "__main__":
    DRAWN.write(simulated())
