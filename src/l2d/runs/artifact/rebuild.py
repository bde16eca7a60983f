"""A finished run's objects, from its folder alone. Only classes of l2d, and of modules that the caller trusts, are built."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from l2d.assembly.make import find, make
from l2d.config import Component, Experiment, check
from l2d.config.checking import read_component
from l2d.core.guard import HeldOut
from l2d.data.text.encoders import Encoder
from l2d.methods.method import Method
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.networks.network import Network
from l2d.networks.prices import PriceModel
from l2d.runs.artifact import exported
from l2d.runs.artifact.drift import TRAINING_INPUTS, InputSummary
from l2d.runs.artifact.exported import FILE, HELD_OUT, RETRAIN, RouterDescription, part_of, read_weights
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError, ParameterError

Tensors = Mapping[str, Tensor]
Arguments = Mapping[str, Any]
Trusted = Sequence[str] | None  # modules whose classes may be built too; None: any, the user composed the config


@dataclass(frozen=True, eq=False)
class RebuiltRun:
    config: Mapping[str, Any]
    method: Method
    network: Network
    description: RouterDescription  # experts, prices, guard and the form of a query
    encoder: Encoder | None = None  # None for routers that read no text
    held_out: HeldOut | None = None  # to fit a guard or a budget to; None for methods whose prices cannot change
    training_inputs: InputSummary | None = None  # None if the run kept no summary of them


def rebuild_run(folder: Path, trust: Sequence[str] = ()) -> RebuiltRun:
    """Method and network with the weights that were scored."""
    try:
        experiment = check(RunFolder(folder).config(), trust=trust)
    except ParameterError as error:
        if error.problem != "is missing":
            raise
        raise L2DError(f"{folder}: {error}; another version of l2d trained it; {RETRAIN}") from error
    if isinstance(rule := experiment.dataset.arguments.get("agree"), Component):
        find(rule)  # a function that is not trusted, since it is not a text any more
    weights, description = read_weights(folder / FILE)
    kept = find(expect(experiment.router, Network, "a network")).kept_arguments(folder)
    return rebuild(experiment, weights, description, kept, trust)


def rebuild(
    experiment: Experiment, weights: Tensors, description: RouterDescription, kept: Arguments, trust: Trusted
) -> RebuiltRun:
    """kept: the arguments that the network takes from its own files."""
    own, decision = part_of(weights, "method"), experiment.settings.decision
    with torch.random.fork_rng(devices=[]):  # the initial weights are replaced anyway: keep the caller's random state
        method = rebuild_method(experiment.method, own, description, decision)
        component = with_arguments(experiment.router, kept)
        check_sizes(component, method, description, part_of(weights, "network"))
        network = rebuild_network(component, method, description)
    prices = part_of(weights, "network.price_model")
    if "weight" in prices:
        features, experts = prices["weight"].shape if prices["weight"].ndim == 2 else (0, 0)
        if experts != len(description.experts) or features > exported.MOST_NUMBERS:
            raise L2DError(f"{FILE}: network.price_model does not fit the experts; {RETRAIN}")
        network.price_model = PriceModel(features - 1, experts)
    try:
        method.load_state_dict(own)
        network.load_state_dict(part_of(weights, "network"))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise L2DError(f"{FILE}: does not fit the router of config.yaml ({reason}); {RETRAIN}") from error
    held_out, summary = part_of(weights, HELD_OUT), part_of(weights, TRAINING_INPUTS)
    for kind, found, prefix in ((HeldOut, held_out, HELD_OUT), (InputSummary, summary, TRAINING_INPUTS)):
        if others := {*found} - {one.name for one in fields(kind)}:
            raise L2DError(f"{FILE}: {prefix}.{min(others)[:100]} is not known; {RETRAIN}")
    if not fits(held_out, len(description.experts)) or not answers(network, description):
        raise L2DError(f"{FILE}: its tensors do not fit each other; {RETRAIN}")
    return RebuiltRun(
        *(experiment.plain, method, network, description),
        encoder=rebuild_encoder(description.encoder, kept, trust, part_of(weights, exported.READING)),
        held_out=HeldOut(**held_out, needed=description.guard.needed) if held_out else None,
        training_inputs=InputSummary(**summary) if summary else None,
    )


def fits(held_out: Tensors, p: int) -> bool:
    """True if the rows that a guard is fitted to have numbers of each expert."""
    errors, expected = (held_out.get(name, torch.zeros(0, p)) for name in ("errors", "expected"))
    by_expert = (value for name, value in held_out.items() if name not in ("learned", "groups"))
    wide = (not held_out or "errors" in held_out) and all(value.shape[-1:] == (p,) for value in by_expert)
    return wide and errors.ndim == 2 and errors.shape == expected.shape and bool(expected.isfinite().all())


def answers(network: Network, seen: RouterDescription) -> bool:
    """True if an estimator, whose weights say their own sizes, gives a number of each expert."""
    if not isinstance(network, EstimatorNetwork):
        return True
    try:
        found = network(torch.zeros(1, *seen.shape))
    except (RuntimeError, IndexError, ValueError):
        return False
    return found.shape[1] >= len(seen.experts) and bool(found.isfinite().all())


def rebuild_method(component: Component, buffers: Tensors, seen: RouterDescription, decision: str) -> Method:
    """A rule for ρ and the like is replaced by the buffer that it became: the training costs, which it needs, are not there."""
    known = {name: buffers[name].tolist() for name in component.arguments if name in buffers}
    costs = 1 - torch.eye(len(seen.experts), dtype=torch.float64)
    whole = with_arguments(expect(component, Method, "a method"), known)
    return make(whole, costs=costs, num_classes=seen.num_classes, decision=decision)


def check_sizes(component: Component, method: Method, seen: RouterDescription, weights: Tensors) -> None:
    """Refuse a network of other sizes than its weights before memory is taken. Some are built from the weights' own sizes."""
    if isinstance(method, SimpleRouter) or not component.target.startswith("l2d."):  # others may compute while built
        return
    depth = component.arguments.get("depth")
    if isinstance(depth, int) and depth > len(weights):
        raise L2DError(f"{component.key}.depth={depth}: {FILE} has fewer layers; {RETRAIN}")
    try:
        with torch.device("meta"):
            expected = rebuild_network(component, method, seen).state_dict()
    except (RuntimeError, OverflowError) as error:
        raise L2DError(f"{component.key}: cannot be built ({str(error).splitlines()[0][:100]}); {RETRAIN}") from error
    for name, tensor in expected.items():
        if name not in weights or weights[name].shape != tensor.shape:
            raise L2DError(f"{FILE}: {name} does not fit the router of config.yaml; {RETRAIN}")


