"""The estimated spend within a budget beside the true one. Writes bench/results/budget.csv.

    python bench/budget.py     # some 13 minutes on two cores

Routers learn from simulated logs (examples/make_log.py), whose true prices are known. They are kept within several budgets, and
judged on new queries: by the estimate that the router prints and, to compare, by the spend of the folds' routers alone.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from torch import Tensor

from l2d.router.router import Router
from l2d.router.trained import decide_inputs, inputs_of
from l2d.utils.errors import ParameterError
from records import MADE, ROOT, Results, Row, about, markdown, origin, trained

sys.path.insert(0, str(ROOT / "examples"))
import make_log

METHODS, BUDGETS, CONFIDENCES = ("linear", "knn", "mix"), (0.001, 0.0015, 0.002, 0.0025), (None, 0.95)
LOGS, FRESH = 12, 5_000
ESTIMATES = ("folds, and what the final router spends more", "folds alone")
HEAD = ["method", "confidence", "spend told as", "told/true", "true spend below its interval", "above"]
HEAD += ["budget exceeded", "points"]
POINTS = Results("budget", "method log budget confidence estimate", f"spend low high true routed n {MADE}")


def folds_alone(run: Path) -> Router:
    """The router, with the spend of the folds' routers as its estimate."""
    router = Router.load(run)
    assert router.held_out is not None
    return replace(router, held_out=replace(router.held_out, learned=None, deployed=None, seen=None))


def measured(work: Path) -> Iterator[Row]:
    rng = np.random.default_rng(12_345)
    queries = [make_log.draw_query(rng)[0] for _ in range(FRESH)]
    made = about("python bench/budget.py")
    asked = f"dataset=table dataset.path={work}/log.csv dataset.text=query cost=columns cost.error_price=0.02 runs_dir={work}/runs"
    for seed in range(1, LOGS + 1):
        make_log.main(work / "log.csv", seed)
        for method in METHODS:
            run, _ = trained([*asked.split(), f"dataset.name=log{seed}", f"method={method}", "progress=false"])
            routers = dict(zip(ESTIMATES, (Router.load(run.path), folds_alone(run.path)), strict=True))
            first = routers[ESTIMATES[0]]
            inputs = inputs_of(first, queries)
            prices = np.array([[make_log.price_of(model, query) for model in first.experts] for query in queries])
            for (estimate, router), budget, confidence in product(routers.items(), BUDGETS, CONFIDENCES):
                names = (method, str(seed), str(budget), str(confidence or ""), estimate)
                found = spent(router, budget, confidence, inputs, prices)
                yield {**dict(zip(POINTS.keys.split(), names, strict=True)), **found, **made}


def spent(router: Router, budget: float, confidence: float | None, inputs: Tensor, prices: np.ndarray) -> Row:
    """Empty if the budget is refused. inputs, prices [n, p]: of new queries."""
    try:
        within = router.within(budget, confidence)
    except ParameterError:
        return {}
    point = within.operating_point
    assert point is not None
    true = float(prices[np.arange(len(prices)), decide_inputs(within, inputs).numpy()].mean())
    amounts = dict(zip(("spend", "low", "high", "true"), (point.spend, *point.spend_interval, true), strict=True))
    routed = str(int(point.guard.constant is None))
    return {name: f"{amount:.7f}" for name, amount in amounts.items()} | {"routed": routed, "n": str(point.rows)}


def table(rows: Sequence[Row]) -> str:
    lines = []
    for method, confidence, estimate in product(METHODS, CONFIDENCES, ESTIMATES):
        names = {"method": method, "confidence": str(confidence or ""), "estimate": estimate, "routed": "1"}
        some = [row for row in rows if names.items() <= row.items()]
        values = np.array([[float(row[name]) for name in ("spend", "low", "high", "true", "budget")] for row in some])
        spend, low, high, true, budget = values.T
        shares = (f"{found.mean():.0%}" for found in (true < low, true > high, true > budget))
        ratio = f"{(spend / true).mean():.3f}"
        lines.append([f"`{method}`", str(confidence or "none"), estimate, ratio, *shares, str(len(some))])
    logs, budgets = len({row["log"] for row in rows}), ", ".join(f"${budget:g}" for budget in BUDGETS)
    told = f"{logs} simulated logs of {make_log.ROWS:,} rows, budgets {budgets}; without points that send everything to one expert"
    return f"{markdown(HEAD, lines)}\n\n{told}; the truth is of {FRESH:,} new queries. {origin(rows)}."


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        POINTS.write(measured(Path(folder)))
