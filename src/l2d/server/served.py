"""The run that serves: its router, routers at other prices, the settings that it must fit, and the JSON that clients get of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from l2d.core.budget import ROUNDING
from l2d.core.prices import PriceList
from l2d.data.text.encoders import packed_state
from l2d.data.text.tokens import is_tokens
from l2d.logs.decision import Decision, Refused
from l2d.logs.operations import Limits
from l2d.networks.estimators.planner import unplanned
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.router.trained import inputs_of, plan_of, takes_prices
from l2d.server.bodies import QueryBody, read_query
from l2d.server.upstreams import Upstream
from l2d.utils.errors import ParameterError, unknown
from l2d.utils.text import six_digits

FORCE = "force swaps anyway"
MOST_VARIANTS = 64  # routers at other prices that are kept


@dataclass(frozen=True)
class ServeSettings:
    """keep: the part of inputs that the log keeps: text, features or none. explore, explore_second: the share of queries whose
    first expert is drawn, and of those that go to a second one. shadow: the expert that answers all queries. drift_limit: the share
    of far inputs beyond which the guard's expert answers. cap: on a plan's prices, most_calls on its calls.
    capacity: how often experts may be asked. names: of this server. Tokens: None if there is none."""

    keep: str = "features"
    explore: float = 0.0
    explore_second: float = 0.0
    shadow: str | None = None
    drift_limit: float | None = None
    cap: float | None = None
    most_calls: int | None = None
    capacity: Limits = field(default_factory=dict)
    upstreams: Mapping[str, Sequence[Upstream]] = field(default_factory=dict)
    api_token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    largest_body: int = 8_000_000
    names: frozenset[str] = frozenset()


class ServedRun:
    """A router that serves, the run's name, and the routers at other prices that clients asked for."""

    def __init__(self, router: Router, name: str) -> None:
        self.router, self.name = router, name
        self._variant = lru_cache(MOST_VARIANTS)(self._fit_variant)

    def variant(self, prices: PriceList | None, budget: float | None, confidence: float | None, raw: bool) -> Router:
        """The router at other prices. It takes a while to fit, so the last ones are kept."""
        return self._variant(json.dumps([prices, budget, confidence, raw], sort_keys=True))

    def _fit_variant(self, asked: str) -> Router:
        prices, budget, confidence, raw = json.loads(asked)
        found = self.router
        if prices is not None or budget is not None or confidence is not None:
            found = found.at(prices, budget=budget, confidence=confidence)
        return found.at(raw=True) if raw else found


def prices_of(router: Router) -> dict[str, float | None]:
    """The price of each expert, in the unit of the prices in training; None if it is not known."""
    return {name: router.prices.amount_of(place) for place, name in enumerate(router.experts)}


def best_single(router: Router) -> str:
    """The expert that takes the place of a router that is not followed."""
    return router.experts[router.description.guard.best]


def about_inputs(router: Router) -> str:
    """The log's entry for a run, as JSON: its experts, how its inputs are made, and the scale of its prices."""
    about = router.description
    known = {"experts": about.experts, "shape": about.shape, "seen": asdict(about.seen), "encoder": about.encoder}
    reading = packed_state(router.encoder)
    return json.dumps({**known, **({"reading": reading} if reading else {}), **router.prices.unit.log_entry})


def check_settings(settings: ServeSettings, router: Router) -> None:
    if settings.shadow is not None and settings.shadow not in router.experts:
        raise ParameterError("shadow", f"no such expert; there are {', '.join(router.experts)}", settings.shadow)
    if settings.shadow is not None and settings.explore:
        raise ParameterError("explore", "one expert answers everything (shadow); give one of the two", settings.explore)
    if settings.keep == "text" and router.description.kind != "text":
        raise ParameterError("keep", f"this router sees {router.description.sees}; choose features or none", "text")
    if settings.keep == "features" and is_tokens(inputs_of(router, example_query(router))):
        problem = "the next router could not use the numbers that this one makes of a text; choose text or none"
        raise ParameterError("keep", problem, "features")
    planner = unplanned(router.network)
    for name in ("cap", "most_calls", "explore_second"):
        if (value := getattr(settings, name)) and planner is None:
            raise ParameterError(name, "this router asks one expert; train one with method=plan", value)
    least = min((price for price in prices_of(router).values() if price is not None), default=0.0)
    if settings.cap is not None and settings.cap * (1 + ROUNDING) < least:
        raise ParameterError("cap", f"the cheapest expert costs {least:g}", settings.cap)
    for name in settings.capacity:
        if name not in router.experts:
            raise ParameterError("capacity", unknown("expert", name, router.experts), name)
    if settings.capacity and (planner is not None or router.route(example_query(router))[0].expected_costs is None):
        problem = "this router does not expect a cost of each expert; use method=auto, or no plan"
        raise ParameterError("capacity", problem)
    if settings.capacity and router.operating_point is not None:
        raise ParameterError("capacity", "cannot be combined with a budget or max_error, which it would break")
    if settings.drift_limit is not None and router.training_inputs is None:
        problem = "the run has no summary of its training inputs; train it again, or leave this out"
        raise ParameterError("drift_limit", problem, settings.drift_limit)


