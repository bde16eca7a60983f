"""Writes a small table for dataset=table: python examples/make_table.py table.csv

SIMULATED: the queries are put together from word lists, and whether a model is right is drawn at random, with a chance that
depends on the topic and on the length. It stands for a log of queries that three models have answered and somebody has graded.
"""

import csv
import sys
from pathlib import Path

import numpy as np

ROWS = 2000
SEED = 0
WORDS = {
    "chat": "please tell me about your favourite film holiday birthday dinner weekend music friend garden story",
    "facts": "which country city river year president mountain language population capital founded largest border",
    "code": "python function loop error list class import string compile return thread test variable stack",
    "maths": "solve equation integral sum of prove triangle number probability derivative matrix root divide",
}
SHARES = (0.35, 0.25, 0.25, 0.15)
# The chance that a model is right on a short query of each topic; it falls with the length.
RIGHT = {
    "small": {"chat": 0.95, "facts": 0.75, "code": 0.40, "maths": 0.20},
    "medium": {"chat": 0.95, "facts": 0.80, "code": 0.95, "maths": 0.40},  # made for code
    "large": {"chat": 0.97, "facts": 0.95, "code": 0.85, "maths": 0.85},
}
PRICE = {"small": 0.0002, "medium": 0.001, "large": 0.004}  # per letter of the query, in units of one error


def make_query(topic: str, rng: np.random.Generator) -> str:
    length = int(rng.integers(4, 40))
    words = list(rng.choice(WORDS[topic].split(), size=length))
    if topic == "maths" or rng.random() < 0.2:
        words += [str(number) for number in rng.integers(2, 1000, size=int(rng.integers(1, 4)))]
    return " ".join(words)


def make_row(number: int, rng: np.random.Generator) -> dict[str, str | int | float]:
    topic = str(rng.choice(list(WORDS), p=SHARES))
    query = make_query(topic, rng)
    row: dict[str, str | int | float] = {"id": number, "query": query, "length": len(query)}
    row["digits"] = sum(letter.isdigit() for letter in query)
    row |= {f"topic_{name}": int(name == topic) for name in WORDS} | {"topic": topic}
    for model, chances in RIGHT.items():
        row[f"correct_{model}"] = int(rng.random() < chances[topic] * (1 - len(query) / 2000))
    for model, price in PRICE.items():
        row[f"price_{model}"] = round(price * len(query), 5)
    return row


def main(path: Path) -> None:
    rng = np.random.default_rng(SEED)
    rows = [make_row(number, rng) for number in range(1, ROWS + 1)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{path}: {len(rows):,} rows, {len(rows[0])} columns (simulated)")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/make_table.py table.csv")
    main(Path(sys.argv[1]))
