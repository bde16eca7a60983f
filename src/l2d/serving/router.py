"""A finished run's router, to be asked about new queries."""

import copy
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from l2d.core.budget import OperatingPoint, keep_within
from l2d.core.decisions import at_least_float32
from l2d.core.guard import Guard, HeldOut
from l2d.data.batches import eval_parts
from l2d.data.given import read_outcomes
from l2d.methods.method import Method
from l2d.serving.added import with_expert
from l2d.serving.export import export_router
from l2d.serving.exported import RETRAIN
from l2d.serving.queries import file_inputs, query_inputs
from l2d.serving.rebuild import RebuiltRun, rebuild_run
from l2d.serving.saved import read_validation, save_router
from l2d.serving.score import Comparison, RouterScore, compare_decisions, score_decisions
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.text import Unit

if TYPE_CHECKING:
    from l2d.utils.picture import Picture

Prices = Sequence[float] | Mapping[str, float]


@dataclass(frozen=True)
class Choice:
    """The expert for one query; p̂ and expected cost of each expert by name, None if the method does not estimate them. The cost is
    error plus price, which counts times the factor of a budget. id: of the row, if its file has an id column. guard: how the guard
    changed this choice, None if it did not. ranking: all experts, the chosen one first, the others as the router prefers them.
    expected_prices: by name, in the unit of the prices in training; None if the router learned them together with the errors.
    expected_errors: by name, None if they are not known apart from the prices. price_weight: expected cost = error + price_weight ·
    price; None if no prices are known."""

    expert: str
    posterior: dict[str, float] | None
    expected_costs: dict[str, float] | None
    id: str | None = None
    guard: str | None = None
    ranking: tuple[str, ...] = ()
    expected_prices: dict[str, float] | None = None
    expected_errors: dict[str, float] | None = None
    price_weight: float | None = None