def check_successor(settings: ServeSettings, old: ServedRun, new: ServedRun, force: bool) -> None:
    """Refuse a run that this server cannot serve. Upstreams fit no other experts, not even by force, and a log has one kind of
    money. In another order, clients that send prices as a list would give them to other experts."""
    names, others = old.router.experts, new.router.experts
    fixed = settings.upstreams and {*others} != {*names}
    if others != names and (fixed or not force):
        way = "the upstreams fit no others, so force does not help" if fixed else FORCE
        raise Refused(409, f"{new.name}: its experts are {', '.join(others)}, not {', '.join(names)}; {way}")
    check_settings(settings, new.router)
    theirs, ours = new.router.prices.unit, old.router.prices.unit
    if not theirs.fits(ours):
        raise Refused(409, f"{new.name}: its prices are in {theirs}, not {ours}; start a server with another log")


def example_body(router: Router) -> dict[str, Any] | None:
    """A query for /v1/route; None for images."""
    seen, text = router.description.seen, "What is this?"
    if router.description.kind == "image":
        return None
    if router.description.kind == "text":
        return {"text": text}
    if not seen.features:
        return {"features": [0.0] * router.description.shape[0]}
    values = {name: seen.categories[name][0] if name in seen.categories else 0.0 for name in seen.features}
    return {"features": {**values, **({} if seen.text is None else {seen.text: text})}}


def example_query(router: Router) -> Any:
    """A query of the kind that the router sees, to try it with."""
    body = example_body(router)
    if body is None:
        return np.zeros((1, *router.description.shape), dtype=np.uint8)
    return [read_query(QueryBody(**body), router.description)]


def about_choice(choice: Choice) -> dict[str, Any]:
    """ranking: all experts, the chosen one first; expected_cost = expected_error + price_weight · price, None where it is not
    known."""
    known = {"expected_error": choice.expected_errors, "price": choice.expected_prices}
    known |= {"expected_cost": choice.expected_costs, "posterior": choice.posterior}
    told = {key: values or {} for key, values in known.items()}
    ranking = [{"expert": one, **{key: six_digits(told[key].get(one)) for key in told}} for one in choice.ranking]
    return {"ranking": ranking, "price_weight": six_digits(choice.price_weight), "guard": choice.guard}


def about_decision(decision: Decision) -> dict[str, Any]:
    return {
        "decision_id": decision.id,
        "expert": decision.expert,
        **({} if decision.state is None else {"ask": decision.expert}),
        "decided_by": decision.decided_by,
        "propensity": decision.propensity,
        "ranking": decision.ranking,
        "price_weight": decision.price_weight,
        "guard": decision.guard,
        "run": decision.run,
    }


def about_run(
    run: ServedRun, settings: ServeSettings, drifts: bool, left: Mapping[str, int], resting: Mapping[str, int]
) -> dict[str, Any]:
    """Its experts, what a query is, what a price counts, and the policy. drifts: whether many inputs are far from the training
    rows. left: how often experts with a limit may be asked now. resting: how many servers of the experts rest."""
    router = run.router
    models = {name: several[0].model for name, several in settings.upstreams.items()}
    return {
        "run": run.name,
        "sees": router.description.sees,
        "guard": router.guard_note,
        "plan": plan_of(router)[1] or None,
        "kind": router.description.kind,
        "example": example_body(router),
        "currency": router.prices.sign,
        "price_weight": six_digits(router.prices.weight),
        "price_factor": six_digits(router.description.factor),
        "takes_prices": takes_prices(router),
        "policy": policy_notes(settings, router, drifts, left, resting),
        "experts": [
            {"name": name, "price": six_digits(price), "model": models.get(name)}
            | ({"capacity": str(settings.capacity[name]), "left": left[name]} if name in left else {})
            | ({"servers": len(settings.upstreams[name]), "resting": resting[name]} if name in resting else {})
            for name, price in prices_of(router).items()
        ],
    }


def policy_notes(
    settings: ServeSettings, router: Router, drifts: bool, left: Mapping[str, int], resting: Mapping[str, int]
) -> list[str]:
    """Why the router's choice may not be the one that is served."""
    drawn, second = (f"{100 * share:.3g} % of the queries" for share in (settings.explore, settings.explore_second))
    best, upstreams = best_single(router), settings.upstreams
    notes = {
        f"shadow: {settings.shadow} answers every query": settings.shadow is not None,
        f"explore: {drawn} go to an expert that is drawn at random": settings.explore,
        f"explore_second: {second} go to a second expert too": settings.explore_second,
        f"drift: many inputs are far from the training rows, so {best} takes the router's place": drifts,
    }
    limits = [f"capacity: {name} may be asked {settings.capacity[name]}, {left[name]} left" for name in left]
    away = [f"resting: {n} of {len(upstreams[name])} servers of {name} failed" for name, n in resting.items() if n]
    return [*(note for note, holds in notes.items() if holds), *limits, *away]
