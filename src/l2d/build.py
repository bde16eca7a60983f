"""From a config to objects: the one place that calls `instantiate`."""

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig

from l2d.config import check_keys, to_plain
from l2d.datamodule import Dataset, DeferralData
from l2d.errors import L2DError, check_choice
from l2d.router import COMPILE_MODES, SCHEDULES, Router
from l2d.seeding import derive_seed

# Keys of a group that other parts of the config read; its class does not take them.
FOR_THE_CONFIG = ("name", "fast", "paper")
# What a plainly annotated argument takes; other annotations are the class's own business.
KINDS: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), bool: (bool,), str: (str,)}
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
PLAIN = {"precision": "32-true", "channels_last": False, "compile": "false", "fused": False}


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
            raise L2DError(f"{group}.{key}={value}: must be of type {kind.__name__}")
    try:
        return factory(**arguments)
    except (TypeError, ValueError) as error:  # values of the wrong kind: only the class knows what it takes
        raise L2DError(f"{group}={factory.keywords}: {error}") from error


def make_partial(node: DictConfig) -> Any:
    """As `make`, with arguments still to come."""
    own = {key: value for key, value in to_plain(node).items() if key not in FOR_THE_CONFIG}
    try:
        return instantiate(own, _partial_=True, _convert_="all")
    except InstantiationException as error:
        raise L2DError(f"{node._get_full_key('')}._target_={own.get('_target_')}: no such class") from error


def make_dataset(cfg: DictConfig) -> Dataset:
    dataset: Dataset = make(cfg.dataset)
    return dataset


def fingerprint(cfg: DictConfig) -> str:
    return make_dataset(cfg).fingerprint(Path(cfg.data_dir).expanduser())


def on_gpu(cfg: DictConfig) -> bool:
    return cfg.trainer.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()


def speed(cfg: DictConfig) -> dict[str, Any]:
    """The recipe's precision, channels_last, compile and fused; on a CPU they are off."""
    return {key: cfg.recipe[key] for key in PLAIN} if on_gpu(cfg) else PLAIN


def switched_off(cfg: DictConfig) -> str:
    """What the recipe asks for and this machine does not do, as the overrides that would say so."""
    used = speed(cfg)
    return " ".join(f"recipe.{key}={str(used[key]).lower()}" for key in PLAIN if used[key] != cfg.recipe[key])


def build(cfg: DictConfig) -> tuple[DeferralData, Router]:
    """dataset -> experts -> costs -> method -> router."""
    check_keys(cfg)
    check_choice("recipe.precision", cfg.recipe.precision, PRECISIONS)
    if not 0 <= cfg.seed < 2**32:
        raise L2DError(f"seed={cfg.seed}: must be between 0 and {2**32 - 1}")
    check_choice("checkpoint", cfg.checkpoint, ("last", "best"))
    check_choice("recipe.schedule", cfg.recipe.schedule, SCHEDULES)  # before data are downloaded
    check_choice("recipe.compile", str(cfg.recipe.compile).lower(), COMPILE_MODES)
    if not isinstance(cfg.recipe.optimizer, DictConfig):
        raise L2DError(
            f"recipe.optimizer={cfg.recipe.optimizer}: must be a mapping with _target_, as in conf/recipe/fast.yaml"
        )
    if cfg.recipe.epochs < 1:
        raise L2DError(f"recipe.epochs={cfg.recipe.epochs}: must be at least 1")
    data = DeferralData(
        dataset=make_dataset(cfg),
        data_dir=Path(cfg.data_dir).expanduser(),
        experts=make(cfg.experts),
        coverage=list(cfg.setup.coverage),
        prices=to_plain(cfg.cost)["prices"],
        validation_fraction=cfg.validation_fraction,
        batch_size=cfg.recipe.batch_size,
        augment=cfg.recipe.augment,
        on_device=str(cfg.trainer.data_on_device).lower(),
        seed=cfg.seed,
    )
    pl.seed_everything(derive_seed(cfg.seed, "weights"), verbose=False)
    method = make(cfg.method, costs=data.train.costs, num_classes=data.num_classes, decision=cfg.decision)
    mean, std = data.pixel_statistics()
    network = make(cfg.router, mean=mean, std=std, num_outputs=method.num_outputs, head=method.head)
    fast = speed(cfg)
    optimizer = partial(make_partial(cfg.recipe.optimizer), **({"fused": True} if fast["fused"] else {}))
    try:
        optimizer(network.parameters())
    except (TypeError, ValueError, RuntimeError) as error:
        raise L2DError(f"recipe.optimizer={to_plain(cfg.recipe.optimizer)}: {error}") from error
    router = Router(
        network=network,
        method=method,
        optimizer=optimizer,
        schedule=cfg.recipe.schedule,
        channels_last=fast["channels_last"],
        compile_mode=str(fast["compile"]).lower(),  # false comes as a boolean from the command line
    )
    return data, router
