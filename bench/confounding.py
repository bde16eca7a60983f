"""What a log tells of each model if something decided both who was asked and how hard the query was. Writes
bench/results/confounding.csv.

    python bench/confounding.py     # some minutes on two cores

Logs are SIMULATED, so that the truth is known. A tenant decides how hard the queries are, which their texts do not show. Who is
asked depends on the tenant, on the text, on both or on neither. Each log is judged in five folds, as `l2d train` does it: with the
text alone, with dataset.confounders=[tenant], and with given propensities. The text is read as the default router reads it.
"""

import math
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from l2d.core.guard import paired
from l2d.data.arrays import Answers
from l2d.data.confounders import clustered, encoded
from l2d.data.sheet import Sheet
from l2d.data.splits import Split
from l2d.data.text.words import Words
from l2d.logs.model import fit_log_model
from l2d.utils.text import Z
from records import MADE, ROOT, Results, Row, about, grouped, markdown, mean_of, origin

sys.path.insert(0, str(ROOT / "examples"))
from make_table import make_query

MODELS, PRICES = ("small", "medium", "large"), (0.0, 0.06, 0.18)
TENANTS = {"shop": 0.40, "bank": 0.35, "lab": 0.25}
TOPICS = {"shop": (0.5, 0.3, 0.1, 0.1), "bank": (0.3, 0.4, 0.2, 0.1), "lab": (0.1, 0.2, 0.4, 0.3)}
NAMES = ("chat", "facts", "code", "maths")
EASY = {"shop": 1.0, "bank": 0.0, "lab": -1.5}  # added to the log-odds of being right
RIGHT = {"chat": (2.0, 2.2, 2.4), "facts": (0.8, 1.4, 2.0), "code": (0.0, 1.8, 1.6), "maths": (-1.0, 0.2, 1.2)}
BY_TENANT = {"shop": (0.7, 0.2, 0.1), "bank": (0.3, 0.5, 0.2), "lab": (0.1, 0.3, 0.6)}
BY_TOPIC = {"chat": (0.7, 0.2, 0.1), "facts": (0.4, 0.4, 0.2), "code": (0.2, 0.6, 0.2), "maths": (0.1, 0.3, 0.6)}
POLICIES = ("neither", "the tenant", "the text", "both")
KNOWN = {"the text alone": (False, False), "the text and the tenant": (True, False), "given": (False, True)}
LOGS, ROWS, FOLDS = 100, 2_000, 5
CLEAR = 2.0  # standard errors between the two best models
RESULTS = Results("confounding", "policy known log model", f"value error true n {MADE}")


@dataclass(frozen=True)
class Log:
    """n rows: texts, tenants, the chance of each model to be asked, whether it was, and its errors [n, 3]."""

    texts: list[str]
    tenants: list[str]
    chances: np.ndarray
    asked: np.ndarray
    errors: np.ndarray


def wrong(tenant: str, topic: str) -> np.ndarray:
    """The chance of each model to be wrong."""
    return 1 / (1 + np.exp(np.array(RIGHT[topic]) + EASY[tenant]))


def chance(policy: str, tenant: str, topic: str) -> np.ndarray:
    """The chance of each model to be asked."""
    found = np.array((0.5, 0.3, 0.2)) if policy == "neither" else np.ones(3)
    if policy in ("the tenant", "both"):
        found = found * BY_TENANT[tenant]
    if policy in ("the text", "both"):
        found = found * BY_TOPIC[topic]
    return found / found.sum()


def truth() -> np.ndarray:
    """The expected cost of each model, over all queries."""
    found = np.array(PRICES)
    for tenant, share in TENANTS.items():
        for topic, part in zip(NAMES, TOPICS[tenant], strict=True):
            found = found + share * part * wrong(tenant, topic)
    return found


def simulated(policy: str, n: int, seed: int) -> Log:
    rng = np.random.default_rng([POLICIES.index(policy), seed])
    tenants = [str(one) for one in rng.choice(list(TENANTS), size=n, p=list(TENANTS.values()))]
    topics = [str(rng.choice(NAMES, p=TOPICS[tenant])) for tenant in tenants]
    chances = np.stack([chance(policy, *pair) for pair in zip(tenants, topics, strict=True)])
    asked = np.eye(3, dtype=bool)[[rng.choice(3, p=row) for row in chances]]
    errors = rng.random((n, 3)) < np.stack([wrong(*pair) for pair in zip(tenants, topics, strict=True)])
    return Log([make_query(topic, rng) for topic in topics], tenants, chances, asked, errors.astype(float))