class Router:
    """Chooses an expert for each query. `Router.load` makes one from the folder of a finished run.

    network, method, encoder: what it decides with. guard: fitted to the validation rows, for the prices it decides by. It may send
    every query to the best single expert, or shift the experts' scores; guard_note says which, None if neither. raw: decide without
    the guard (`Router.load(folder, raw=True)`, or set `router.raw = True`). operating_point: what a router within a budget is
    expected to spend.
    """

    def __init__(self, run: RebuiltRun, device: str = "cpu", *, raw: bool = False) -> None:
        self.network, self.encoder, self.device, self.raw = run.network.to(device).eval(), run.encoder, device, raw
        self.method: Method = run.method.to(device).eval()
        self.config, self.description, self.held_out = run.config, run.description, run.held_out
        self.training_inputs = run.training_inputs
        self.guard: Guard = run.description.guard
        self.validation: RouterScore | None = None
        self.operating_point: OperatingPoint | None = None

    @classmethod
    def load(cls, run: str | Path, device: str = "cpu", *, raw: bool = False, trust: Sequence[str] = ()) -> "Router":
        """From a run's folder alone: neither the data nor the experts are needed.

        raw: decide without the guard. trust: your own modules whose classes the run uses. Only classes of these and of l2d
        are built, so a folder from somebody else cannot run code.
        """
        folder = Path(run).expanduser()
        router = cls(rebuild_run(folder, trust), device, raw=raw)
        router.validation = read_validation(folder)
        return router

    def save(self, folder: str | Path) -> None:
        """Write the router into a folder of its own, for `Router.load` and `l2d route`. An earlier router there is replaced."""
        save_router(self, Path(folder).expanduser())

    def __repr__(self) -> str:
        one = None if self.raw or self.guard.constant is None else self.experts[self.guard.constant]
        guard = "" if one is None else f"; guard: every query goes to {one}"
        return f"Router({', '.join(self.experts)}; sees {self.sees}{guard})"

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
                is fitted to rows that the router did not see, at these prices.
            budget: The mean price per query to keep within, in the same unit. Prices that differ between queries are those that the
                router expects. The prices are then multiplied by the least factor that keeps the budget, and the guard's fallback
                is within the budget too.
            confidence: With 0.95, the chance of overspending is at most 5 %. Default: about one half, where the budget binds.

        Returns:
            A router. With a budget, its `operating_point` says what it is expected to spend and how often it errs.
        """
        if budget is None and confidence is not None:
            raise ParameterError("confidence", "needs a budget", confidence)
        if prices is None and budget is None:
            raise ParameterError("prices", "missing; give prices, a budget, or both")
        asked = "budget" if prices is None else "prices"
        known, new = self.description.prices, None
        if prices is not None or known is not None:  # float32, like the method's
            given = None if prices is None else prices_in_order(prices, self.experts)
            new = torch.tensor(known if given is None else [price * self.later_scale for price in given])
        other = copy.copy(self)
        other.method = copy.deepcopy(self.method)
        other.validation = other.operating_point = None  # they were measured at other prices
        try:
            if new is None:
                other.method.rescale(1.0)
            else:
                other.method.reprice(new)
        except ParameterError as error:  # the method has learned its prices
            raise ParameterError(asked, error.problem) from error
        held_out = self._rows_for(asked)
        if prices is None and self._without_prices:
            raise ParameterError("budget", "all prices of this router are 0 (cost.scale=0)", budget)
        if new is not None:
            same = self.description.factor == 1 and known is not None and torch.equal(torch.tensor(known), new)
            other.guard = self.description.guard if same else held_out.guard_at(new)
            other.description = replace(self.description, prices=tuple(new.tolist()), guard=other.guard, factor=1.0)
        return other if budget is None else other._within(held_out, budget * self.later_scale, confidence)

    def within(self, budget: float, confidence: float | None = None) -> "Router":
        """Another router, which keeps the mean price per query within a budget: short for `at(budget=…, confidence=…)`."""
        return self.at(budget=budget, confidence=confidence)

    def _rows_for(self, asked: str) -> HeldOut:
        """The rows to fit a guard or a budget to. asked: the parameter that they are needed for."""
        if self.held_out is None:
            problem = (
                "no rows to judge the experts on, since one was added (with_expert) or an earlier l2d trained the run"
            )
            raise ParameterError(asked, f"{problem}; train again (force=true), with rows of all experts")
        if self.description.prices is None and self.held_out.expected_prices is None:
            raise ParameterError(asked, "this router was fitted with whole costs; in l2d.fit, give errors= and prices=")
        return self.held_out

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

    def _within(self, held_out: HeldOut, budget: float, confidence: float | None) -> "Router":
        """budget: in units of one error, like the router's prices. This router is a copy already."""
        prices = None if self.description.prices is None else torch.tensor(self.description.prices)
        currency = "" if self.unit.error_price is None else "$"
        point = keep_within(held_out, prices, budget, confidence, self.experts, 1 / self.later_scale, currency)
        point = replace(point, with_latency=bool(self.unit.latency_price))
        if prices is None:
            self.method.rescale(point.factor)
        else:
            self.method.reprice(prices * point.factor)
        self.guard, self.operating_point = point.guard, point
        self.description = replace(self.description, guard=point.guard, factor=point.factor)
        return self

    @property
    def allowed(self) -> tuple[int, ...]:
        """The experts, counted from 0, that are within the budget alone. Empty without a budget, or if it allows none."""
        return () if self.operating_point is None else self.operating_point.allowed

    @property
    def counts_prices(self) -> bool:
        """Whether prices are part of its costs."""
        return any(self.description.prices or ()) or (self.price_scale > 0 and "scale" in self.config["cost"])

    @property
    def _without_prices(self) -> bool:
        """Whether cost.scale=0 made all prices 0, and none were given later."""
        return self.price_scale == 0 and not self.counts_prices

    @property
    def price_scale(self) -> float:
        """What prices were multiplied by in training, to be in units of one error."""
        return float(self.config["cost"].get("scale", 1.0))

    @property
    def later_scale(self) -> float:
        """What prices and budgets that are given later are multiplied by. A run with cost.scale=0 has no unit but one error."""
        return self.price_scale or 1.0

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
        inputs, ids = file_inputs(Path(path).expanduser(), self.description, self._embed)
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
            dollars if the run has cost.error_price. Within a budget, the best single expert is the best that the budget allows.
        """
        decisions = self.decide(queries)
        found, paid = self._costs(len(decisions), costs, errors, prices)
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
        found, _ = self._costs(len(decisions), costs, errors, prices)
        compared = compare_decisions(decisions, other.decide(queries), found)
        return replace(compared, error_price=self.unit.error_price)

    def _costs(self, n: int, costs: Any, errors: Any, prices: Any) -> tuple[Tensor, Tensor | None]:
        """The costs of n queries [n, p], and the prices in them if they are known apart, in units of one error."""
        if isinstance(prices, Mapping):
            prices = prices_in_order(prices, self.experts)
        wrong, given = read_outcomes(costs, errors, prices, self.experts)
        if given is not None:
            given = given * self.later_scale
        elif costs is None and self.description.prices is not None:
            given = torch.tensor(self.description.prices, dtype=torch.float64)
        elif costs is None and self.network.price_model is not None:
            raise ParameterError(
                "prices", "missing; the prices of this router differ between queries: give those of these ones"
            )
        if tuple(wrong.shape) != (n, len(self.experts)):
            expected = f"must be [{n}, {len(self.experts)}], a row per query and a column per expert"
            raise ParameterError("errors" if costs is None else "costs", f"{expected}, not {list(wrong.shape)}")
        return wrong if given is None else wrong + given, given

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
        own, decisions = self._decisions(outputs)
        with torch.inference_mode():
            posterior = self.method.posterior(outputs) if self.method.has_posterior else None
            expected = self.method.expected_costs(outputs)
            prices = self._expected_prices(outputs)
            errors = self._expected_errors(outputs, expected, prices)
        return [
            Choice(
                self.experts[order[0]],
                shares,
                costs,
                guard=self._changed(before, order[0]),
                ranking=tuple(self.experts[k] for k in order),
                expected_prices=paid,
                expected_errors=wrong,
                price_weight=None if prices is None else self.price_weight,
            )
            for order, before, shares, costs, paid, wrong in zip(
                self._orders(outputs, decisions),
                own.tolist(),
                self._by_name(posterior, len(outputs)),
                self._by_name(expected, len(outputs)),
                self._by_name(prices, len(outputs)),
                self._by_name(errors, len(outputs)),
                strict=True,
            )
        ]

    def _expected_prices(self, outputs: Tensor) -> Tensor | None:
        """[n, p], in the unit of the prices in training."""
        if self._without_prices:
            return None
        listed = self.description.prices
        found = (
            self.method.expected_prices(outputs) if listed is None else torch.tensor(listed).expand(len(outputs), -1)
        )
        return None if found is None else found / self.later_scale

    def _expected_errors(self, outputs: Tensor, costs: Tensor | None, prices: Tensor | None) -> Tensor | None:
        """[n, p]. Without prices of its own, a router may have learned whole costs, which its method takes for errors."""
        if prices is None:
            return None
        found = self.method.expected_errors(outputs)
        return costs - prices * self.later_scale if found is None and costs is not None else found

    def _orders(self, outputs: Tensor, decisions: Tensor) -> list[list[int]]:
        """The experts' numbers for each row: the chosen one, then the others by utility, with the guard's offsets."""
        with torch.inference_mode():
            preferred = self.method.utilities(outputs).double()
            if not self.raw and self.guard.offsets is not None:
                preferred = preferred + torch.tensor(self.guard.offsets, dtype=torch.float64, device=preferred.device)
            first = preferred.scatter(1, decisions[:, None], torch.inf)
            found: list[list[int]] = first.argsort(dim=1, descending=True, stable=True).tolist()
        return found

    def _decisions(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Without and with the guard."""
        with torch.inference_mode():
            own = self.method.decide(outputs)
            return own, own if self.raw else self.guard.decide(self.method.utilities(outputs), own)

    def _changed(self, before: int, chosen: int) -> str | None:
        if before == chosen:
            return None
        action = "offsets" if self.guard.constant is None else "fallback"
        return f"{action}: without the guard, {self.experts[before]}"

    def _by_name(self, values: Tensor | None, n: int) -> Sequence[dict[str, float] | None]:
        if values is None:
            return [None] * n
        return [dict(zip(self.experts, row, strict=True)) for row in values.tolist()]

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        if self.encoder is None:
            raise L2DError(f"the run does not say how its router reads {self.description.seen.text}; {RETRAIN}")
        return self.encoder.embed(texts)


def prices_in_order(prices: Prices, experts: Sequence[str]) -> list[float]:
    """One price per expert, in the experts' order."""
    there = f"there are {', '.join(experts)}"
    if isinstance(prices, Mapping):
        if unknown := [name for name in prices if name not in experts]:
            raise ParameterError("prices", f"no expert {', '.join(map(str, unknown))}; {there}")
        if missing := [name for name in experts if name not in prices]:
            raise ParameterError("prices", f"no price for {', '.join(missing)}")
        prices = [prices[name] for name in experts]
    try:
        if isinstance(prices, str | bytes | Set):
            raise TypeError
        given = [float(price) for price in prices]
    except (TypeError, ValueError, OverflowError):
        raise ParameterError("prices", f"must be numbers, one for each expert; {there}", prices) from None
    if len(given) != len(experts):
        raise ParameterError(
            "prices", f"expected {len(experts)}, one for each expert; got {len(given)}; {there}", given
        )
    if not all(0 <= price < float("inf") for price in given):
        raise ParameterError("prices", "must be finite and not negative", given)
    return given
