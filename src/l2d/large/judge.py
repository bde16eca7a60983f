"""The verdict on every row, by a router that did not see it: the metrics of blocks, pooled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core import metrics, off_policy
from l2d.core.guard import Guard, fit_guard
from l2d.core.results import ESTIMATED, KNOWN
from l2d.large.passes import FOLDS, Rows, Sums
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.network import EstimatorNetwork

AT_ONCE = 512  # rows: a router by neighbours compares each with its whole sample


@dataclass(frozen=True)
class Routed:
    """Decisions on n rows, as training/score.py has them, which workers do not import: it takes memory."""

    scores: Tensor
    utilities: Tensor
    decisions: Tensor
    costs: Tensor
    prices: Tensor
    expected_errors: Tensor


@dataclass(frozen=True)
class Routers:
    """networks: without each fold, and of all rows. from_log: whether some outcomes are missing."""

    method: SimpleRouter
    networks: Sequence[EstimatorNetwork]
    from_log: bool

    @property
    def digest(self) -> str:
        found = sha256()
        for part in (part for network in self.networks for part in network.state_dict().values()):
            found.update(part.numpy().tobytes())
        return found.hexdigest()[:8]

    def outputs(self, rows: Rows, shift: int = 0) -> Tensor:
        """The outputs of the router that did not see the row's fold; shift=1: the one before, which saw it."""
        found = torch.zeros(len(rows), self.method.num_outputs)
        with torch.inference_mode():
            for fold in range(FOLDS):
                mine, network = rows.folds == fold, self.networks[(fold - shift) % FOLDS]
                found[mine] = torch.cat([network(part) for part in rows.inputs[mine].split(AT_ONCE)])
        return found

    def routed(self, rows: Rows) -> Routed:
        """Costs that a log does not know are doubly robust."""
        method, outputs = self.method, self.outputs(rows)
        prices, expected = method.prices.double(), method.expected_errors(outputs)
        costs = rows.errors + prices
        if self.from_log and rows.chances is not None:
            weights = off_policy.weights_of(~costs.isnan(), rows.chances)
            costs = off_policy.doubly_robust(costs, off_policy.Logged(expected + prices, weights))
        return Routed(outputs, method.utilities(outputs), method.decide(outputs), costs, prices, expected)

    def guards(self, sample: Rows, best: int) -> list[Guard]:
        """Without each fold, and of all rows of the sample."""
        rows, needed, found = self.routed(sample), ESTIMATED if self.from_log else KNOWN, []
        for fold in range(FOLDS + 1):
            kept = sample.folds != fold
            found.append(fit_guard(rows.utilities[kept], rows.decisions[kept], rows.costs[kept], best, needed))
        return found


def judged(names: Sequence[str], routers: Routers, guards: Sequence[Guard], means: Tensor, rows: Rows) -> Sums:
    """The metrics of a block as JSON. means [p]: of the experts' costs over all rows, which choose the best single expert."""
    routed = routers.routed(rows)
    guarded = torch.empty_like(routed.decisions)
    for fold in range(FOLDS):
        mine = rows.folds == fold
        guarded[mine] = guards[fold].decide(routed.utilities[mine], routed.decisions[mine])
    decided = (routed.costs, routed.prices, names)
    found = metrics.routing_metrics(routed.decisions, means[None], *decided, from_log=routers.from_log)
    own = {"routing": asdict(found), "guarded": asdict(metrics.guarded_score(guards[-1], guarded, *decided))}
    own["routing"]["baselines"]["majority"] = None  # among the experts of all rows, which a block does not know
    return {"n": np.array(len(rows)), "metrics": np.array(json.dumps(own))}


def pooled(one: Sums, two: Sums) -> Sums:
    n, parts = (int(one["n"]), int(two["n"])), (json.loads(str(found["metrics"])) for found in (one, two))
    return {"n": np.array(sum(n)), "metrics": np.array(json.dumps(_pooled("", n, *parts)))}


def _pooled(key: str, n: tuple[int, int], one: Any, two: Any) -> Any:
    """Counts are added, other numbers averaged; standard errors are of deviations from the common mean."""
    if isinstance(one, Mapping):
        found = {name: _pooled(name, n, value, two[name]) for name, value in one.items()}
        if "standard_error" in one and key != "validation":  # which is the same for all blocks
            apart = _mean(one) - _mean(two)
            squares = apart**2 * n[0] * n[1] / sum(n)
            for m, part in zip(n, (one, two), strict=True):
                squares += m * (m - 1) * (part["standard_error"] or 0) ** 2
            found["standard_error"] = (squares / sum(n) / (sum(n) - 1)) ** 0.5
        return found
    if isinstance(one, list):
        return [_pooled(key, n, *both) for both in zip(one, two, strict=True)]
    if key == "confusion" and isinstance(one, int):
        return one + two
    return (one * n[0] + two * n[1]) / sum(n) if isinstance(one, float) and isinstance(two, float) else one


def _mean(part: Mapping[str, Any]) -> float:
    """The mean that the standard error belongs to."""
    known = [part[name] for name in ("deferral_loss", "gain") if name in part]
    return float(known[0] if known else part["error_rate"] + part["price"])
