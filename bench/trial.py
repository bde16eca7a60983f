"""The test that `l2d serve --candidate` looks at all the time, beside tests of a fixed size, on simulated requests. Writes
bench/results/trial.csv and a table of docs/serving.md: python bench/trial.py (5 minutes of one core)

An expert is wrong on a fifth of the queries. The routers differ on 30 % of them; there, the candidate's choice is wrong more or
less often. "A/B": each router is judged by the queries that it decided, as usual; "differences": by what the sequential test uses.
All tests are two-sided at 5 %. Sizes are those at which each test finds the difference in 90 % of the series; the sequential test
is looked at after every 20 requests.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from l2d.core.sequential import LEVEL, difference_parts, evidence
from records import MADE, Results, Row, about, markdown, origin

WRONG, DIFFER, POWER = 0.2, 0.3, 0.9
SERIES, LONGEST, STEP, TOGETHER = 1000, 60_000, 20, 50
NORMAL = {0.975: 1.959964, POWER: 1.281552}  # quantiles
CASES = [(share, gain) for share in (0.1, 0.5) for gain in (-0.01, 0.0, 0.01, 0.02, 0.04)]
FIGURES = "promoted rolled_back requests needed fixed_ab fixed_differences n"
RESULTS = Results("trial", "share gain", f"{FIGURES} {MADE}", compared="promoted rolled_back requests")
COMMAND = "python bench/trial.py"


def differences(share: float, gain: float, rng: np.random.Generator) -> np.ndarray:
    """[series, requests]: base + weight·cost, as the server has them. Costs are errors, so the bound is 1/least share."""
    shape = (TOGETHER, LONGEST)
    differ, asked_other = rng.random(shape) < DIFFER, rng.random(shape) < share
    wrong = rng.random(shape) < np.where(asked_other, WRONG - gain / DIFFER, WRONG)
    chance = np.where(asked_other, share, 1 - share)
    base, weight = difference_parts(asked_other, ~asked_other, chance, WRONG, WRONG)
    return np.where(differ, base + weight * wrong, 0.0)


def ends(share: float, gain: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The request after which each series is decided, LONGEST + 1 if none; whether for the candidate; a difference's variance."""
    rng, decided, better, variance = np.random.default_rng(0), [], [], []
    for _ in range(SERIES // TOGETHER):
        found = differences(share, gain, rng)
        variance.append(found.var())
        scaled = found * min(share, 1 - share)
        total, squares = (one.cumsum(axis=1)[:, STEP - 1 :: STEP] for one in (scaled, np.square(scaled)))
        clear = [evidence(sign * total, squares) > np.log(2 / LEVEL) for sign in (-1, 1)]
        first = [np.where(one.any(axis=1), STEP * (one.argmax(axis=1) + 1), LONGEST + 1) for one in clear]
        decided.append(np.minimum(*first))
        better.append(first[0] < first[1])
    return np.concatenate(decided), np.concatenate(better), float(np.mean(variance))


def fixed(variance: float, gain: float) -> float:
    return (NORMAL[0.975] + NORMAL[POWER]) ** 2 * variance / gain**2


def row_of(share: float, gain: float) -> dict[str, Any]:
    decided, better, variance = ends(share, gain)
    known: dict[str, Any] = {"share": share, "gain": gain, "n": SERIES, "promoted": better.mean()}
    known["rolled_back"] = ((decided <= LONGEST) & ~better).mean()
    if gain and (decided <= LONGEST).mean() >= POWER:
        most = int(np.quantile(decided, POWER, method="higher"))
        error = WRONG - gain
        arms = WRONG * (1 - WRONG) / (1 - share) + error * (1 - error) / share
        known |= {"requests": round(np.minimum(decided, most).mean()), "needed": most}
        known |= {"fixed_ab": round(fixed(arms, gain)), "fixed_differences": round(fixed(variance, gain))}
    print(known, flush=True)
    return known | about(COMMAND)


def table(rows: Sequence[Row]) -> str:
    head, lines = ["share", "candidate's gain", "promoted", "rolled back", "mean requests"], []
    head += ["of a fixed A/B", "of fixed differences"]
    for row in sorted(rows, key=lambda row: (float(row["share"]), float(row["gain"]))):
        sizes = [row["fixed_ab"], row["fixed_differences"]]
        parts = [f"{float(row['requests']) / float(one):.0%} of {int(one):,}" if one else "" for one in sizes]
        shares = [f"{float(row[name]):.1%}" for name in ("promoted", "rolled_back")]
        mean = f"{int(row['requests']):,}" if row["requests"] else ""
        lines.append([f"{float(row['share']):.0%}", f"{float(row['gain']):+.2f}", *shares, mean, *parts])
    foot = f"Simulated: {SERIES:,} series of at most {LONGEST:,} requests each. `{COMMAND}` on {origin(rows, 'machine versions')}."
    return f"{markdown(head, lines)}\n\n{foot}"


if __name__ == "__main__":
    RESULTS.write(row_of(*case) for case in CASES)
