"""From a checked experiment to data, method and router."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from l2d.assembly.assemble import Splits, assemble
from l2d.assembly.datamodule import DeferralData
from l2d.assembly.make import blaming, blaming_dataset, find, make, make_dataset, make_factory, parameters_of
from l2d.assembly.module import RouterModule
from l2d.config import Experiment
from l2d.config.identity import expert_identity
from l2d.core.ridge import channel_statistics
from l2d.data.arrays import Arrays, fingerprint_of
from l2d.data.splits import Split
from l2d.experts.cache import Cache
from l2d.experts.request import ComputeOptions, ExpertRequest
from l2d.lightning.learner import learning
from l2d.lightning.threads import one_thread_if_small
from l2d.methods.method import Method
from l2d.methods.simple import SimpleRouter
from l2d.networks.estimators.network import EstimatorNetwork
from l2d.networks.network import Network
from l2d.networks.prices import PriceModel
from l2d.utils.errors import ParameterError, under
from l2d.utils.seeding import derive_seed

_loaded: dict[str, Arrays] = {}  # the rows of the last dataset


def check_parts(experiment: Experiment) -> None:
    """Refuse a decision that the method does not have and a router for another kind of input, before anything is downloaded."""
    with blaming(experiment.method):
        find(experiment.method).check_decision(experiment.settings.decision)
    kind, network = make_dataset(experiment).gives, find(experiment.router)
    if kind is not None and issubclass(network, Network):
        with blaming(experiment.router):
            network.check_kind(kind)


def without_epochs(experiment: Experiment) -> Experiment:
    """A method that is computed at once trains for no epoch, and there is nothing to compile, to average or to choose."""
    if not find(experiment.method).fitted:
        return experiment
    recipe = replace(experiment.recipe, epochs=0, compile="false", patience=None)
    return replace(experiment, recipe=recipe, settings=replace(experiment.settings, checkpoint="last"))


def make_splits(experiment: Experiment, *, renew_experts: bool = False) -> Splits:
    arrays, data = load_rows(experiment)
    return assemble_rows(experiment, arrays, data, expert_cache(experiment, renew=renew_experts))


def load_rows(experiment: Experiment) -> tuple[Arrays, str]:
    """The dataset's rows and their fingerprint. The next run of a sweep finds them in memory, if they have one before loading."""
    dataset, known = make_dataset(experiment), experiment.fingerprints
    with blaming_dataset(experiment):
        data = dataset.fingerprint(experiment.data_dir) if known is None else known.rows
        key = repr((experiment.plain["dataset"], experiment.data_dir, data))
        if data and key in _loaded:
            return _loaded[key], data
        _loaded.clear()  # first: two datasets may not fit into memory
        arrays = dataset.load(experiment.data_dir)
        if data:
            _loaded[key] = arrays
            return arrays, data
        content = (arrays.train_inputs, arrays.train_labels, arrays.test_inputs, arrays.test_labels)
        return arrays, dataset.fingerprint(experiment.data_dir) or fingerprint_of(*content)


def assemble_rows(
    experiment: Experiment, arrays: Arrays, data: str, cache: Cache, *, everything: bool = False
) -> Splits:
    """experts -> costs, for rows that are loaded already. data: their fingerprint. everything: see `assemble`."""
    settings, used, coverage = experiment.settings, experiment.trainer, experiment.setup.coverage
    compute = ComputeOptions(used.accelerator, used.deterministic, used.data_on_device, settings.progress)
    nothing, cache = torch.arange(0), cache.knowing(data=data)
    request = ExpertRequest(arrays, nothing, coverage, settings.seed, cache, experiment.data_dir, compute)
    parts = make(experiment.experts), make(experiment.cost), settings, find(experiment.method)
    return assemble(request, *parts, everything=everything)


def expert_cache(experiment: Experiment, *, renew: bool) -> Cache:
    """The cache of the experts' predictions. `assemble` adds the facts of the data to its identity."""
    names = (experiment.dataset.name, experiment.setup.name, experiment.experts.name)
    return Cache(experiment.runs_dir / "experts", "-".join(names), expert_identity(experiment.plain), renew)


def make_data(experiment: Experiment, splits: Splits, parts: int = 1) -> DeferralData:
    recipe, where = experiment.recipe, experiment.trainer.data_on_device
    with under("recipe"):
        return DeferralData(splits, recipe.batch_size, recipe.augment, where, experiment.seed, parts)


def make_method(experiment: Experiment, costs: Tensor, num_classes: int, **known: Any) -> Method:
    """costs [N, p], num_classes: of the training split. known: largest_cost and mean_costs, see Method."""
    decision = experiment.settings.decision
    return make(experiment.method, costs=costs, num_classes=num_classes, decision=decision, **known)


def make_router(experiment: Experiment, splits: Splits, parts: int = 1) -> RouterModule:
    """method -> network -> router. parts: number of micro-batches per batch."""
    settings, recipe = experiment.settings, experiment.recipe
    if settings.checkpoint == "best_loss" and splits.propensities is not None:
        raise ParameterError("checkpoint", "a log does not know this loss; use last or best", settings.checkpoint)
    pl.seed_everything(derive_seed(settings.seed, "weights"), verbose=False)
    train, classes, largest = splits.train, splits.arrays.num_classes, splits.largest_cost
    means = None if splits.propensities is None else splits.train_costs.double().mean(dim=0)
    method = make_method(experiment, train.costs, classes, largest_cost=largest, mean_costs=means)
    if splits.evidence is not None:
        with blaming(experiment.method):
            method.learn(splits.evidence)
    network = make_network(experiment, splits, method)
    with blaming(experiment.method):
        fit_at_once(method, network, train, splits.price_weights)
    with torch.no_grad(), blaming(experiment.router):  # a router for other inputs fails here, before the folder is made
        network.eval()(train.source[train.rows[:1]])
    network.train()
    return RouterModule(
        network=network,
        method=method,
        parts=parts,
        blaming=partial(blaming, experiment.method),
        has_oracle=splits.propensities is None,
        **learning(recipe, make_factory(recipe.optimizer), experiment.trainer.accelerator, network.parameters()),
    )


def fit_at_once(method: Method, network: Network, train: Split, price_weights: Tensor | None) -> None:
    """Fit what has no epochs: the estimates of a simple router, and prices that differ between rows."""
    with torch.no_grad(), one_thread_if_small(train.source.numel()):
        if isinstance(method, SimpleRouter) and isinstance(network, EstimatorNetwork):
            network.fit(method.fit_rows(train.inputs, train.costs, train.labels, train.prices, train.answers.replies))
        if method.takes_prices_later and train.prices.ndim == 2:
            network.price_model = PriceModel.fitted(train.inputs, train.prices, price_weights)


def make_network(experiment: Experiment, splits: Splits, method: Method) -> Network:
    """With mean and std of the training inputs, if it takes them. Some methods have a network of their own."""
    if isinstance(method, SimpleRouter):
        return method.own_network()
    offered: dict[str, Any] = {"num_outputs": method.num_outputs, "head": method.head}
    if {"mean", "std"} & parameters_of(experiment.router, ("mean", "std")):
        offered["mean"], offered["std"] = channel_statistics(splits.train.source, splits.train.rows)
    return make(experiment.router, **offered)
