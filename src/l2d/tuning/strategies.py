"""Search strategies for ρ. A search yields trials, is sent their values, and yields more: it runs nothing itself."""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from l2d.config import SearchSettings
from l2d.config.composing import override_text
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.extras import from_extra

GRIDS = ("paper", "per_expert", "extended")  # all trials are known before the first is run
PAPER_OFFSETS = tuple(range(-5, 6))  # the paper's interval, in steps of 1
GEOMETRIC = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
FACTORS = (0.5, 2**-0.5, 2**0.5, 2.0)  # of one expert's ρ, in a coordinate search
SIZE, RATIO = (0.1, 100.0), (0.5, 2.0)  # ranges of the optuna search: ρ_k = size·ratio_k
RECIPE = {"recipe.optimizer.lr": (1e-4, 1e-2), "recipe.optimizer.weight_decay": (1e-5, 1e-2)}
STARTUP = 5  # trials before optuna's sampler and pruner use the results


class NothingToSearch(ParameterError):
    """The method has no ρ, and nothing else was named."""

    def under(self, key: str) -> "NothingToSearch":
        named = super().under(key)
        return NothingToSearch(named.parameter, named.problem, named.value)


@dataclass(frozen=True)
class Ask:
    """A trial: what it sets, and the share of its epochs to run for now (1: to the end)."""

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

    @property
    def by_rule(self) -> bool:
        return isinstance(self.rho, Mapping)

    def start(self) -> list[float]:
        """ρ as it is: one number per expert, or one for all."""
        if not isinstance(self.rho, Mapping):
            return [float(self.rho)]
        given: list[float] | None = self.rho["values"]
        return self.follow(self.rho["total"], self.rho["offset"]) if given is None else given

    def follow(self, total: float, offset: float) -> list[float]:
        """ρ_k = total·share_k + offset."""
        return [total * share + offset for share in self.shares]

    def at(self, total: float, offset: float) -> dict[str, Any] | None:
        """The settings for ρ = total·share + offset, with equal shares if ρ is one number; None if some ρ would not be positive."""
        if isinstance(self.rho, Mapping):
            if min(self.follow(total, offset)) <= 0:
                return None
            settings = {"method.rho.total": total, "method.rho.offset": offset}
            return settings | ({} if self.rho["values"] is None else {"method.rho.values": None})
        value = rounded(total / len(self.shares) + offset)
        return {"method.rho": value} if value > 0 else None

    def exactly(self, rho: Sequence[float]) -> dict[str, Any]:
        if self.by_rule:
            return {"method.rho.values": [rounded(value) for value in rho]}
        return {"method.rho": rounded(rho[0])}


def rounded(value: float) -> float:
    """To four digits, for files and command lines."""
    return float(f"{value:.4g}")


def begin_search(options: SearchSettings, space: Space | None) -> Search:
    """The search that the options ask for. space: None for a method without ρ."""
    if options.search == "optuna":
        return optuna_search(options, space)
    if options.values is not None:
        return grid([dict(zip(options.values, chosen, strict=True)) for chosen in product(*options.values.values())])
    if space is None:
        problem = "has no ρ to search; name what to search, such as tune.values='{recipe.epochs: [5, 10]}'"
        raise NothingToSearch("", problem)
    if options.search == "coordinate":
        return coordinate(space, options.trials)
    if options.search == "per_expert":
        return grid(per_expert(options, space))
    totals, offsets = axes(options, space)
    found = [space.at(total, offset) for total in totals for offset in offsets]
    kept = [settings for settings in found if settings is not None]
    if not kept:
        raise L2DError(f"tune.offsets={list(offsets)}: none of them leaves every ρ positive")
    return grid(kept)


def axes(options: SearchSettings, space: Space) -> tuple[Sequence[float], Sequence[float]]:
    """Totals and offsets of the grid."""
    own = float(space.rho["total"]) if isinstance(space.rho, Mapping) else 1.0
    if options.search == "paper":
        return [own], PAPER_OFFSETS if options.offsets is None else options.offsets
    totals = GEOMETRIC if options.totals is None else options.totals
    return totals, (0.0, *GEOMETRIC) if options.offsets is None else options.offsets


def per_expert(options: SearchSettings, space: Space) -> list[dict[str, Any]]:
    """Every combination of the paper's offsets, one offset for each group of experts that shares a ρ.

    If all experts have one ρ, it gets as many values, evenly spaced over the same interval: the same budget.
    """
    p = len(space.shares)
    if isinstance(space.rho, Mapping) and space.rho["rule"] != "uniform":
        groups, columns = grouped_offsets(options, space.shares, float(space.rho["total"]), space.rho["groups"] or ())
        places = [next(place for place, group in enumerate(groups) if k in group) for k in range(p)]
        return [space.exactly([chosen[place] for place in places]) for chosen in product(*columns)]
    _, [column, *others] = grouped_offsets(options, [1 / p] * p, 1.0, ())
    steps = math.prod(map(len, [column, *others])) - 1
    low, high = min(column), max(column)
    times = p if isinstance(space.rho, Mapping) else 1
    return [space.exactly([low + (high - low) * step / max(steps, 1)] * times) for step in range(steps + 1)]


