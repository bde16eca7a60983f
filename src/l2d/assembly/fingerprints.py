"""The data's fingerprint and the experts' names, which a config does not have. Needed before anything is loaded: no torch here."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from l2d.assembly.make import blaming, blaming_dataset, find, make, make_dataset
from l2d.config import Experiment
from l2d.config.composing import price_scale
from l2d.config.schema import Fingerprints
from l2d.experts.partition import class_experts
from l2d.experts.request import Experts
from l2d.utils.errors import L2DError


def with_fingerprints(experiment: Experiment) -> Experiment:
    """Compute the fingerprints once a run. Rows without one may get it when they are loaded, so an empty one is not carried."""
    if experiment.fingerprints is not None:
        return experiment
    found = fingerprints(experiment)
    return replace(experiment, fingerprints=found) if found.rows else experiment


def data_fingerprint(experiment: Experiment) -> str:
    """The version of the data and the experts. Empty in a dry run, if the data would have to be fetched."""
    if experiment.settings.dry_run and not make_dataset(experiment).is_here(experiment.data_dir):
        return ""
    return (experiment.fingerprints or fingerprints(experiment)).run


def fingerprints(experiment: Experiment) -> Fingerprints:
    """Experts can change under the same config: a model's folder may get other weights."""
    dataset = make_dataset(experiment)
    with blaming_dataset(experiment):
        rows = dataset.fingerprint(experiment.data_dir)
    if experts_class(experiment).identity is Experts.identity:
        return Fingerprints(rows, rows)
    experts = make(experiment.experts)
    with blaming(experiment.experts):
        return Fingerprints(rows, hashlib.sha256(f"{rows} {experts.identity()}".encode()).hexdigest()[:16])


def experts_class(experiment: Experiment) -> type[Experts]:
    """A class of the user's own gets the defaults of what it lacks."""
    found = find(experiment.experts)
    return found if issubclass(found, Experts) else type(found.__name__, (found, Experts), {})


def with_listed_prices(experiment: Experiment) -> Experiment:
    """Turn prices by name into a list in the experts' order, so that both notations are the same run. Wrong names stay as they
    are; the cost refuses them later. If a log says what a wrong answer costs, and nobody else does, take that."""
    given, found = experiment.cost.arguments, dict[str, Any]()
    prices = given.get("prices")
    try:
        if isinstance(prices, Mapping) and {*(names := expert_names(experiment))} == {*prices}:
            found["prices"] = [prices[name] for name in names]
        if given.get("scale") == 1 and given.get("error_price", 0) is None:
            logged = make_dataset(experiment).error_price
            found |= {} if logged is None else {"error_price": logged, "scale": price_scale(logged)}
    except L2DError:  # reported when the data are read
        return experiment
    if not found:
        return experiment
    cost = replace(experiment.cost, arguments={**given, **found})
    return replace(experiment, cost=cost, plain={**experiment.plain, "cost": {**experiment.plain["cost"], **found}})


def expert_names(experiment: Experiment) -> tuple[str, ...]:
    """The experts' names, in order; empty if they are known only after the experts are made. The class is asked, as making an
    object may import torch. If it does not say, they divide the classes or, without a coverage, are the dataset's own."""
    experts, coverage = experiment.experts, experiment.setup.coverage
    with blaming(experts):
        names = experts_class(experiment).expert_names(coverage, **experts.arguments)
    if names is not None:
        return tuple(names)
    if coverage is not None:
        return class_experts(len(coverage))
    with blaming_dataset(experiment):
        return tuple(make_dataset(experiment).expert_names(experiment.data_dir))
