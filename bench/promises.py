"""What promises are worth: a new expert after few outcomes, and an error rate that is kept. Writes bench/results/promises.csv and
the tables of docs/promises.md.

    python bench/promises.py --zeroeval TABLE --mmlu TABLE    # 5 minutes of one core

TABLE: outcomes of models, columns correct_M (ZeroEval) or M (MMLU). Linear estimates from TF-IDF of the question learn from one
half of the questions; the other half judges. The price of a model is its rank by accuracy: the best costs 0.15 of an error.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.costs import paid
from l2d.core.newcomer import SPREAD, Surprise, borrow_beside
from l2d.core.risk import factors_by_spread, last_kept
from l2d.data.sheet import Sheet, read_sheet
from l2d.data.text.words import Words
from l2d.networks.estimators.estimator import FitRows
from l2d.networks.estimators.linear import Ridge
from l2d.router.added import CAUTION
from provenance import about
from records import DOCS, MADE, Results, Row, markdown, parser_of, put

POOLS, KNOWN, DEAREST, MOST, FOLDS = 150, 3, 0.15, 6_000, 5
ASKED, DRAWS, CALIBRATED, CONFIDENCE = (5, 20, 50, 200), 1_000, 500, 0.95
RULES = {"estimate alone": 0.0, "with one standard error": CAUTION}
RESULTS = Results("promises", "what data case level", f"value worst spend n {MADE}", compared="value worst spend")
TITLES = {"zeroeval": "ZeroEval", "mmlu": "MMLU"}


def halves(sheet: Sheet, name: str, text: str) -> dict[str, Tensor]:
    """Chances and outcomes of all models on the rows that are learned from (chances by folds), and on the others."""
    columns = [c for c in sheet.columns if c.startswith("correct_")] if name == "zeroeval" else list(sheet.columns)[4:]
    right = np.stack([sheet.numbers(column, gaps=True) for column in columns], axis=1)
    right = right[:, np.isnan(right).mean(axis=0) < 0.01]
    rows = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(right).any(axis=1)))[:MOST]
    texts, outcomes, half = sheet.columns[text].to_pylist(), torch.from_numpy(right[rows]), len(rows) // 2
    words = Words().fitted([texts[i] for i in rows[:half]])
    inputs = torch.from_numpy(words.embed([texts[i] for i in rows])).float()

    def fitted(kept: Tensor) -> Ridge:
        ridge = Ridge()
        ridge.fit(FitRows(inputs[:half][kept], outcomes[:half][kept], torch.full((int(kept.sum()),), -1)))
        return ridge

    fold, seen = torch.arange(half) % FOLDS, torch.zeros(half, right.shape[1]).double()
    for k in range(FOLDS):
        seen[fold == k] = fitted(fold != k)(inputs[:half][fold == k]).double()
    unseen = fitted(fold >= 0)(inputs[half:]).double()
    return {"seen": seen, "unseen": unseen, "asked": outcomes[:half], "true": outcomes[half:]}


def newcomers(data: dict[str, Tensor]) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """For each rule and number of outcomes: the gain of each pool over the known models, and with all outcomes."""
    rng, price = np.random.default_rng(0), ranked(data["asked"])
    pools = [rng.permutation(len(price))[: KNOWN + 1].tolist() for _ in range(POOLS)]

    def gain(pool: list[int], chance: Tensor) -> float:
        costs, known = (
            1 - data["true"][:, pool] + price[pool],
            1 - data["unseen"][:, pool[:KNOWN]] + price[pool[:KNOWN]],
        )
        expected = torch.cat([known, (1 - chance + price[pool[KNOWN]])[:, None]], dim=1)
        return float((paid(costs, known.argmin(dim=1)) - paid(costs, expected.argmin(dim=1))).mean())

    whole = np.array([gain(pool, data["unseen"][:, pool[KNOWN]]) for pool in pools])
    for n in ASKED:
        found: dict[str, list[float]] = {rule: [] for rule in RULES}
        for pool in pools:
            rows, known, new = rng.permutation(len(data["seen"]))[:n], pool[:KNOWN], pool[KNOWN]
            seen, asked = data["seen"][:, known], data["asked"]
            weights, surprise = torch.full((KNOWN,), 1 / KNOWN).double(), Surprise.of(asked[:, known] - seen)
            centre = torch.logit(seen.clamp(0.02, 0.98)).mean()
            others = asked[rows][:, known]
            fit = borrow_beside(seen[rows], asked[rows, new], others, surprise, (weights, centre, SPREAD))
            wary = fit.chances(seen)[1].mean()
            for rule, errors in RULES.items():
                found[rule].append(gain(pool, fit.chances(data["unseen"][:, known])[0] - errors * wary))
        yield from ((rule, n, np.array(gains), whole) for rule, gains in found.items())


def ranked(outcomes: Tensor) -> Tensor:
    return DEAREST * (outcomes.mean(dim=0).argsort().argsort() + 1).double() / outcomes.shape[1]


def broken(data: dict[str, Tensor]) -> Iterator[tuple[float, float, float, float]]:
    """For some promised errors: how often one is broken over draws of the rows that calibrate, the mean true error and spend. All
    rows that were not learned from are the truth."""
    price = ranked(data["asked"])
    factors, expected = factors_by_spread(price), 1 - data["unseen"]
    decisions = torch.stack([(expected + factor * price).argmin(dim=1) for factor in factors])
    errors = torch.stack([paid(1 - data["true"], one) for one in decisions])
    spend, true, rng = price[decisions].mean(dim=1), errors.mean(dim=1), np.random.default_rng(0)
    for more in (0.05, 0.1):
        level = round(float(true[0]) + more, 3)
        drawn = (
            last_kept(errors[:, rng.integers(len(expected), size=CALIBRATED)], level, CONFIDENCE) for _ in range(DRAWS)
        )
        kept = [place for place in drawn if place is not None]
        yield (
            level,
            sum(bool(true[k] > level) for k in kept) / DRAWS,
            float(true[kept].mean()),
            float(spend[kept].mean() / spend[0]),
        )


def rows_of(name: str, data: dict[str, Tensor]) -> Iterator[Row]:
    told = {"data": name, "n": len(data["true"])} | about("python bench/promises.py")
    blank: dict[str, Any] = dict.fromkeys(RESULTS.fields, "") | told
    for rule, n, gains, whole in newcomers(data):
        worst = float(np.sort(gains)[: len(gains) // 10].mean())
        yield blank | {
            "what": "new",
            "case": rule,
            "level": n,
            "value": f"{gains.mean() / whole.mean():.3f}",
            "worst": f"{worst:.4f}",
        }
    for level, share, error, spend in broken(data):
        yield blank | {
            "what": "error",
            "level": level,
            "value": share,
            "worst": f"{error:.4f}",
            "spend": f"{spend:.3f}",
        }


def new_table(rows: Sequence[Row]) -> str:
    used = sorted(
        (row for row in rows if row["what"] == "new"), key=lambda row: (row["data"], row["case"], int(row["level"]))
    )
    cells = {
        (row["data"], row["case"]): [
            f"{float(one['value']):.0%} ({one['worst']})"
            for one in used
            if (one["data"], one["case"]) == (row["data"], row["case"])
        ]
        for row in used
    }
    lines = [[f"{TITLES[data]}, {case}", *found] for (data, case), found in cells.items()]
    return f"{markdown(['outcomes', *map(str, ASKED)], lines)}\n\n{POOLS} pools; {foot(used)}"


def error_table(rows: Sequence[Row]) -> str:
    used = [row for row in rows if row["what"] == "error"]
    lines = [
        [TITLES[row["data"]], row["level"], f"{float(row['value']):.1%}", row["worst"], f"{float(row['spend']):.0%}"]
        for row in used
    ]
    head = ("", "promised error", "broken", "mean true error", "spend, beside the least error")
    return f"{markdown(head, lines)}\n\n{DRAWS:,} draws of {CALIBRATED} rows; {foot(used)}"


def foot(rows: Sequence[Row]) -> str:
    codes = sorted({f"`{row['command']}`; {row['machine']}; {row['versions']}; commit {row['commit']}" for row in rows})
    n = ", ".join(f"{TITLES[name]} {int(k):,}" for name, k in sorted({(row["data"], row["n"]) for row in rows}))
    return f"questions that judge: {n}; {'; '.join(codes)}."


def main() -> None:
    parser = parser_of(__doc__)
    for name in TITLES:
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, text in (("zeroeval", "question"), ("mmlu", "prompt")):
        RESULTS.add(list(rows_of(name, halves(read_sheet(vars(options)[name]), name, text))))
    put(DOCS / "promises.md", "new", new_table(RESULTS.read()))
    put(DOCS / "promises.md", "error", error_table(RESULTS.read()))


if __name__ == "__main__":
    main()
