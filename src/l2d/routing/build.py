"""From a config to objects: the one place that calls `instantiate`."""

import hashlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import Tensor

from l2d.config import check_keys, to_plain
from l2d.core.costs import check_noise
from l2d.data.arrays import channel_statistics
from l2d.data.sampling import SAMPLINGS
from l2d.experts.cache import Cache
from l2d.experts.request import Machine
from l2d.learning.checkpoints import MONITORS
from l2d.learning.learner import check_recipe, speed
from l2d.methods.auxiliary import check_aux, make_aux
from l2d.methods.method import Method
from l2d.networks.heads import attach_aux
from l2d.routing.datamodule import Dataset, DeferralData
from l2d.routing.module import Router
from l2d.utils.errors import L2DError, check_choice
from l2d.utils.seeding import derive_seed

# Keys of a group that other parts of the config read; its class does not take them.
FOR_THE_CONFIG = ("name", "fast", "paper", "reads", "own_recipe")
# What a plainly annotated argument takes; other annotations are the class's own business.
KINDS: dict[Any, tuple[type, ...]] = {
    int: (int,),
    int | None: (int, NoneType),
    float: (int, float),
    bool: (bool,),
    str: (str,),
}


def make(node: DictConfig, **arguments: Any) -> Any:
    """The object that a config group names, from the group's own keys and what only the run knows."""
    factory = make_partial(node)
    group = node._get_full_key("")
    signature = inspect.signature(factory.func)
    try:
        signature.bind(**factory.keywords, **arguments)
    except TypeError as error:
        raise L2DError(f"{group}: {error} ({factory.func.__qualname__})") from None
    for key, value in factory.keywords.items():
        kind = signature.parameters[key].annotation if key in signature.parameters else Any
        if kind in KINDS and not (isinstance(value, KINDS[kind]) and (kind is bool or not isinstance(value, bool))):
            raise L2DError(f"{group}.{key}={value}: must be of type {getattr(kind, '__name__', kind)}")
    try:
        return factory(**arguments)
    except (TypeError, ValueError) as error:  # values of the wrong kind: only the class knows what it takes
        raise L2DError(f"{group}={factory.keywords}: {error}") from error


def make_partial(node: DictConfig) -> Any:
    """As `make`, with arguments still to come."""
    own = _for_the_class(to_plain(node))
    try:
        return instantiate(own, _partial_=True, _convert_="all")
    except InstantiationException as error:
        group, part = node._get_full_key(""), str(error).rpartition("full_key: ")[2]
        if isinstance(error.__cause__, L2DError):  # of a part of it, which does not know that it is one
            raise L2DError(str(error.__cause__).replace(f"{group}.", f"{group}.{part}.")) from error
        if isinstance(error.__cause__, TypeError | ValueError):
            raise L2DError(f"{group}.{part}: {error.__cause__}") from error
        raise L2DError(f"{node._get_full_key('')}._target_={own.get('_target_')}: no such class") from error


def _for_the_class(group: Any) -> Any:
    if not isinstance(group, dict):
        return group
    return {key: _for_the_class(value) for key, value in group.items() if key not in FOR_THE_CONFIG}


def make_dataset(cfg: DictConfig) -> Dataset:
    dataset: Dataset = make(cfg.dataset)
    encoder: Any = getattr(dataset, "encoder", None)
    if hasattr(encoder, "progress"):  # no key of its own: that would be in the name of the run's folder
        encoder.progress = cfg.progress
    return dataset


def fingerprint(cfg: DictConfig) -> str:
    """Of the data, and of experts that their config does not tell apart: a model's folder may come to hold other weights."""
    data = make_dataset(cfg).fingerprint(Path(cfg.data_dir).expanduser())
    if not hasattr(make_partial(cfg.experts).func, "identity"):
        return data
    return hashlib.sha256(f"{data} {make(cfg.experts).identity()}".encode()).hexdigest()[:16]


def switched_off(cfg: DictConfig) -> str:
    """What the recipe asks for and this machine does not do, as the overrides that would say so."""
    used = speed(cfg.recipe, cfg.trainer.accelerator)
    return " ".join(f"recipe.{key}={str(used[key]).lower()}" for key in used if used[key] != cfg.recipe[key])


def expert_cache(cfg: DictConfig) -> Cache:
    """Where the experts' predictions are kept; what only the data know is still to be added to the identity."""
    title = "-".join(str(cfg[group].name) for group in ("dataset", "setup", "experts"))
    options = {key: value for key, value in to_plain(cfg.dataset).items() if key not in ("path", *FOR_THE_CONFIG)}
    identity = {"dataset": str(cfg.dataset.name), "options": options, "experts": to_plain(cfg.experts)}
    return Cache(Path(cfg.runs_dir).expanduser() / "experts", title, identity)


def check_data_values(cfg: DictConfig) -> None:
    check_keys(cfg)
    if not 0 <= cfg.seed < 2**32:
        raise L2DError(f"seed={cfg.seed}: must be between 0 and {2**32 - 1}")
    check_recipe(cfg.recipe, "recipe")
    if cfg.cost.name == "error" and cfg.cost.prices is not None:
        raise L2DError("cost.prices: cost=error has none; use cost=error_plus_cost, or another cost.name")
    scale = cfg.cost.get("scale", 1.0)  # runs of before it came are rebuilt too
    if cfg.cost.prices is None and scale != 1:
        raise L2DError(f"cost.scale={scale}: there are no prices to multiply; use cost=error_plus_cost or cost=llm")
    check_noise(cfg.cost.noise, cfg.cost.noise_kind)
    check_choice("sampling", cfg.sampling, SAMPLINGS)


