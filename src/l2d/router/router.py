"""A finished run's router, to be asked about new queries."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.budget import OperatingPoint
from l2d.core.decisions import at_least_float32
from l2d.core.guard import Guard
from l2d.data.batches import eval_parts
from l2d.methods.method import Method
from l2d.router.added import with_expert
from l2d.router.choices import Choice, make_choices
from l2d.router.export import export_router
from l2d.router.queries import file_inputs, query_inputs
from l2d.router.repriced import NEEDS_GUARD, Prices, costs_for, repriced
from l2d.router.saved import read_saved, save_router
from l2d.router.score import Comparison, RouterScore, compare_decisions, score_decisions
from l2d.runs.artifact.exported import RETRAIN
from l2d.runs.artifact.rebuild import RebuiltRun, rebuild_run
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import Unit

if TYPE_CHECKING:
    from l2d.utils.picture import Picture


class Router:
    """Chooses an expert for each query. `Router.load` makes one from the folder of a finished run.

    network, method, encoder: what it decides with. guard: fitted to the validation rows, for the prices it decides by. It may send
    every query to the best single expert, or shift the experts' scores; guard_note says which, None if neither. raw: decide without
    the guard (`Router.load(folder, raw=True)`, or set `router.raw = True`); not within a budget. operating_point: what a router
    within a budget is expected to spend, None without a budget.
    """

    def __init__(self, run: RebuiltRun, device: str = "cpu", *, raw: bool = False) -> None:
        self.network, self.encoder, self.device = run.network.to(device).eval(), run.encoder, device
        self.method: Method = run.method.to(device).eval()
        self.config, self.description, self.held_out = run.config, run.description, run.held_out
        self.training_inputs = run.training_inputs
        self.guard: Guard = run.description.guard
        self.validation: RouterScore | None = None
        self.operating_point: OperatingPoint | None = None
        self.raw = raw

    @classmethod
    def load(cls, run: str | Path, device: str = "cpu", *, raw: bool = False, trust: Sequence[str] = ()) -> "Router":
        """From a run's folder alone: neither the data nor the experts are needed.

        raw: decide without the guard. trust: your own modules whose classes the run uses. Only classes of these and of l2d
        are built, so a folder from somebody else cannot run code.
        """
        folder = Path(run).expanduser()
        router = cls(rebuild_run(folder, trust), device)
        router.validation, router.operating_point = read_saved(folder)
        router.raw = raw
        return router

    def save(self, folder: str | Path) -> None:
        """Write the router into a folder of its own, for `Router.load` and `l2d route`. An earlier router there is replaced."""
        save_router(self, Path(folder).expanduser())

    def __repr__(self) -> str:
        one = None if self.raw or self.guard.constant is None else self.experts[self.guard.constant]
        guard = "" if one is None else f"; guard: every query goes to {one}"
        return f"Router({', '.join(self.experts)}; sees {self.sees}{guard})"

    @property
    def raw(self) -> bool:
        return self._raw

    @raw.setter
    def raw(self, raw: bool) -> None:
        if raw and self.has_budget:
            raise ParameterError("raw", NEEDS_GUARD, raw)
        self._raw = raw

    @property
    def has_budget(self) -> bool:
        """Whether it keeps within a budget. An earlier l2d saved the factor on the prices, but not the operating point."""
        return self.operating_point is not None or self.description.factor != 1

    @property
    def experts(self) -> tuple[str, ...]:
        return self.description.experts

    @property
    def kind(self) -> str:
        """What a query is: image, text (and nothing else), or row."""
        return self.description.kind

    @property
    def sees(self) -> str:
        return self.description.sees

    @property
    def guard_note(self) -> str | None:
        """What the guard does to all decisions, for the user; None if it does nothing."""
        if self.raw or (self.guard.constant is None and self.guard.offsets is None):
            return None
        if self.guard.constant is not None:
            best = self.experts[self.guard.constant]
            enough = " by more than a standard error" if self.guard.needed else ""
            reason = f"on rows that it did not see the router was not better than {best}{enough}"
            if self.guard.pays:
                reason = f"{best} is within the budget, and no routing is"
            return f"guard: every query goes to {best}; {reason}"
        return "guard: the experts' scores are shifted by offsets that were fitted to the validation rows"

    def at(
        self, prices: Prices | None = None, *, budget: float | None = None, confidence: float | None = None
    ) -> "Router":
        """Another router, which decides by other prices or within a budget. It shares this one's network; this one stays as it is.

        Args:
            prices: One per expert, in the unit of the prices in training, before cost.scale. Default: this router's own. The guard
                is fitted to rows that the router did not see, at these prices. A router within a budget keeps its budget and
                confidence, unless others are given. If the budget contains latency, another one must be given.
            budget: The mean price per query to keep within, in the same unit. Prices that differ between queries are those that the
                router expects. The prices are then multiplied by the least factor that keeps the budget, and the guard's fallback
                is within the budget too. Default: the one that the router keeps, if it keeps one.
            confidence: With 0.95, the chance of overspending is at most 5 %. Default: about one half, where the budget binds. The
                confidence of the router's own budget stays only as long as that budget does.

        Returns:
            A router. With a budget, its `operating_point` says what it is expected to spend and how often it errs.
        """
        return repriced(self, prices, budget, confidence)

    def within(self, budget: float, confidence: float | None = None) -> "Router":
        """Another router, which keeps the mean price per query within a budget: short for `at(budget=…, confidence=…)`."""
        return self.at(budget=budget, confidence=confidence)

    @property
    def takes_prices(self) -> bool:
        """Whether `at` takes other prices alone. It does not if the router's own budget cannot be kept at them."""
        point = self.operating_point
        keeps = not self.has_budget if point is None else not point.with_latency
        return keeps and self.knows_prices

    @property
    def knows_prices(self) -> bool:
        """Whether it knows prices apart from errors. Methods that take no others keep no rows to fit a guard to."""
        known = self.held_out
        return known is not None and (self.description.prices is not None or known.expected_prices is not None)

    @property
    def lists_prices(self) -> bool:
        """Whether one price per expert, given later, has taken the place of prices that differ between queries."""
        return self.description.prices is not None and self.network.price_model is not None

    def with_expert(
        self, name: str, queries: Sequence[Any] | np.ndarray, errors: Any, *, price: float | None = None
    ) -> "Router":
        """Another router that may choose one more expert. What this one knows of the others stays; nothing is trained again.

        Args:
            name: Of the new expert.
            queries: On which it was asked, as for `route`; fifty will do for a start.
            errors: How wrong it was on each of them, 0 or 1, or a loss.
            price: Per query, in the unit of the prices in training. May be left out if the others have none.

        Returns:
            A router without a guard, since there are no rows to compare the new expert with the others. It takes no other prices
            and no budget; train with the new rows in the log for these. Methods: knn, clusters, linear, category_table, mix.
        """
        return with_expert(self, name, queries, errors, price)

    @property
    def allowed(self) -> tuple[int, ...] | None:
        """The experts, counted from 0, that are within the budget alone; None without a budget."""
        return None if self.operating_point is None else self.operating_point.allowed

    @property
    def counts_prices(self) -> bool:
        """Whether prices are part of its costs."""
        return any(self.description.prices or ()) or (self.price_scale > 0 and "scale" in self.config["cost"])

    @property
    def price_scale(self) -> float:
        """What prices were multiplied by in training, to be in units of one error."""
        return float(self.config["cost"].get("scale", 1.0))

    @property
    def later_scale(self) -> float:
        """What prices and budgets that are given later are multiplied by. A run with cost.scale=0 has no unit but one error."""
        return self.price_scale or 1.0

    @property
    def cost_scale(self) -> float:
        """What prices are multiplied by in its costs: 0 if cost.scale=0 made all prices 0, and none were given later."""
        return self.later_scale if self.counts_prices else self.price_scale

    @property
    def price_weight(self) -> float:
        """What a price in the unit of training counts for in a decision, in units of one error: a budget multiplies prices."""
        return self.later_scale * self.description.factor

    @property
    def unit(self) -> Unit:
        """What losses and prices are told in. One price per expert, as `at` takes them, contains no latency."""
        found = Unit.of(self.config)
        return found if self.description.prices is None else replace(found, latency_price=0.0)

    def route(self, queries: Sequence[Any] | np.ndarray | Tensor) -> list[Choice]:
        """queries: texts; rows, as mappings by column or as numbers in the columns' order; or images, as paths or as uint8
        [n, H, W, C] with the pixel values of the training images."""
        return self.choose(self.scores(self.inputs_of(queries))) if len(queries) else []

    def inputs_of(self, queries: Sequence[Any] | np.ndarray | Tensor) -> Tensor:
        """The queries as the network takes them."""
        return query_inputs(queries, self.description, self._embed)

    def route_file(self, path: str | Path) -> list[Choice]:
        """One choice for each row of a CSV, Parquet or JSONL file with the columns that the router was trained on. If there is a
        column id, the choices contain it."""
        file = Path(os.path.expanduser(path))  # noqa: PTH111 (unlike Path's, it leaves ~$name as it is)
        inputs, ids = file_inputs(file, self.description, self._embed)
        return [replace(choice, id=known) for choice, known in zip(self.choose(self.scores(inputs)), ids, strict=True)]

    def decide(self, queries: Sequence[Any] | np.ndarray | Tensor) -> Tensor:
        """The number of the chosen expert for each query, counted from 0, int64 [n]."""
        return self.decide_inputs(self.inputs_of(queries))

    def decide_inputs(self, inputs: Tensor) -> Tensor:
        """The same for inputs as the network takes them."""
        return self._decisions(self.scores(inputs).to(self.device))[1].cpu()

    def score(self, queries: Any, costs: Any = None, *, errors: Any = None, prices: Any = None) -> RouterScore:
        """How good the choices are on queries whose costs are known.

        Args:
            queries: As for `route`.
            costs: [n, p], one column per expert, in units of one error. Give this, or `errors` and `prices`.
            errors: [n, p].
            prices: [p], also by expert's name, or [n, p], in the unit of the prices in training, as for `at`. Default: the router's
                own, if it has one per expert.

        Returns:
            Deferral loss, shares, oracle and best single expert, with 95 % intervals, in units of one error. Printed, they are in
            dollars if the run has cost.error_price. Within a budget, the best single expert is the best that the budget allows; if
            it allows none alone, the best of all.
        """
        decisions = self.decide(queries)
        found, paid = costs_for(self, len(decisions), costs, errors, prices)
        score = score_decisions(decisions, found, self.experts, paid, allowed=self.allowed)
        return replace(score, error_price=self.unit.error_price)

    def compare(
        self, other: "Router", queries: Any, costs: Any = None, *, errors: Any = None, prices: Any = None
    ) -> Comparison:
        """How much less or more this router's choices cost than another's, on the same queries.

        Args:
            other: A router over the same experts.
            queries: As for `route`.
            costs: As for `score`, as are `errors` and `prices`.
            errors: [n, p].
            prices: [p] or [n, p]. Default: this router's own, if it has one per expert.

        Returns:
            The mean difference, negative if this router is better, with its paired 95 % interval, in the units of `score`.
        """
        if other.experts != self.experts:
            raise ParameterError(
                "other", f"must choose among {', '.join(self.experts)}, not {', '.join(other.experts)}"
            )
        decisions = self.decide(queries)
        found, _ = costs_for(self, len(decisions), costs, errors, prices)
        compared = compare_decisions(decisions, other.decide(queries), found)
        return replace(compared, error_price=self.unit.error_price)

    def export(self, file: str | Path) -> None:
        """Write the router as one program that needs no l2d: FILE.pt2 for torch.export.load, or FILE.onnx (extra l2d[onnx]).

        The program takes inputs as the network does (numbers float32 [n, F], images uint8 [n, H, W, C]) and gives the number of the
        chosen expert, counted from 0, and the network's outputs. It is checked to choose as the router does.
        """
        export_router(self, Path(file).expanduser())

    def plot(self, queries: Any = None, costs: Any = None, *, errors: Any = None, prices: Any = None) -> "Picture":
        """A picture of mean costs and of shares per expert: on these queries or, without any, on the held-out rows."""
        if queries is not None:
            return self.score(queries, costs, errors=errors, prices=prices).plot()
        if self.validation is None:
            raise L2DError("this router has no score on held-out rows; give queries and costs")
        return self.validation.plot("held-out rows")

    def scores(self, inputs: Tensor) -> Tensor:
        """The network's outputs [n, num_outputs] for inputs as it takes them, in batches of the size used to score the run."""
        with torch.inference_mode():
            parts = [self.network(part.to(self.device)).cpu() for part in eval_parts(inputs)]
        return at_least_float32(torch.cat(parts))

    def choose(self, outputs: Tensor) -> list[Choice]:
        """One choice for each row of the network's outputs."""
        outputs = outputs.to(self.device)
        return make_choices(self, outputs, *self._decisions(outputs))

    def _decisions(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Without and with the guard."""
        with torch.inference_mode():
            own = self.method.decide(outputs)
            return own, own if self.raw else self.guard.decide(self.method.utilities(outputs), own)

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.encoder is None:
            raise L2DError(f"the run does not say how its router reads {self.description.seen.text}; {RETRAIN}")
        return self.encoder.embed(texts)
