"""Simulates three models and the queries of a service, for the tutorial docs/tutorials/closing_the_loop.md:

    python examples/traffic.py table first.csv --rows 60                          a table of graded queries, to begin with
    python examples/traffic.py send http://localhost:8080 --rows 2000 --seed 1    queries for l2d serve, with their outcomes
    python examples/traffic.py truth RUN --rows 20000 --seed 9                    what a run's router really costs

SIMULATED: the queries are put together from word lists, and whether a model is right is drawn at random, with a chance that depends
on the topic. Nothing leaves this machine.
"""

import argparse
import csv
import time
from pathlib import Path

import httpx
import numpy as np
from make_log import RIGHT, SHARES
from make_table import WORDS

COMMON = "please can you help with this one that was in the for and to it now what how why is are my so then again"
PRICES = {"small": 0.02, "medium": 0.1, "large": 0.3}  # per query, in units of one error
AT_ONCE = 50  # queries in one request; a service would ask one by one


def draw_query(rng: np.random.Generator) -> tuple[str, str]:
    """A query and its topic: 3 to 9 words, about half of them of the topic."""
    topic = str(rng.choice(list(WORDS), p=SHARES))
    own, common, length = WORDS[topic].split(), COMMON.split(), int(rng.integers(3, 10))
    return " ".join(str(rng.choice(own if rng.random() < 0.5 else common)) for _ in range(length)), topic


def write_table(file: Path, rows: int, rng: np.random.Generator) -> None:
    with file.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["id", "query", *(f"correct_{model}" for model in RIGHT)])
        for number in range(1, rows + 1):
            query, topic = draw_query(rng)
            writer.writerow([number, query, *(int(rng.random() < RIGHT[model][topic]) for model in RIGHT)])
    print(f"{file}: {rows:,} rows (simulated)")


def wait_for(client: httpx.Client, seconds: float = 120) -> None:
    """Until the server is ready."""
    until = time.monotonic() + seconds
    while True:
        try:
            if client.get("/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until:
            raise SystemExit(f"no server answers at {client.base_url}")
        time.sleep(0.1)


def send(client: httpx.Client, rows: int, rng: np.random.Generator) -> None:
    """Ask which model gets each query, ask that model, and report whether it was right."""
    wait_for(client)
    errors, prices = [], []
    for start in range(0, rows, AT_ONCE):
        drawn = [draw_query(rng) for _ in range(min(AT_ONCE, rows - start))]
        answer = client.post("/v1/route", json={"inputs": [{"text": query} for query, _ in drawn]}).raise_for_status()
        outcomes = []
        for decision, (_, topic) in zip(answer.json()["decisions"], drawn, strict=True):
            right = bool(rng.random() < RIGHT[decision["expert"]][topic])
            outcomes.append({"decision_id": decision["decision_id"], "correct": right})
            errors.append(not right)
            prices.append(PRICES[decision["expert"]])
        client.post("/v1/outcomes", json={"outcomes": outcomes}).raise_for_status()
    error, price = np.mean(errors), np.mean(prices)
    print(f"{rows:,} queries (simulated): error {error:.4f} + price {price:.4f} = {error + price:.4f} per query")


def show_truth(run: str, rows: int, rng: np.random.Generator) -> None:
    """Only a simulation knows it: the chance of an error plus the price, on fresh queries."""
    import l2d

    drawn = [draw_query(rng) for _ in range(rows)]
    chosen = [choice.expert for choice in l2d.Router.load(run).route([query for query, _ in drawn])]
    costs = [1 - RIGHT[model][topic] + PRICES[model] for model, (_, topic) in zip(chosen, drawn, strict=True)]
    print(f"{run}: {np.mean(costs):.4f} per query, in truth (simulated)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("table", "send", "truth"))
    parser.add_argument("target", help="the table to write, the server's address, or a run")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    if given.action == "table":
        write_table(Path(given.target), given.rows, rng)
    elif given.action == "truth":
        show_truth(given.target, given.rows, rng)
    else:
        with httpx.Client(base_url=given.target, timeout=60) as client:
            send(client, given.rows, rng)


if __name__ == "__main__":
    main()