def check_values(cfg: DictConfig) -> None:
    """Choices and ranges, before anything is built."""
    check_choice("checkpoint", cfg.checkpoint, tuple(MONITORS))
    reads = cfg.router.get("reads")
    if "model" in cfg.router and reads is not None and reads.model != cfg.router.model:
        raise L2DError(
            f"router.reads.model={reads.model}: must be router.model={cfg.router.model}, whose tokens it learned"
        )
    check_data_values(cfg)
    if cfg.recipe.patience is not None and cfg.checkpoint == "last":
        raise L2DError("recipe.patience: stops when validation gets no better, and wants checkpoint=best or best_loss")
    check_aux(cfg.aux, cfg.aux_weight)
    if cfg.trainer.devices < 1:
        raise L2DError(f"trainer.devices={cfg.trainer.devices}: must be at least 1")


def check_stop(cfg: DictConfig) -> None:
    if cfg.stop_after is not None and cfg.stop_after < 1:
        raise L2DError(f"stop_after={cfg.stop_after}: must be at least 1, or null")
    if cfg.stop_after is not None and cfg.force:
        raise L2DError("force=true: not together with stop_after")


def check_without_data(cfg: DictConfig) -> None:
    """For dry_run: the values, and the method's own by building it for two experts, each the cheapest as often as the other: their
    shares of ρ's total are the largest that there are. Not where it has a list, which is one value for each real expert, or takes
    from ρ what is less with more experts."""
    check_stop(cfg)
    check_values(cfg)
    rho = cfg.method.get("rho")
    total = rho.get("total") if isinstance(rho, DictConfig) else None
    if not _has_list(to_plain(cfg.method)) and not (isinstance(total, int | float) and total < 0):
        make_method(cfg, 1 - torch.eye(2, dtype=torch.float64), num_classes=2)


def _has_list(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and any(map(_has_list, value.values())))


def make_method(cfg: DictConfig, costs: Tensor, num_classes: int) -> Method:
    with naming_the_method(cfg):
        method: Method = make(cfg.method, costs=costs, num_classes=num_classes, decision=cfg.decision)
    return method


@contextmanager
def naming_the_method(cfg: DictConfig) -> Iterator[None]:
    """A class does not know by what name it was asked for."""
    try:
        yield
    except L2DError as error:
        if not str(error).startswith("method: "):
            raise
        raise L2DError(f"method={cfg.method.name}: {str(error).removeprefix('method: ')}") from error


def make_data(cfg: DictConfig, *, renew_experts: bool = False, parts: int = 1) -> DeferralData:
    """dataset -> experts -> costs. parts: in which batches come."""
    check_data_values(cfg)
    return DeferralData(
        dataset=make_dataset(cfg),
        data_dir=Path(cfg.data_dir).expanduser(),
        experts=make(cfg.experts),
        cache=replace(expert_cache(cfg), renew=renew_experts),
        machine=Machine(
            accelerator=cfg.trainer.accelerator,
            deterministic=cfg.trainer.deterministic,
            data_on_device=str(cfg.trainer.data_on_device).lower(),
            progress=cfg.progress,
        ),
        coverage=None if cfg.setup.coverage is None else list(cfg.setup.coverage),
        prices=to_plain(cfg.cost)["prices"],
        price_scale=cfg.cost.get("scale", 1.0),
        noise=cfg.cost.noise,
        noise_kind=cfg.cost.noise_kind,
        validation_fraction=cfg.validation_fraction,
        fold=cfg.fold,
        sampling=cfg.sampling,
        batch_size=cfg.recipe.batch_size,
        augment=cfg.recipe.augment,
        seed=cfg.seed,
        parts=parts,
    )


def build(cfg: DictConfig, parts: int = 1) -> tuple[DeferralData, Router]:
    """dataset -> experts -> costs -> method -> router. parts: in which batches come."""
    check_values(cfg)
    data = make_data(cfg, parts=parts)
    pl.seed_everything(derive_seed(cfg.seed, "weights"), verbose=False)
    method = make_method(cfg, data.train.costs, data.num_classes)
    if method.takes_evidence:
        with naming_the_method(cfg):
            method.learn(data.take_evidence())
    aux = make_aux(cfg.aux, cfg.aux_weight, data.train.costs, data.train.labels, data.num_classes)
    mean, std = channel_statistics(data.train.source, data.train.rows)
    network = make(cfg.router, mean=mean, std=std, num_outputs=method.num_outputs, head=method.head)
    if aux is not None:
        attach_aux(network, aux.num_outputs)
    with torch.no_grad():  # a router for other inputs says so here, before the folder is made
        network.eval()(data.train.source[data.train.rows[:1]])
    network.train()
    fast = speed(cfg.recipe, cfg.trainer.accelerator)
    optimizer = partial(make_partial(cfg.recipe.optimizer), **({"fused": True} if fast["fused"] else {}))
    try:
        optimizer(network.parameters())
    except (TypeError, ValueError, RuntimeError) as error:
        raise L2DError(f"recipe.optimizer={to_plain(cfg.recipe.optimizer)}: {error}") from error
    router = Router(
        network=network,
        method=method,
        aux=aux,
        optimizer=optimizer,
        schedule=cfg.recipe.schedule,
        channels_last=fast["channels_last"],
        compile_mode=str(fast["compile"]).lower(),  # false comes as a boolean from the command line
        ema=cfg.recipe.ema,
        parts=parts,
    )
    return data, router
