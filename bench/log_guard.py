"""The margin that the guard should ask of a log before it keeps a router. Writes bench/results/log_guard.csv.

    python bench/log_guard.py OUTCOMES.parquet    # some 40 minutes on a core, then prints the table
    python bench/log_guard.py                     # only prints the table

As in bench/logs.py, real outcomes are masked: a log asks one model per question. Simple routers learn from it by cross-validation,
at several prices, and the guard is fitted to the doubly robust costs. What it would deploy is judged by all outcomes.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.decisions import argmax_last
from l2d.core.guard import FOLDS, fit_guard, with_offsets
from l2d.data.arrays import Answers
from l2d.data.split import Split
from l2d.logs.model import fit_log_model
from logs import POLICIES, Questions, told
from provenance import about
from records import MADE, Results, Row, markdown, parser_of

TRIOS = ("llama", "mixtral")
PRICES = ((0.1, 0.05, 0.0), (0.2, 0.1, 0.0), (0.3, 0.15, 0.0), (0.4, 0.2, 0.0))
SIZES, SEEDS = (2_000, 14_015), 12
NEIGHBOURS, PRIOR = 600, 5  # a third of the neighbours, or a tenth, was asked; the prior counts as so many answers
RULES = (0.0, 0.5, 1.0, 1.5, 2.0, float("inf"))  # standard errors by which the router must be cheaper
RESULTS = Results("log_guard", "policy rows rule", f"kept losing_kept gain worst routers n {MADE}")


@dataclass(frozen=True)
class Deployed:
    """seen, error: the router's gain over the fallback by the log, and its standard error. router, fallback: the true gains
    of both over the best single model."""

    seen: float
    error: float
    router: float
    fallback: float

    def kept(self, rule: float) -> bool:
        return self.seen > (rule * self.error if rule else 0.0)

    def gain(self, rule: float) -> float:
        return self.router if self.kept(rule) else self.fallback


class MaskedLog:
    """A log of `rows`: errors of three models [n, 3], NaN where they were not asked; what simple routers expect on rows that they
    did not learn from; and the doubly robust errors."""

    def __init__(self, questions: Questions, rows: Tensor, chances: Tensor, seed: int) -> None:
        errors = questions.errors.where(questions.asked(tuple(chances.tolist()), seed), torch.nan)
        fold = torch.arange(len(rows)) % FOLDS
        self.robust, near, linear = (torch.zeros(len(rows), 3, dtype=torch.float64) for _ in range(3))
        for k in range(FOLDS):
            train, own = rows[fold != k], rows[fold == k]
            model = fit_log_model(split(questions, train, errors, chances), questions.names)
            judged = model.judged(split(questions, own, errors, chances))
            assert judged.logged is not None
            self.robust[fold == k], linear[fold == k] = judged.costs, judged.logged.expected
            near[fold == k] = nearest(questions.inputs, train, own, errors)
        self.expected = {"nearest": near, "linear": linear, "mix": (near + linear) / 2}


def split(questions: Questions, rows: Tensor, errors: Tensor, chances: Tensor) -> Split:
    answers = Answers(errors[rows], propensities=chances.expand(len(rows), 3))
    free = torch.zeros(3, dtype=torch.float64)
    return Split(questions.inputs, rows, answers, errors[rows], free, torch.full((len(rows),), -1))


def nearest(inputs: Tensor, train: Tensor, own: Tensor, errors: Tensor) -> Tensor:
    """The errors of the nearest training rows, of those that were asked."""
    kept = torch.nn.functional.normalize(inputs[train], dim=1)
    mean, found = errors[train].nanmean(dim=0), []
    for part in torch.nn.functional.normalize(inputs[own], dim=1).split(1_024):
        close = (part @ kept.T).topk(min(NEIGHBOURS, len(train) // 4), dim=1).indices
        known = errors[train][close]
        found.append((known.nansum(dim=1) + PRIOR * mean) / ((~known.isnan()).sum(dim=1) + PRIOR))
    return torch.cat(found)


def deployed(questions: Questions, rows: Tensor, policy: Any, seed: int) -> Iterator[Deployed]:
    """The gain that the guard sees of each router at each price, and the true one."""
    logs: dict[tuple[float, ...], MaskedLog] = {}
    for prices in PRICES:
        price = torch.tensor(prices, dtype=torch.float64)
        questions.best = best = int((questions.errors + price).mean(dim=0).argmin())
        chances = questions.chances(policy)
        key = tuple(chances.tolist())
        log = logs[key] = logs.get(key) or MaskedLog(questions, rows, chances, seed)
        costs, true = log.robust + price, questions.errors[rows] + price
        fallback = int(costs.mean(dim=0).argmin())
        for expected in log.expected.values():
            utilities = -(expected + price)
            guard = fit_guard(utilities, argmax_last(utilities), costs, fallback)
            assert guard.error is not None
            own = argmax_last(utilities) if guard.offsets is None else with_offsets(utilities, guard.offsets)
            alone = true[:, best]
            gains = (float((alone - choice).mean()) for choice in (paid(true, own), true[:, fallback]))
            yield Deployed(guard.gain, guard.error, *gains)


def measured(outcomes: Path, data_dir: str) -> list[Row]:
    found: dict[tuple[str, int], list[Deployed]] = defaultdict(list)
    for trio in TRIOS:
        questions = Questions(outcomes, data_dir, trio)
        for size in SIZES:
            for seed in range(SEEDS):
                drawn = np.random.default_rng(100 + seed).permutation(len(questions))[:size]
                for policy, asked in POLICIES.items():
                    if asked is not None:
                        found[policy, size] += deployed(questions, torch.from_numpy(drawn), asked, seed)
                print(f"{trio}, {size:,} rows, log {seed + 1} of {SEEDS}: done", flush=True)
    return [
        {**row_of(cell, rule, members), **about("python bench/log_guard.py OUTCOMES.parquet")}
        for cell, members in found.items()
        for rule in RULES
    ]


def row_of(cell: tuple[str, int], rule: float, members: list[Deployed]) -> Row:
    """worst: the least gain of a trio and price, the mean over logs and routers."""
    policy, size = cell
    losing = [one for one in members if one.router < one.fallback]
    by_price: dict[int, list[float]] = defaultdict(list)
    for place, one in enumerate(members):
        kinds = len(members) // (len(TRIOS) * SEEDS)
        trio, price = place // (kinds * SEEDS), place % kinds // (kinds // len(PRICES))
        by_price[trio * len(PRICES) + price].append(one.gain(rule))
    names = {"policy": policy, "rows": str(size), "rule": f"{rule:g}", "routers": str(len(members)), "n": str(size)}
    return names | {
        "kept": f"{statistics.fmean(one.kept(rule) for one in members):.4f}",
        "losing_kept": f"{statistics.fmean(one.kept(rule) for one in losing):.4f}",
        "gain": f"{statistics.fmean(one.gain(rule) for one in members):.6f}",
        "worst": f"{min(map(statistics.fmean, by_price.values())):.6f}",
    }


def table(rows: list[Row]) -> str:
    cells = list(dict.fromkeys((row["policy"], int(row["rows"])) for row in rows))
    by_cell = {(row["policy"], int(row["rows"]), float(row["rule"])): row for row in rows}
    lines = []
    for rule in RULES:
        name = {0.0: "anything", float("inf"): "(never kept)"}.get(rule, f"{rule:g} standard error{'s' * (rule > 1)}")
        lines.append([name])
        for row in (by_cell[(*cell, rule)] for cell in cells):
            gains = f"{float(row['gain']):+.4f} (worst {float(row['worst']):+.4f})"
            lines[-1].append(f"{gains}; keeps {float(row['losing_kept']):.0%}")
    head = ("the log must show a gain of", *(f"{policy}, {size:,} rows" for policy, size in cells))
    said = f"{rows[0]['routers']} routers in each column: {len(TRIOS)} trios, {len(PRICES)} prices, {SEEDS} logs, 3 routers."
    return f"{markdown(head, lines)}\n\n{said} {told({**rows[0], 'n': str(max(SIZES))})}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("outcomes", type=Path, nargs="?")
    parser.add_argument("--data-dir", default="data")
    options = parser.parse_args()
    if options.outcomes is not None:
        RESULTS.write(measured(options.outcomes, options.data_dir))
    print(table(RESULTS.read()))


if __name__ == "__main__":
    main()
