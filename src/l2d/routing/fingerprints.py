"""What a run is made of, as far as its config does not say it. Asked before anything is loaded, so torch is not imported here."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from l2d.config import Experiment
from l2d.routing.make import blaming, blaming_dataset, find, make
from l2d.utils.errors import L2DError


def data_fingerprint(experiment: Experiment) -> str:
    """Of the data, and of experts that their config does not tell apart: a model's folder may come to hold other weights."""
    dataset = make(experiment.dataset)
    with blaming_dataset(experiment):
        data: str = dataset.fingerprint(experiment.data_dir)
    if not hasattr(find(experiment.experts), "identity"):
        return data
    experts = make(experiment.experts)
    with blaming(experiment.experts):
        return hashlib.sha256(f"{data} {experts.identity()}".encode()).hexdigest()[:16]


def with_listed_prices(experiment: Experiment) -> Experiment:
    """Prices by name become a list in the experts' order, so that both ways to write them are one run.

    They stay as they are where the names are others, which the cost then says.
    """
    prices = experiment.cost.arguments.get("prices")
    if not isinstance(prices, Mapping):
        return experiment
    try:
        names = expert_names(experiment)
    except L2DError:  # it is told where the data are read
        return experiment
    if {*names} != {*prices}:
        return experiment
    listed = {"prices": [prices[name] for name in names]}
    cost = replace(experiment.cost, arguments={**experiment.cost.arguments, **listed})
    return replace(experiment, cost=cost, plain={**experiment.plain, "cost": {**experiment.plain["cost"], **listed}})


def expert_names(experiment: Experiment) -> tuple[str, ...]:
    """What the experts will be called, in their order; nothing where that is not known before they are made."""
    given, coverage = experiment.experts.arguments, experiment.setup.coverage
    if "models" in given:
        models: tuple[str, ...] = make(experiment.experts).names
        return models
    if coverage is None:
        dataset = make(experiment.dataset)
        with blaming_dataset(experiment):
            return tuple(dataset.expert_names(experiment.data_dir)) if hasattr(dataset, "expert_names") else ()
    people, p = given.get("people", 0), len(coverage)
    if not people:
        return tuple(f"expert {k + 1}" for k in range(p))
    machines = ["machine"] if p == 1 else [f"machine {k + 1}" for k in range(p)]
    return (*machines, *(f"person {j + 1}" for j in range(people)))