def grouped_offsets(
    options: SearchSettings, shares: Sequence[float], total: float, tied: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[list[float]]]:
    """Groups of experts that share a ρ, and the values of each group's ρ: total·(mean share) + offset, where positive.

    tied: experts that share one in any case, numbered from 1. The experts with the smallest shares form one group (Section 4.2, B),
    as large as it must be for at most tune.trials combinations.
    """
    offsets = PAPER_OFFSETS if options.offsets is None else options.offsets

    def mean_share(group: Sequence[int]) -> float:
        return math.fsum(shares[k] for k in group) / len(group)

    given = [[k - 1 for k in group] for group in tied]
    alone = [[k] for k in range(len(shares)) if not any(k in group for group in given)]
    units = sorted([*given, *alone], key=mean_share, reverse=True)
    size = 0
    for own in range(max(len(units) - 1, 1), 0, -1):
        rest = [k for unit in units[own:] for k in unit]
        groups = [*units[:own], *([rest] if rest else [])]
        means = [mean_share(group) for group in groups]
        columns = [[total * mean + offset for offset in offsets if total * mean + offset > 0] for mean in means]
        size = math.prod(map(len, columns))
        if not size:
            raise L2DError(f"tune.offsets={list(offsets)}: none of them leaves every ρ positive")
        if size <= options.trials:
            return groups, columns
    raise L2DError(
        f"tune.trials={options.trials}: the smallest grid has {size} settings; raise it, or use tune.search=paper"
    )


def grid(settings: Sequence[Mapping[str, Any]]) -> Search:
    """All trials at once, without duplicates."""
    different: list[Mapping[str, Any]] = []
    for one in settings:
        if one not in different:
            different.append(one)
    yield [Ask(one) for one in different]


def coordinate(space: Space, trials: int) -> Search:
    """From the method's own ρ: multiply each expert's in turn by ½, √½, √2 and 2, keep the best, until a round gains nothing."""
    rho = [rounded(value) for value in space.start()]
    [best] = yield [Ask(space.exactly(rho))]
    asked, better = 1, True
    while better and asked < trials:
        better = False
        for k in range(len(rho)):
            tried = [[*rho[:k], rounded(rho[k] * factor), *rho[k + 1 :]] for factor in FACTORS][: trials - asked]
            if not tried:
                break
            values = yield [Ask(space.exactly(one)) for one in tried]
            asked += len(tried)
            if min(values) < best:
                best, rho, better = min(values), tried[values.index(min(values))], True


def optuna_search(options: SearchSettings, space: Space | None) -> Search:
    """TPE over the size of ρ and each expert's ratio to it (and the recipe, if asked; or over tune.values).

    The first trial is the method's own ρ. A trial that is worse than the median of the others at the same epoch is pruned.

    The sampler is seeded and told results in the order it asked, so a restarted search asks for the same trials.
    """
    with from_extra("tune", "tune.search=optuna"):
        import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=STARTUP),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP),
    )
    size = 0 if space is None or options.values is not None else len(space.start())
    if not size and options.values is None and not options.recipe:
        raise NothingToSearch("", "has no ρ to search; use tune.recipe=true, or tune.values")
    if size and space is not None:
        study.enqueue_trial(start_of(space.start()))
    asked, different = 0, set[str]()
    possible = math.inf if options.values is None or options.recipe else math.prod(map(len, options.values.values()))
    while asked < options.trials and len(different) < possible:
        trials = [study.ask() for _ in range(min(options.parallel, options.trials - asked))]
        asked += len(trials)
        asks = [_settings(trial, options, space, size) for trial in trials]
        different |= {str(settings) for settings in asks}
        alive = list(range(len(trials)))
        for share in [*options.rungs, 1.0]:
            if not alive:
                break
            values = yield [Ask(asks[i], share) for i in alive]
            for i, value in zip(list(alive), values, strict=True):
                if not math.isfinite(value):
                    study.tell(trials[i], state=optuna.trial.TrialState.FAIL)
                    alive.remove(i)
                elif share == 1.0:
                    study.tell(trials[i], value)
                else:
                    trials[i].report(value, round(1000 * share))
                    if trials[i].should_prune():
                        study.tell(trials[i], state=optuna.trial.TrialState.PRUNED)
                        alive.remove(i)


def start_of(rho: Sequence[float]) -> dict[str, float]:
    """The size and the ratios of a ρ, clipped to their ranges."""
    size = sum(rho) / len(rho)
    found = {"size": within(size, SIZE)}
    return found | (
        {f"ratio {k + 1}": within(value / size, RATIO) for k, value in enumerate(rho)} if len(rho) > 1 else {}
    )


def within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def _settings(trial: Any, options: SearchSettings, space: Space | None, size: int) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if size and space is not None:
        common = trial.suggest_float("size", *SIZE, log=True)
        ratios = [trial.suggest_float(f"ratio {k + 1}", *RATIO, log=True) for k in range(size)] if size > 1 else [1.0]
        settings |= space.exactly([common * ratio for ratio in ratios])
    for key, values in (options.values or {}).items():
        settings[key] = trial.suggest_categorical(key, list(values))
    if options.recipe:
        settings |= {key: rounded(trial.suggest_float(key, *bounds, log=True)) for key, bounds in RECIPE.items()}
    return settings
