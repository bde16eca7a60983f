"""Search strategies. A search yields trials, receives their values, and yields more: it runs nothing itself."""

import math
import statistics
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from l2d.config import SearchSettings
from l2d.config.composing import override_text
from l2d.utils.errors import L2DError, ParameterError, from_extra

PAPER_OFFSETS = tuple(range(-5, 6))  # the paper's interval, in steps of 1
SIZE, RATIO = (0.1, 100.0), (0.5, 2.0)  # ranges of the optuna search: ρ_k = size·ratio_k
RECIPE = {"recipe.optimizer.lr": (1e-4, 1e-2), "recipe.optimizer.weight_decay": (1e-5, 1e-2)}
STARTUP = 5  # trials before optuna's sampler and pruner use the results


class NothingToSearch(ParameterError):
    """The method has no ρ, and nothing else was named."""


@dataclass(frozen=True)
class Ask:
    """A trial: its settings, and the share of its epochs to run for now (1: to the end)."""

    settings: Mapping[str, Any]
    until: float = 1.0

    @property
    def overrides(self) -> tuple[str, ...]:
        return tuple(f"{key}={override_text(value)}" for key, value in self.settings.items())


# A value is the mean validation deferral loss, or infinite if the trial could not be run.
Search = Generator[list[Ask], list[float], None]


@dataclass(frozen=True)
class Space:
    """The ρ to search. rho: as in the method's config. shares: the experts' shares of ρ̄, which sum to 1."""

    rho: float | Mapping[str, Any]
    shares: Sequence[float]

    def start(self) -> list[float]:
        """The method's own ρ: one number per expert, or one for all."""
        if not isinstance(self.rho, Mapping):
            return [float(self.rho)]
        given: list[float] | None = self.rho["values"]
        return self.follow(self.rho["total"], self.rho["offset"]) if given is None else given

    def follow(self, total: float, offset: float) -> list[float]:
        """ρ_k = total·share_k + offset."""
        return [total * share + offset for share in self.shares]

    def at(self, offset: float) -> dict[str, Any] | None:
        """The settings for ρ = total·share + offset; None if some ρ is not positive. A single ρ is 1/p + offset: as many values as
        a rule with total=1 has, and the same mean."""
        if isinstance(self.rho, Mapping):
            total = float(self.rho["total"])
            if min(self.follow(total, offset)) <= 0:
                return None
            settings = {"method.rho.total": total, "method.rho.offset": offset}
            return settings | ({} if self.rho["values"] is None else {"method.rho.values": None})
        value = rounded(1 / len(self.shares) + offset)
        return {"method.rho": value} if value > 0 else None

    def exactly(self, rho: Sequence[float]) -> dict[str, Any]:
        if isinstance(self.rho, Mapping):
            return {"method.rho.values": [rounded(value) for value in rho]}
        return {"method.rho": rounded(rho[0])}


def rounded(value: float) -> float:
    """Round to four digits, for files and command lines."""
    return float(f"{value:.4g}")


def begin_search(options: SearchSettings, space: Space | None) -> Search:
    """The search that the options ask for. space: None for a method without ρ."""
    if options.search == "optuna":
        return optuna_search(options, space)
    if options.values is not None:
        return grid([dict(zip(options.values, chosen, strict=True)) for chosen in product(*options.values.values())])
    if space is None:
        named = "name what to search, such as tune.values='{recipe.epochs: [5, 10]}'"
        raise NothingToSearch("", f"has no ρ to search; {named}")
    offsets = PAPER_OFFSETS if options.offsets is None else options.offsets
    if not (kept := [settings for offset in offsets if (settings := space.at(offset)) is not None]):
        raise L2DError(f"tune.offsets={list(offsets)}: none of them leaves every ρ positive")
    return grid(kept)


def grid(settings: Sequence[Mapping[str, Any]]) -> Search:
    """All trials at once, without duplicates."""
    yield [Ask(one) for place, one in enumerate(settings) if one not in settings[:place]]


def optuna_search(options: SearchSettings, space: Space | None) -> Search:
    """TPE over the size of ρ and each expert's ratio to it (and the recipe, if asked; or tune.values), first the method's own ρ.
    The sampler is seeded and receives results in the order it asked, so a restarted search asks for the same trials."""
    with from_extra("tune", "tune.search=optuna"):
        import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=STARTUP),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
    )
    if options.values is not None:
        space = None
    elif space is not None:
        study.enqueue_trial(start_of(space.start()))
    elif not options.recipe:
        raise NothingToSearch("", "has no ρ to search; use tune.recipe=true, or tune.values")
    asked, different = 0, set[str]()
    possible = math.inf if options.values is None or options.recipe else math.prod(map(len, options.values.values()))
    while asked < options.trials and len(different) < possible:
        trials = [study.ask() for _ in range(min(options.parallel, options.trials - asked))]
        asked += len(trials)
        alive = [(trial, _settings(trial, options, space)) for trial in trials]
        different |= {str(settings) for _, settings in alive}
        for share in [*options.rungs, 1.0]:
            if alive:
                values = yield [Ask(settings, share) for _, settings in alive]
                found = zip(alive, values, strict=True)
                alive = [(trial, one) for (trial, one), value in found if _goes_on(study, trial, share, value)]


def _goes_on(study: Any, trial: Any, share: float, value: float) -> bool:
    """Tell optuna the value of a trial after this share of its epochs. Returns whether the trial continues."""
    from optuna.trial import TrialState

    if not math.isfinite(value):
        study.tell(trial, state=TrialState.FAIL)
    elif share == 1.0:
        study.tell(trial, value)
    else:
        trial.report(value, round(1000 * share))
        if not trial.should_prune():
            return True
        study.tell(trial, state=TrialState.PRUNED)
    return False


def start_of(rho: Sequence[float]) -> dict[str, float]:
    """The size and the ratios of a ρ, clipped to their ranges."""
    size = statistics.fmean(rho)
    ratios = {f"ratio {k + 1}": statistics.median([value / size, *RATIO]) for k, value in enumerate(rho)}
    return {"size": statistics.median([size, *SIZE])} | (ratios if len(rho) > 1 else {})


def _settings(trial: Any, options: SearchSettings, space: Space | None) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if space is not None:
        common, p = trial.suggest_float("size", *SIZE, log=True), len(space.start())
        ratios = [trial.suggest_float(f"ratio {k + 1}", *RATIO, log=True) for k in range(p)] if p > 1 else [1.0]
        settings |= space.exactly([common * ratio for ratio in ratios])
    for key, values in (options.values or {}).items():
        settings[key] = trial.suggest_categorical(key, list(values))
    if options.recipe:
        settings |= {key: rounded(trial.suggest_float(key, *bounds, log=True)) for key, bounds in RECIPE.items()}
    return settings
