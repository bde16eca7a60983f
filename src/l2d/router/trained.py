"""The parts of a trained router, as one frozen value, and how queries go through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.budget import OperatingPoint
from l2d.core.decisions import at_least_float32
from l2d.core.guard import Guard
from l2d.core.prices import Prices
from l2d.core.replies import Replies
from l2d.data.batches import eval_parts
from l2d.networks.estimators.planner import LEARNED, Planner, planner_of
from l2d.router.queries import query_inputs, readable
from l2d.router.score import RouterScore
from l2d.runs.artifact.exported import RETRAIN
from l2d.runs.artifact.rebuild import RebuiltRun
from l2d.utils.errors import L2DError, ParameterError

NEEDS_GUARD = "a budget needs the guard, its fallback; leave out raw or the budget"


@dataclass(frozen=True, eq=False)
class TrainedRouter(RebuiltRun):
    """A router as training left it. Another one is made by `dataclasses.replace`; none is changed."""

    validation: RouterScore | None = None  # on held-out rows
    operating_point: OperatingPoint | None = None  # within a budget
    device: str = "cpu"
    raw: bool = False  # decide without the guard; not within a budget

    def __post_init__(self) -> None:
        if self.raw and self.operating_point is not None:
            raise ParameterError("raw", NEEDS_GUARD, self.raw)

    @property
    def experts(self) -> tuple[str, ...]:
        return self.description.experts

    @cached_property
    def prices(self) -> Prices:
        return Prices.of(self.config, self.description.prices, self.description.factor)


def active_guard(router: TrainedRouter) -> Guard | None:
    return None if router.raw else router.description.guard


def allowed_experts(router: TrainedRouter) -> tuple[int, ...] | None:
    """The experts, counted from 0, that are within the budget alone; None without a budget."""
    return None if router.operating_point is None else router.operating_point.allowed


def knows_prices(router: TrainedRouter) -> bool:
    """True if it knows prices apart from errors. Methods that take no others keep no rows to fit a guard to."""
    known = router.held_out
    return known is not None and (router.description.prices is not None or known.expected_prices is not None)


def takes_prices(router: TrainedRouter) -> bool:
    """True if `Router.at` takes other prices alone. False if the router's own budget or promise cannot be kept at them."""
    point = router.operating_point
    keeps = point is None or (point.max_error is None and not point.unit.latency_price)
    return keeps and (planner_of(router.network) is not None or knows_prices(router))


def inputs_of(router: TrainedRouter, queries: Sequence[Any] | np.ndarray | Tensor) -> Tensor:
    """The queries as the network takes them. An empty text is refused."""
    return query_inputs(queries, router.description, lambda texts: embed(router, texts))


def readable_inputs(router: TrainedRouter, queries: Sequence[Any] | np.ndarray | Tensor) -> tuple[Tensor, Tensor]:
    """The queries as the network takes them, and which of them have an empty text, bool [n]: the router cannot read these."""
    filled, empty = readable(queries, router.description.seen.text)
    return inputs_of(router, filled), empty


def embed(router: TrainedRouter, texts: Sequence[str]) -> np.ndarray:
    if router.encoder is None:
        raise L2DError(f"the run does not say how its router reads {router.description.seen.text}; {RETRAIN}")
    return router.encoder.embed(texts)


def outputs_of(router: TrainedRouter, inputs: Tensor) -> Tensor:
    """The network's outputs [n, num_outputs], in batches of the size used to score the run."""
    with torch.inference_mode():
        parts = [router.network(part.to(router.device)).cpu() for part in eval_parts(inputs)]
    return at_least_float32(torch.cat(parts))


def decide_outputs(router: TrainedRouter, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen experts, counted from 0, without and with the guard; of a plan, those that are asked first."""
    planner, name = plan_of(router)
    with torch.inference_mode():
        if planner is None:
            own, guard = router.method.decide(outputs), active_guard(router)
            return own, own if guard is None else guard.decide(router.method.utilities(outputs), own)
        n, p = len(outputs), len(router.experts)
        nothing = Replies(torch.full((n, p), -1), torch.full((n, p, 2), torch.nan))
        nobody = torch.zeros(n, p, dtype=torch.bool)
        view = planner.view(outputs[:, :p].cpu(), nothing)
        first = planner.plans[name](view, nobody, torch.full((n, p), -1.0), nobody)[0]
        return first, first


def decide_inputs(router: TrainedRouter, inputs: Tensor) -> Tensor:
    return decide_outputs(router, outputs_of(router, inputs).to(router.device))[1].cpu()


def plan_of(router: TrainedRouter) -> tuple[Planner | None, str]:
    """The planner and the plan that it follows; None if the router asks one expert."""
    planner = planner_of(router.network)
    name = LEARNED if router.raw and planner is not None else router.description.plan
    return (None, "") if planner is None or name is None else (planner, name)