def judged(log: Log, inputs: Tensor, *, tenant: bool, given: bool) -> Tensor:
    """The doubly robust cost of each model on each row, which the model of the log did not see [n, 3]."""
    errors = torch.from_numpy(np.where(log.asked, log.errors, np.nan))
    chances = torch.from_numpy(log.chances) if given else None
    kinds = clustered(inputs, int(log.asked.sum(axis=0).min()))
    sheet = Sheet(Path("log"), {"tenant": pa.chunked_array([pa.array(log.tenants)])})
    confounders = encoded([sheet], ["tenant"]) if tenant else kinds[:, :0]
    known = None if given else torch.cat([confounders, kinds], dim=1)
    answers = Answers(errors, propensities=chances, confounders=known)
    prices = torch.tensor(PRICES, dtype=torch.float64)
    whole = Split(inputs, torch.arange(len(errors)), answers, errors + prices, prices, torch.full((len(errors),), -1))
    found, fold = torch.zeros_like(errors), torch.arange(len(errors)) % FOLDS
    for k in range(FOLDS):
        found[fold == k] = fit_log_model(whole.take(fold != k), MODELS).judged(whole.take(fold == k)).costs
    return found


def of_a_log(policy: str, n: int, seed: int) -> list[Row]:
    """The estimated cost of each model, its standard error and the truth."""
    torch.set_num_threads(1)
    log, rows = simulated(policy, n, seed), []
    inputs = torch.from_numpy(Words().fitted(log.texts).embed(log.texts))
    for known, (tenant, given) in KNOWN.items():
        costs = judged(log, inputs, tenant=tenant, given=given)
        for model, values, true in zip(MODELS, costs.T, truth(), strict=True):
            figures = zip(("value", "error", "true"), (*paired(values), true), strict=True)
            keys = {"policy": policy, "known": known, "log": str(seed), "model": model, "n": str(n)}
            rows.append(keys | {name: f"{figure:.6f}" for name, figure in figures})
    return rows


def coverage(rows: Sequence[Row]) -> dict[str, float]:
    """The share of 95 % intervals that cover the truth, by what was known."""
    inside = {
        known: [abs(float(row["value"]) - float(row["true"])) < Z * float(row["error"]) for row in some]
        for known, some in grouped(rows, lambda row: row["known"]).items()
    }
    return {known: statistics.fmean(some) for known, some in inside.items()}


def named_right(rows: Sequence[Row]) -> tuple[int, int]:
    """In how many logs the model with the least estimated cost is the best, and of how many: those in which the best is better than
    the second by more than two standard errors."""
    right = []
    for models in grouped(rows, lambda row: row["log"]).values():
        best, second, *_ = sorted(models, key=lambda row: float(row["true"]))
        error = math.hypot(float(best["error"]), float(second["error"]))
        if float(second["true"]) - float(best["true"]) > CLEAR * error:
            right.append(min(models, key=lambda row: float(row["value"])) is best)
    return sum(right), len(right)


def table(rows: Sequence[Row]) -> str:
    lines = []
    for policy, known in product(POLICIES, KNOWN):
        some = [row for row in rows if (row["policy"], row["known"]) == (policy, known)]
        by_model = grouped(some, lambda row: row["model"])
        bias = (mean_of(by_model[model], "value") - mean_of(by_model[model], "true") for model in MODELS)
        right, clear = named_right(some)
        shown = ", ".join(f"{found:+.3f}" for found in bias)
        lines.append([policy, known, f"{coverage(some)[known]:.0%}", shown, f"{right} of {clear}"])
    head = ["who is asked depends on", "propensities from", "95 % intervals cover", f"bias ({', '.join(MODELS)})"]
    head.append("best model named")
    logs = len({row["log"] for row in rows})
    told = f"{logs} simulated logs of {int(rows[0]['n']):,} rows in each line, three models, so {3 * logs} intervals"
    named = "*best model named*: of the logs in which it is better by more than two standard errors"
    return f"{markdown(head, lines)}\n\n{told}; {named}. {origin(rows)}."


if __name__ == "__main__":
    made, pairs = about("python bench/confounding.py"), list(product(POLICIES, range(LOGS)))
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(of_a_log, *zip(*((policy, ROWS, seed) for policy, seed in pairs), strict=True))
        RESULTS.write({**row, **made} for rows in found for row in rows)
