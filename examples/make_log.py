"""Writes a small log for dataset=table: python examples/make_log.py log.csv; with --messy, other names, and words for numbers

SIMULATED: queries, grades, prices and latencies are drawn at random. It stands for what a service writes down in a month: a row per
answer, one model for most queries, a favourite that answers 60 % of them, and no note of how the model was chosen. It is messy on
purpose: some answers have no grade, some queries have two answers, and some lines were written twice.
"""

import csv
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from make_table import WORDS, make_query

ROWS = 2000
SEED = 0
SHARES = (0.30, 0.20, 0.25, 0.25)  # of the topics
# The chance that a model is right on a short query of each topic; it falls with the length.
RIGHT = {
    "small": {"chat": 0.96, "facts": 0.70, "code": 0.30, "maths": 0.10},
    "medium": {"chat": 0.96, "facts": 0.85, "code": 0.93, "maths": 0.20},  # made for code
    "large": {"chat": 0.97, "facts": 0.95, "code": 0.93, "maths": 0.92},
}
FAVOURITE, SHARE = "medium", 0.6
DOLLARS = {
    "small": 0.2,
    "medium": 1.0,
    "large": 5.0,
}  # per million tokens of the query; of the answer, four times as much
SECONDS = {"small": 0.004, "medium": 0.008, "large": 0.02}  # per token of the answer
START = datetime(2026, 1, 1)

Row = dict[str, str | int | float]


def choose(query: str, rng: np.random.Generator) -> str:
    """The favourite, or one of the two others: the longer the query, the more often the large one."""
    if rng.random() < SHARE:
        return FAVOURITE
    return "large" if rng.random() < 0.2 + 0.6 * min(len(query) / 250, 1) else "small"


def draw_query(rng: np.random.Generator) -> tuple[str, str]:
    """A query and its topic."""
    topic = str(rng.choice(list(WORDS), p=SHARES))
    return make_query(topic, rng), topic


def price_of(model: str, query: str, told: float | None = None) -> float:
    """Dollars. told: tokens of the answer; None: as many as are expected."""
    asked, told = 150 + len(query) // 4, 4 * (30 + len(query) / 4) if told is None else told
    return DOLLARS[model] * (asked + 4 * told) / 1e6


def make_answer(query: str, topic: str, model: str, rng: np.random.Generator) -> Row:
    told = int(rng.gamma(4, 30 + len(query) / 4))
    right = rng.random() < RIGHT[model][topic] * (1 - len(query) / 2000)
    return {
        "expert": model,
        "correct": "" if rng.random() < 0.04 else "yes" if right else "no",
        "cost": round(price_of(model, query, told), 7),
        "latency": round(0.2 + SECONDS[model] * told, 3),
        "tokens": told,
    }


def make_rows(rng: np.random.Generator) -> list[Row]:
    rows: list[Row] = []
    time, number = START, 0
    while len(rows) < ROWS:
        time, number = time + timedelta(seconds=int(rng.exponential(1300))), number + 1
        query, topic = draw_query(rng)
        first = choose(query, rng)
        asked = [first]
        if rng.random() < 0.05:  # a second opinion
            asked.append(str(rng.choice([model for model in RIGHT if model != first])))
        for place, model in enumerate(asked):
            when = (time + timedelta(seconds=20 * place)).isoformat()
            row = {"id": f"q{number}", "time": when, "query": query, **make_answer(query, topic, model, rng)}
            rows += [row] * (2 if rng.random() < 0.01 else 1)  # a line that was written twice
    return rows[:ROWS]


def make_messy(rows: list[Row], rng: np.random.Generator) -> list[Row]:
    """The same log as many services write it: columns of other names, thumbs, dollars, and a fiftieth of the texts is empty."""
    thumbs, empty = {"yes": "up", "no": "down", "": "n/a"}, {row["id"] for row in rows if rng.random() < 0.02}
    return [
        {"request_id": row["id"], "ts": row["time"], "user_query": "" if row["id"] in empty else row["query"]}
        | {"model_used": row["expert"], "thumbs": thumbs[str(row["correct"])], "usd": f"${row['cost']:.6f}"}
        | {"latency_ms": f"{1000 * float(row['latency']):,.0f} ms"}
        for row in rows
    ]


def main(path: Path, seed: int = SEED, messy: bool = False) -> None:
    rng = np.random.default_rng(seed)
    rows = make_rows(rng)
    rows = make_messy(rows, rng) if messy else rows
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path}: {len(rows):,} rows, {len(rows[0])} columns (simulated)")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--messy"]):
        sys.exit("usage: python examples/make_log.py log.csv [--messy]")
    main(Path(sys.argv[1]), messy=len(sys.argv) == 3)
