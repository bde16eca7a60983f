# ruff: noqa: RUF009 (_key makes a field, not a mutable default)
"""The types of a checked config. Values are set only in conf/."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen

from l2d.utils.parameters import Count, Name, Positive, ProperShare, Seed

Seeds = Annotated[list[Seed], MinLen(1)]


@dataclass(frozen=True)
class Component:
    """An object that a part of the config describes. key: its place in the config, such as dataset.encoder. name: used in folder
    names. target: its class. partial: to be called later, with more arguments. trusted: whether its class may be imported."""

    key: str
    name: str
    target: str
    arguments: Mapping[str, Any]
    partial: bool = False
    trusted: bool = True

    @property
    def own_module(self) -> str | None:
        """The user's own module that its class comes from; None for a class of l2d."""
        return None if self.target.startswith("l2d.") else self.target.rpartition(".")[0]


@dataclass(frozen=True)
class Setup:
    name: str
    coverage: list[Positive] | None
    experts: list[Name] | None
    prices: Any


@dataclass(frozen=True)
class Recipe:
    epochs: Count
    batch_size: Count
    optimizer: Any
    schedule: Literal["constant", "cosine", "one_cycle"]
    augment: Literal["none", "crop", "crop_flip"]
    precision: Literal["32-true", "bf16-mixed", "16-mixed"]
    channels_last: bool
    # No mode with CUDA graphs: each network would record its own, and they keep their memory.
    compile: Literal["false", "default", "max-autotune-no-cudagraphs"]
    fused: bool
    patience: Count | None


@dataclass(frozen=True)
class Trainer:
    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"]
    devices: Count
    deterministic: bool
    data_on_device: Literal["auto", "true", "false"]


def _key(meaning: str) -> Any:
    """A key with its line in `--help`."""
    return field(metadata={"help": meaning})


@dataclass(frozen=True)
class Settings:
    """The keys of conf/base.yaml that are not groups."""

    seed: Seed = _key("of every random draw: validation split, experts, initial weights, order of the batches")
    decision: Literal["argmax", "posterior"] = _key("argmax of the scores (the paper's), or of the reward they imply")
    validation_fraction: ProperShare = _key("share of the training rows to hold out, drawn by seed, stratified")
    fold: str | None = _key("2/5: hold out the second of five folds instead of that share")
    evaluation: Literal["auto", "holdout", "cross_validate"] = _key(
        "holdout: judge the router on the test rows; cross_validate: judge every row by a router that did not see it (five folds),"
        " then train on all rows; auto (dataset=table): cross_validate for outcomes of at most 20,000 rows without a split column"
    )
    sampling: Literal["none", "over", "under"] = _key("resample training rows: each expert is cheapest equally often")
    missing: Literal["direct", "ips", "dr"] = _key(
        "how methods that need every cost learn from a log: from expected costs, by inverse propensity, or doubly robust"
    )
    checkpoint: Literal["last", "best", "best_loss"] = _key(
        "which epoch is scored: the last (the paper's), that of the least validation deferral loss, or of the least validation loss"
    )
    data_dir: str = _key("folder of the prepared image sets, made on first use")
    runs_dir: str = _key("where run folders are made")
    progress: bool = _key("progress bars, on a terminal")
    force: bool = _key("true: re-run even if finished")
    dry_run: bool = _key("true: say what is finished and what is left to do, run nothing")


@dataclass(frozen=True)
class SearchSettings:
    """The keys of a search, tune.KEY."""

    search: Literal["paper"] | None = _key("paper: search; null: train")
    offsets: list[float] | None = _key("added to theory's ρ, one for all experts; null: the paper's -5,-4,…,5")
    values: dict[str, Annotated[list[Any], MinLen(1)]] | None = _key("instead of ρ, a grid: '{method.tau: [0.5, 1]}'")
    seeds: Seeds = _key("a trial's score is the mean over these")
    folds: Count = _key("2 or more: cross-validate each trial on this many folds")
    final_seeds: Seeds = _key("the winner is trained and tested with these")


@dataclass(frozen=True)
class Fingerprints:
    """Versions that the config does not name. rows: of the dataset. run: of the dataset and of experts that can change too."""

    rows: str
    run: str


@dataclass(frozen=True)
class Experiment:
    """A checked config. plain: the config itself, resolved. fingerprints: None until they are computed, once a run."""

    dataset: Component
    setup: Setup
    experts: Component
    cost: Component
    method: Component
    router: Component
    logger: Component
    recipe: Recipe
    trainer: Trainer
    settings: Settings
    plain: Mapping[str, Any]
    fingerprints: Fingerprints | None = None

    @property
    def own_modules(self) -> set[str]:
        parts = (self.dataset, self.experts, self.cost, self.method, self.router, self.logger)
        return {module for part in parts if (module := part.own_module) is not None}

    @property
    def data_dir(self) -> Path:
        return Path(self.settings.data_dir).expanduser()

    @property
    def runs_dir(self) -> Path:
        return Path(self.settings.runs_dir).expanduser()

    @property
    def seed(self) -> int:
        return self.settings.seed
