"""Teams: the error at equal capacity beside greedy choice, the time of a large assignment, and annotators as new colleagues.
Writes bench/results/team.csv.

    python bench/team.py --openl2d TABLE --keswani TABLE    # 5 minutes of one core

TABLE: made by bench/import_benchmark.py. OpenL2D: a router learns from 8,000 rows; the others come in batches of 500, for which
five of the 25 experts are there, 100 rows each. Keswani: halves of the tweets, drawn 10 times; an annotator may get a tweet that
it labelled. Its chance is borrowed from the crowd's, which a linear model of the words estimates.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import l2d
from l2d.core.assignment import assign
from l2d.core.newcomer import Prior, borrow
from l2d.data.text.words import Words
from l2d.utils.text import Z
from promises import crossed, ridge_of
from records import MADE, Results, Row, about, given_paths, markdown, origin

LEARN, BATCH, PRESENT, SPLITS = 8_000, 500, 5, 10
LEAST, ASKED = 40, (5, 20, 40)  # labels of an annotator in one half, to be a new colleague; those that are used
NEVER = 10.0  # the cost of a tweet for an annotator who did not label it
RESULTS = Results("team", "what case", f"value interval other n {MADE}", compared="value other")
CASES = {"openl2d": "OpenL2D, 5 of 25 experts, 100 rows each", "keswani": "annotators, {} tweets each"}


def greedy(costs: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Each row in turn to the cheapest expert with room, −1 if none of them may take it."""
    left, chosen = limits.copy(), np.full(len(costs), -1)
    for row, cost in enumerate(costs):
        k = int(np.where(left > 0, cost, NEVER).argmin())
        if left[k] > 0 and cost[k] < NEVER:
            chosen[row], left[k] = k, left[k] - 1
    return chosen


def openl2d(file: Path) -> np.ndarray:
    """Whether the greedy choice and the assignment are wrong, on the rows that were not learned from. [n, 2], in batches."""
    frame = pd.read_parquet(file)
    names = [name.removeprefix("correct_") for name in frame if name.startswith("correct_")]
    wrong = 1 - frame[[f"correct_{name}" for name in names]].to_numpy()
    known = frame.drop(columns=["id", "prompt", *(f"correct_{name}" for name in names)])
    X = pd.get_dummies(known).to_numpy(np.float32)
    router = l2d.fit(X[:LEARN], errors=wrong[:LEARN], experts=names, options={"progress": False, "method.seconds": 20})
    draw, found = np.random.default_rng(0), list[np.ndarray]()
    for start in range(LEARN, len(X) - BATCH + 1, BATCH):
        rows = slice(start, start + BATCH)
        limits = np.zeros(len(names), dtype=np.int64)
        limits[draw.permutation(len(names))[:PRESENT]] = BATCH // PRESENT
        capacity = dict(zip(names, limits.tolist(), strict=True))
        choices = router.route(X[rows], capacity=capacity)
        costs = np.array([[(choice.expected_costs or {})[name] for name in names] for choice in choices])
        best = np.array([names.index(choice.expert) for choice in choices])
        found.append(np.stack([wrong[rows][range(BATCH), one] for one in (greedy(costs, limits), best)], axis=1))
    return np.concatenate(found)


@dataclass(frozen=True)
class Annotators:
    """right [n, p], NaN where not asked; inputs [n, F]: of the words."""

    right: np.ndarray
    inputs: Tensor

    @classmethod
    def read(cls, file: Path) -> "Annotators":
        frame = pd.read_parquet(file)
        right = frame[[name for name in frame if name.startswith("correct_")]].to_numpy(float)
        texts = frame["prompt"].tolist()
        inputs = torch.from_numpy(Words().fitted(texts).embed(texts)).float()
        return cls(right[:, np.isfinite(right).sum(axis=0) >= LEAST], inputs)

    def crowd(self, learn: np.ndarray) -> Tensor:
        """The chance that an annotator is right on each tweet, [n, 1]; of the tweets to learn from by the other folds."""
        share = torch.from_numpy(np.nanmean(self.right[learn], axis=1))[:, None]
        found = ridge_of(self.inputs[learn], share)(self.inputs).double()
        found[learn] = crossed(self.inputs[learn], share)
        return found

    def chance(self, crowd: Tensor, k: int, rows: np.ndarray) -> np.ndarray:
        """Of annotator k on all tweets, by its labels of these rows."""
        prior = Prior(torch.ones(1).double(), torch.logit(crowd.clamp(0.02, 0.98)).mean())
        return np.asarray(borrow(crowd[rows], torch.from_numpy(self.right[rows, k]), prior).chances(crowd)[0])


def halves(people: Annotators) -> Iterator[tuple[np.ndarray, np.ndarray, Tensor, np.random.Generator]]:
    for seed in range(SPLITS):
        draw = np.random.default_rng(seed)
        learn, judge = np.array_split(draw.permutation(len(people.right)), 2)
        yield learn, judge, people.crowd(learn), draw


