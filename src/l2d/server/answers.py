"""The JSON that clients get about choices, decisions and the run that serves."""

from typing import Any

from l2d.logs.decision import Decision
from l2d.router.choices import Choice
from l2d.router.router import Router
from l2d.router.trained import takes_prices
from l2d.server.served import ServedRun, ServeSettings, best_single, example_body, prices_of
from l2d.utils.text import six_digits


def about_choice(choice: Choice) -> dict[str, Any]:
    """ranking: all experts, the chosen one first; expected_cost = expected_error + price_weight · price, None where it is not
    known."""
    known = {
        "expected_error": choice.expected_errors,
        "price": choice.expected_prices,
        "expected_cost": choice.expected_costs,
        "posterior": choice.posterior,
    }
    ranking = [
        {"expert": name, **{key: six_digits((values or {}).get(name)) for key, values in known.items()}}
        for name in choice.ranking
    ]
    return {"ranking": ranking, "price_weight": six_digits(choice.price_weight), "guard": choice.guard}


def about_decision(decision: Decision) -> dict[str, Any]:
    return {
        "decision_id": decision.id,
        "expert": decision.expert,
        "decided_by": decision.decided_by,
        "propensity": decision.propensity,
        "ranking": decision.ranking,
        "price_weight": decision.price_weight,
        "guard": decision.guard,
        "run": decision.run,
    }


def about_run(run: ServedRun, settings: ServeSettings, drifts: bool) -> dict[str, Any]:
    """Its experts, what a query is, what a price counts, and the policy. drifts: whether many inputs are far from the training
    rows."""
    router = run.router
    models = {name: upstream.model for name, upstream in settings.upstreams.items()}
    return {
        "run": run.name,
        "sees": router.description.sees,
        "guard": router.guard_note,
        "kind": router.description.kind,
        "example": example_body(router),
        "currency": router.prices.sign,
        "price_weight": six_digits(router.prices.weight),
        "price_factor": six_digits(router.description.factor),
        "takes_prices": takes_prices(router),
        "policy": policy_notes(settings, router, drifts),
        "experts": [
            {"name": name, "price": six_digits(price), "model": models.get(name)}
            for name, price in prices_of(router).items()
        ],
    }


def policy_notes(settings: ServeSettings, router: Router, drifts: bool) -> list[str]:
    """Why the router's choice may not be the one that is served."""
    found = []
    if settings.shadow is not None:
        found.append(f"shadow: {settings.shadow} answers every query")
    if settings.explore:
        found.append(f"explore: {100 * settings.explore:.3g} % of the queries go to an expert that is drawn at random")
    if drifts:
        found.append(
            f"drift: many inputs are far from the training rows, so {best_single(router)} takes the router's place"
        )
    return found
