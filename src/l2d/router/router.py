"""A finished run's router, to be asked about new queries."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from l2d.core.prices import PriceList
from l2d.data.given import refuse_other_order
from l2d.router import trained
from l2d.router.added import NewExpert, with_expert
from l2d.router.capacity import Capacity, within_capacity
from l2d.router.choices import Choice, make_choices
from l2d.router.export import export_router
from l2d.router.plan_pictures import plot_plan
from l2d.router.plans import Step, begin, given_replies, score_plan
from l2d.router.prices import costs_for, repriced
from l2d.router.queries import file_inputs
from l2d.router.saved import read_saved, save_router
from l2d.router.score import Comparison, RouterScore, compare_decisions, score_decisions
from l2d.router.trained import TrainedRouter, decide_inputs, inputs_of, outputs_of, plan_of, readable_inputs
from l2d.runs.artifact.rebuild import RebuiltRun, rebuild_run
from l2d.utils.errors import L2DError, ParameterError

if TYPE_CHECKING:
    from l2d.utils.picture import Picture


@dataclass(frozen=True, eq=False, repr=False)
class Router(TrainedRouter):
    """Chooses an expert for each query. `Router.load` makes one from the folder of a finished run. A router never changes: `at`,
    `within` and `with_expert` return another one.

    The guard, fitted to the validation rows, may send every query to the best single expert, or shift the experts' scores;
    `guard_note` says which. `raw` decides without it: `Router.load(folder, raw=True)` or `router.at(raw=True)`. operating_point:
    the expected spend of a router within a budget, None without a budget. validation: its score on held-out rows."""

    @classmethod
    def load(cls, run: str | Path, device: str = "cpu", *, raw: bool = False, trust: Sequence[str] = ()) -> "Router":
        """From a run's folder alone: neither the data nor the experts are needed. raw: decide without the guard. trust: your own
        modules whose classes the run uses. Only classes of these and of l2d are built, so a folder cannot run other code."""
        folder = Path(run).expanduser()
        router = router_of(rebuild_run(folder, trust), device)
        validation, point, saved_raw = read_saved(folder)
        return replace(router, validation=validation, operating_point=point, raw=raw or saved_raw)

    def save(self, folder: str | Path) -> None:
        """Write the router into a folder of its own, for `Router.load` and `l2d route`. An earlier router there is replaced."""
        save_router(self, Path(folder).expanduser())

    def __repr__(self) -> str:
        constant = None if self.raw else self.description.guard.constant
        guard = "" if constant is None else f"; guard: every query goes to {self.experts[constant]}"
        return f"Router({', '.join(self.experts)}; sees {self.description.sees}{guard})"

    @property
    def guard_note(self) -> str | None:
        """The guard's effect on all decisions, for the user; None if it has none."""
        guard = self.description.guard
        if self.raw or (guard.constant is None and guard.offsets is None):
            return None
        if guard.constant is not None:
            best = self.experts[guard.constant]
            enough = " by more than a standard error" if guard.needed else ""
            reason = f"on rows that it did not see the router was not better than {best}{enough}"
            if guard.pays:
                reason = f"{best} is within the budget, and no routing is"
            return f"guard: every query goes to {best}; {reason}"
        if guard.error is None:
            return f"guard: the expected error of {self.experts[-1]}, which is new, is raised by 1.5 standard errors"
        return "guard: the experts' scores are shifted by offsets that were fitted to the validation rows"

    def at(
        self,
        prices: PriceList | None = None,
        *,
        budget: float | None = None,
        confidence: float | None = None,
        max_error: float | None = None,
        raw: bool | None = None,
    ) -> "Router":
        """Another router, which decides by other prices, within a budget or without the guard. It shares this one's network.

        Args:
            prices: One per expert, in the unit of the prices in training, before cost.scale. Default: this router's own. The guard
                is fitted to rows that the router did not see, at these prices. A router within a budget keeps its budget and
                confidence, unless others are given. If the budget contains latency, another one must be given.
            budget: The mean price per query to keep within, in the same unit. Prices that differ between queries are those that the
                router expects. The prices are then multiplied by the least factor that keeps the budget, and the guard's fallback
                is within the budget too. Default: the one that the router keeps, if it keeps one.
            confidence: With 0.95, the chance of overspending is at most 5 %. Default: about one half, where the budget binds. The
                confidence of the router's own budget stays only as long as that budget does.
            max_error: The cheapest decisions whose true error is at most this, with the confidence (default: 0.95) over the draw of
                the rows that the router did not see, for queries like them. There is no guard then, and no budget.
            raw: True decides without the guard, False with it again. Default: as this router does.

        Returns:
            A router. With a budget, its `operating_point` says what it is expected to spend and how often it errs."""
        router = self if raw is None else replace(self, raw=raw)
        only_raw = raw is not None and all(one is None for one in (prices, budget, confidence, max_error))
        return router if only_raw else repriced(router, prices, budget, confidence, max_error)

    def begin(self, query: Any, *, cap: float | None = None) -> Step:
        """The first step of one query, for a loop of your own: whom to ask and, after each answer, whether to ask another. cap: on
        the prices of all calls for this query, in the unit of the prices in training."""
        return begin(self, outputs_of(self, inputs_of(self, [query])), cap)

    def within(self, budget: float, confidence: float | None = None) -> "Router":
        """Another router, which keeps the mean price per query within a budget: short for `at(budget=…, confidence=…)`."""
        return self.at(budget=budget, confidence=confidence)

    def with_expert(
        self,
        name: str,
        queries: Sequence[Any] | np.ndarray = (),
        errors: Any = (),
        *,
        price: float | None = None,
        like: str | None = None,
        others: Any = None,
    ) -> "Router":
        """Another router that may choose one more expert. What this one knows of the others stays; nothing is trained again.

        Args:
            name: Of the new expert.
            queries: On which it was asked, as for `route`; none, or twenty for a start.
            errors: How wrong it was on each of them, 0 or 1, or a loss.
            price: Per query, in the unit of the prices in training. May be left out if the others have none.
            like: A known expert that it resembles; without any query, it must be given.
            others: The known experts' errors on the same queries, [n, p], if they are known: then fewer queries say as much.

        Returns:
            A router that estimates the new expert by the known ones' estimates and its outcomes; from fifty outcomes on, by its
            outcomes alone if that is better. Its guard adds 1.5 standard errors to the new expert's expected error, so that it gets
            little before its outcomes say more. The router takes no other prices and no budget; train with the new rows for these.
            Methods: auto, knn, clusters, linear, linear_plugin, category_table, mix."""
        return with_expert(self, NewExpert(name, queries, errors, price, like, others))

    def route(self, queries: Sequence[Any] | np.ndarray | Tensor, *, capacity: Capacity | None = None) -> list[Choice]:
        """queries: texts; rows, as mappings by column or as numbers in the columns' order; or images, as paths or as uint8
        [n, H, W, C] with the pixel values of the training images. A query with an empty text goes to the best single expert;
        its choice is `unread`. capacity: the most of these queries for an expert, `{"alice": 40, "large": "10%"}`; together the
        choices then have the least expected cost."""
        if not len(queries):
            return []
        inputs, empty = readable_inputs(self, queries)
        choices = make_choices(self, outputs_of(self, inputs), empty)
        return choices if capacity is None else within_capacity(self, choices, capacity)

    def route_file(self, path: str | Path, *, capacity: Capacity | None = None) -> list[Choice]:
        """One choice for each row of a CSV, Parquet or JSONL file with the columns that the router was trained on. If there is a
        column id, the choices contain it."""
        file = Path(os.path.expanduser(path))  # noqa: PTH111 (unlike Path's, it leaves ~$name as it is)
        inputs, empty, ids = file_inputs(file, self.description, lambda texts: trained.embed(self, texts))
        choices = make_choices(self, outputs_of(self, inputs), empty)
        choices = choices if capacity is None else within_capacity(self, choices, capacity)
        return [replace(choice, id=known) for choice, known in zip(choices, ids, strict=True)]

    def decide(self, queries: Sequence[Any] | np.ndarray | Tensor) -> Tensor:
        """The number of the chosen expert for each query, counted from 0, int64 [n]."""
        inputs, empty = readable_inputs(self, queries)
        return decide_inputs(self, inputs).masked_fill(empty, self.description.guard.best)

    def score(
        self, queries: Any, costs: Any = None, *, errors: Any = None, prices: Any = None, answers: Any = None
    ) -> RouterScore:
        """Score the choices on queries whose costs are known.

        Args:
            queries: As for `route`.
            costs: [n, p], one column per expert, in units of one error. Give this, or `errors` and `prices`.
            errors: [n, p].
            prices: [p], also by expert's name, or [n, p], in the unit of the prices in training, as for `at`. Default: the router's
                own, if it has one per expert.
            answers: As for `l2d.fit`, if this router may ask again. Prices are then those of all calls, and shares are of the
                experts whose answers are given.

        Returns:
            Deferral loss, shares, oracle and best single expert, with 95 % intervals, in units of one error. Printed, they are in
            dollars if the run has cost.error_price. Within a budget, the best single expert is the best that the budget allows; if
            it allows none alone, the best of all."""
        refuse_other_order(queries, costs=costs, errors=errors, prices=prices)
        decisions = self.decide(queries)
        found, paid = costs_for(self, len(decisions), costs, errors, prices)
        if plan_of(self)[0] is not None:
            if paid is None and self.prices.counted:
                raise ParameterError("costs", "a plan pays for several calls; give errors and prices")
            outputs, replies = outputs_of(self, inputs_of(self, queries)), given_replies(self, answers, len(found))
            return score_plan(self, outputs, replies, found if paid is None else found - paid, paid)
        return score_decisions(
            decisions, found, self.experts, paid, unit=self.prices, allowed=trained.allowed_experts(self)
        )

    def compare(
        self, other: "Router", queries: Any, costs: Any = None, *, errors: Any = None, prices: Any = None
    ) -> Comparison:
        """Compare the cost of this router's choices with that of another's over the same experts. The rest is as for `score`.

        Returns:
            The mean difference, negative if this router is better, with its paired 95 % interval, in the units of `score`.
        """
        if other.experts != self.experts or plan_of(self)[0] is not None or plan_of(other)[0] is not None:
            problem = f"must choose among {', '.join(self.experts)}, not {', '.join(other.experts)}; without a plan"
            raise ParameterError("other", problem)
        refuse_other_order(queries, costs=costs, errors=errors, prices=prices)
        decisions = self.decide(queries)
        found, _ = costs_for(self, len(decisions), costs, errors, prices)
        return compare_decisions(decisions, other.decide(queries), found, self.prices)

    def export(self, file: str | Path) -> None:
        """Write the router as one program that needs no l2d: FILE.pt2 for torch.export.load, or FILE.onnx (extra l2d[onnx]). It
        takes inputs as the network does (float32 [n, F], images uint8 [n, H, W, C]) and gives the number of the chosen expert,
        counted from 0, and the network's outputs. It is checked to choose as the router does."""
        export_router(self, Path(file).expanduser())

    def plot(
        self, queries: Any = None, costs: Any = None, *, errors: Any = None, prices: Any = None, answers: Any = None
    ) -> "Picture":
        """A picture of mean costs and of shares per expert: on these queries or, without any, on the held-out rows. Without any, a
        router that may ask again draws its plan as a tree."""
        if queries is not None:
            return self.score(queries, costs, errors=errors, prices=prices, answers=answers).plot()
        planner, name = plan_of(self)
        if planner is not None:
            return plot_plan(planner, name, self.experts)
        if self.validation is None:
            raise L2DError("this router has no score on held-out rows; give queries and costs")
        return self.validation.plot("held-out rows")


def router_of(run: RebuiltRun, device: str = "cpu") -> Router:
    """A router from the parts of a run."""
    run.network.to(device).eval()
    run.method.to(device).eval()
    return Router(**vars(run), device=device)