def keswani(people: Annotators, capacity: int) -> np.ndarray:
    """Errors of the greedy choice and of the assignment on the tweets for which both found somebody, by split. [splits, 2]"""
    found = []
    for learn, judge, crowd, _ in halves(people):
        known = [learn[np.isfinite(people.right[learn, k])] for k in range(people.right.shape[1])]
        chances = np.stack([people.chance(crowd, k, rows) for k, rows in enumerate(known)], axis=1)
        right = people.right[judge]
        costs, limits = np.where(np.isfinite(right), 1 - chances[judge], NEVER), np.full(len(known), capacity)
        each, rows = [greedy(costs, limits), assign(costs, limits)[0]], np.arange(len(judge))
        both = (each[0] >= 0) & np.isfinite(right[rows, each[1]])
        found.append([1 - right[rows, one][both].mean() for one in each])
    return np.array(found)


def colleagues(people: Annotators) -> Iterator[tuple[int, float, float]]:
    """For some numbers of labels: the share of the gain that all labels of the half give, if tweets are given to a new annotator
    rather than to one of the others where its chance is higher; estimated as l2d does, and by its rate alone."""
    gains: dict[tuple[int, str], list[float]] = {}
    for learn, judge, crowd, draw in halves(people):
        for k in range(people.right.shape[1]):
            known = draw.permutation(learn[np.isfinite(people.right[learn, k])])
            rows = judge[np.isfinite(people.right[judge, k])]
            if len(known) < LEAST:
                continue
            others = np.delete(people.right[rows], k, axis=1)
            asked = np.isfinite(others).any(axis=1)
            more = people.right[rows, k][asked] - np.nanmean(others[asked], axis=1)
            for n in (*ASKED, len(known)):
                rate = np.full(len(rows), people.right[known[:n], k].mean())
                for name, chance in (("borrowed", people.chance(crowd, k, known[:n])[rows]), ("rate", rate)):
                    gain = float((more * (chance > crowd[rows, 0].numpy())[asked]).mean())
                    gains.setdefault((n if n in ASKED else 0, name), []).append(gain)
    most = np.mean(gains[0, "borrowed"])
    for n in ASKED:
        yield n, float(np.mean(gains[n, "borrowed"]) / most), float(np.mean(gains[n, "rate"]) / most)


def seconds() -> float:
    """CPU time to assign 100,000 rows to 50 experts. Costs are drawn at random (simulated); in all as many places as rows."""
    draw = np.random.default_rng(0)
    costs = draw.random((100_000, 1)) + 0.3 * draw.normal(size=(1, 50)) + 0.3 * draw.normal(size=(100_000, 50))
    start = time.process_time()
    assign(costs, np.full(50, 2_000))
    return time.process_time() - start


def less(pairs: np.ndarray) -> dict[str, str]:
    """How much less than the first the second is, as a share of the first, with the 95 % interval of paired differences. [n, 2]"""
    first, differences = pairs[:, 0].mean(), pairs[:, 0] - pairs[:, 1]
    spread = Z * differences.std(ddof=1) / len(pairs) ** 0.5
    return {
        "value": f"{pairs[:, 1].mean():.4f}",
        "other": f"{first:.4f}",
        "interval": f"{(differences.mean() - spread) / first:.3f} to {(differences.mean() + spread) / first:.3f}",
    }


def capacity_table(rows: Sequence[Row]) -> str:
    lines = []
    for row in (row for row in rows if row["what"] == "capacity"):
        name, _, number = row["case"].partition(" ")
        lower = 1 - float(row["value"]) / float(row["other"])
        low, _, high = row["interval"].split()
        errors = [f"{float(row[key]):.2%}" for key in ("other", "value")]
        less_by = f"{lower:.0%} ({float(low):.0%} to {float(high):.0%})"
        lines.append([CASES[name].format(number), *errors, less_by])
    [timed] = [row for row in rows if row["what"] == "seconds"]
    head = ("errors at equal capacity", "greedy, row by row", "assigned", "less, with 95 % interval")
    told = f"100,000 simulated rows and 50 experts: {float(timed['value']):.0f} s of CPU time"
    return f"{markdown(head, lines)}\n\n{told}; {origin(rows)}."


def colleagues_table(rows: Sequence[Row]) -> str:
    used = sorted((row for row in rows if row["what"] == "new"), key=lambda row: int(row["case"]))
    names = {"other": "its rate alone", "value": "borrowed"}
    lines = [[name, *(f"{float(row[key]):.0%}" for row in used)] for key, name in names.items()]
    return f"{markdown(['labels', *(row['case'] for row in used)], lines)}\n\n{origin(used)}."


def measured(options: dict[str, Path]) -> Iterator[Row]:
    yield {"what": "seconds", "case": "assign", "value": f"{seconds():.2f}", "n": "100000"}
    people = Annotators.read(options["keswani"])
    n = str(len(people.right))
    for capacity in (5, 8):
        yield {"what": "capacity", "case": f"keswani {capacity}", "n": n} | less(keswani(people, capacity))
    for labels, borrowed, rate in colleagues(people):
        yield {"what": "new", "case": str(labels), "value": f"{borrowed:.3f}", "other": f"{rate:.3f}", "n": n}
    wrong = openl2d(options["openl2d"])
    yield {"what": "capacity", "case": "openl2d", "n": str(len(wrong))} | less(wrong)


if __name__ == "__main__":
    options = given_paths(__doc__, "--openl2d", "--keswani")
    torch.set_num_threads(1)
    made = about("python bench/team.py")
    RESULTS.add(row | made for row in measured(vars(options)))