def rebuild_network(component: Component, method: Method, seen: RouterDescription) -> Network:
    if isinstance(method, SimpleRouter):
        return method.own_network()
    width = seen.shape[-1]
    offered = {"mean": [0.0] * width, "std": [1.0] * width, "num_outputs": method.num_outputs, "head": method.head}
    return make(component, **offered)


def rebuild_encoder(described: Arguments | None, kept: Arguments, trust: Trusted, learned: Tensors) -> Encoder | None:
    """An encoder with an argument of the same name as a kept one takes it too. learned: from the training texts, if anything."""
    if described is None:
        return None
    component = expect(read_component("encoder", described, trust), Encoder, "an encoder of text")
    shared = {name: value for name, value in kept.items() if name in component.arguments}
    encoder: Encoder = make(with_arguments(component, shared))
    return encoder.restored({name: tensor.numpy() for name, tensor in learned.items()}) if learned else encoder


def with_arguments(component: Component, arguments: Mapping[str, Any]) -> Component:
    return replace(component, arguments={**component.arguments, **arguments})


def expect(component: Component, kind: type[Any], name: str) -> Component:
    """Refuse a class of another kind before it is called."""
    if not issubclass(find(component), kind):
        raise ParameterError(component.key, f"is not {name}", component.target)
    return component
