"""Searches ask for the right trials, learn from results, and ask for the same trials again when restarted."""

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

pytest.importorskip("optuna")

import optuna
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from l2d.config import SearchSettings, check_search
from l2d.config.composing import override_text
from l2d.core.rewards import sum_others
from l2d.core.rho import build_rho
from l2d.tuning.strategies import Ask, Search, Space, begin_search, start_of
from l2d.utils.errors import L2DError

RULE = {"rule": "theory", "total": 1.0, "offset": 5.0, "counts": "cheapest", "groups": None, "values": None}
COSTS = 1 - torch.eye(3, dtype=torch.float64).repeat_interleave(torch.tensor([6, 3, 1]), dim=0)


def space(rho: Any = RULE) -> Space:
    """Six, three and one rows to the experts: theory's shares are as the cube roots."""
    roots = [m ** (1 / 3) for m in (6, 3, 1)]
    return Space(rho, [root / sum(roots) for root in roots])


def options(**changes: Any) -> SearchSettings:
    known: dict[str, Any] = {
        "search": "paper", "offsets": None, "values": None, "trials": 40, "recipe": False,
        "rungs": [], "parallel": 1, "seeds": [0], "folds": 1, "final_seeds": [0, 1], "ablation": False,
    }  # fmt: skip
    return check_search(known | changes)


def follow(search: Search, value: Callable[[Ask], float]) -> list[Ask]:
    """Run a search to its end; everything it asked for. A search that asks for nothing would be taken for done."""
    asked: list[Ask] = []
    batch = next(search)
    while True:
        assert batch
        asked += batch
        try:
            batch = search.send([value(ask) for ask in batch])
        except StopIteration:
            return asked


def rho_of(settings: Mapping[str, Any]) -> list[float]:
    """ρ that a trial of MILD would have."""
    rule = {**RULE, **{key.removeprefix("method.rho."): value for key, value in settings.items()}}
    return [float(value) for value in build_rho(rule, COSTS, sum_others(COSTS))]


def test_the_papers_grid_keeps_positive_rho_only() -> None:
    """And tries settings that are the same once."""
    asked = follow(begin_search(options(), space()), lambda _: 0.0)
    wanted = [{"method.rho.total": 1.0, "method.rho.offset": offset} for offset in range(6)]
    assert [ask.settings for ask in asked] == wanted
    for rho in (RULE, 1.0):
        assert Space(rho, [0.5, 0.5]).at(-0.5) is None  # a ρ of exactly 0 is not positive
        assert Space(rho, [0.5, 0.5]).at(-0.25) is not None
    twice = follow(begin_search(options(offsets=[1.0, 2.0, 1.0]), space(1.0)), lambda _: 0.0)
    assert [ask.settings["method.rho"] for ask in twice] == [1.333, 2.333]


def test_negative_offsets_where_the_total_allows_them() -> None:
    total = 10.0
    asked = follow(begin_search(options(), space({**RULE, "total": total})), lambda _: 0.0)
    shares = torch.tensor([6.0, 3.0, 1.0], dtype=torch.float64) ** (1 / 3)
    least = float(total * (shares / shares.sum()).min())
    assert [ask.settings["method.rho.offset"] for ask in asked] == [k for k in range(-5, 6) if least + k > 0]


def test_grids_over_the_rule_and_over_own_values() -> None:
    """Which would win over total and offset: all trials would be one."""
    [asked] = begin_search(options(offsets=[2.0]), space({**RULE, "values": [1.0, 2.0, 3.0]}))
    wanted = {"method.rho.total": 1.0, "method.rho.offset": 2.0, "method.rho.values": None}
    assert [ask.settings for ask in asked] == [wanted]
    own = options(values={"method.scale": [10, 30], "method.max_margin": [0.1, 0.5]})
    asked = follow(begin_search(own, None), lambda _: 0.0)
    assert [tuple(ask.settings.values()) for ask in asked] == [(10, 0.1), (10, 0.5), (30, 0.1), (30, 0.5)]


def test_a_temperature_is_searched_over_the_same_sizes() -> None:
    """TDEF at total/p + offset: as many trials as MILD, and the mean of MILD's ρ in each."""
    mild = follow(begin_search(options(), space()), lambda _: 0.0)
    tdef = follow(begin_search(options(), space(1.0)), lambda _: 0.0)
    means = [sum(rho_of(ask.settings)) / 3 for ask in mild]
    assert [ask.settings["method.rho"] for ask in tdef] == pytest.approx(means, abs=1e-3)


def test_optuna_starts_where_the_method_is_and_asks_the_same_again() -> None:
    def value(ask: Ask) -> float:
        return abs(math.log(rho_of(ask.settings)[0] / 30))

    first, again = (follow(begin_search(options(search="optuna", trials=15), space()), value) for _ in range(2))
    assert first == again
    assert len(first) == 15
    assert rho_of(first[0].settings) == pytest.approx(rho_of(RULE), rel=1e-3)
    assert min(map(value, first)) < value(first[0]) / 3
    assert all(0 < rho <= 200 for ask in first for rho in rho_of(ask.settings))


def test_optuna_starts_within_its_ranges() -> None:
    """Sizes from 0.1 to 100, and ratios to it from one half to 2, each of its own expert."""
    ratios = {"ratio 1": 0.5, "ratio 2": 0.5, "ratio 3": 1.0, "ratio 4": 2.0}
    assert start_of([1.0, 1.0, 4.0, 10.0]) == {"size": 4.0, **ratios}
    assert [start_of([rho]) for rho in (0.01, 3.0, 1000.0)] == [{"size": 0.1}, {"size": 3.0}, {"size": 100.0}]


def test_optuna_asks_for_as_many_at_once_as_may_run_in_parallel() -> None:
    search, sizes = begin_search(options(search="optuna", trials=8, parallel=3), space()), list[int]()
    with contextlib.suppress(StopIteration):
        batch = next(search)
        while True:
            sizes.append(len(batch))
            batch = search.send([1.0] * len(batch))
    assert sizes == [3, 3, 2]


def test_optuna_knows_which_trials_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value in their place would draw the search to them."""
    told, real = list[tuple[Any, Any]](), optuna.Study.tell

    def tell(study: optuna.Study, trial: Any, values: Any = None, state: Any = None) -> Any:
        told.append((values, state))
        return real(study, trial, values, state)

    monkeypatch.setattr(optuna.Study, "tell", tell)
    values = iter([0.5, math.inf])
    follow(begin_search(options(search="optuna", trials=2), space()), lambda _: next(values))
    assert told == [(0.5, None), (None, optuna.trial.TrialState.FAIL)]


def test_optuna_leaves_the_worse_half_early() -> None:
    def value(ask: Ask) -> float:
        return rho_of(ask.settings)[0]

    asked = follow(begin_search(options(search="optuna", trials=20, rungs=[0.3, 0.6]), space()), value)
    by_trial: dict[tuple[str, ...], list[float]] = {}
    for ask in asked:
        by_trial.setdefault(ask.overrides, []).append(ask.until)
    lengths = list(by_trial.values())
    assert [0.3, 0.6, 1.0] in lengths
    assert [0.3] in lengths
    assert lengths[:5] == [[0.3, 0.6, 1.0]] * 5  # nothing is judged before there is something to judge by
    worst = max(by_trial, key=lambda overrides: value(next(ask for ask in asked if ask.overrides == overrides)))
    assert by_trial[worst] == [0.3] or worst in list(by_trial)[:5]


def test_optuna_over_recipe_values_and_failures() -> None:
    own = options(search="optuna", trials=8, parallel=3, recipe=True, values={"method.tau": [0.5, 1.0]})
    asked = follow(begin_search(own, None), lambda ask: math.inf if ask.settings["method.tau"] == 0.5 else 1.0)
    assert len(asked) == 8
    for ask in asked:
        assert 1e-4 <= ask.settings["recipe.optimizer.lr"] <= 1e-2
        assert 1e-5 <= ask.settings["recipe.optimizer.weight_decay"] <= 1e-2
    assert {ask.settings["method.tau"] for ask in asked} == {0.5, 1.0}
    assert sum(ask.settings["recipe.optimizer.lr"] < 1e-3 for ask in asked) >= 3  # even by their logarithm
    # For a method without ρ, the recipe is enough to search.
    [first, *_] = follow(begin_search(options(search="optuna", trials=2, recipe=True), None), lambda _: 1.0)
    assert list(first.settings) == ["recipe.optimizer.lr", "recipe.optimizer.weight_decay"]


def test_optuna_stops_where_all_values_were_asked_for_and_not_where_all_trials_failed() -> None:
    own = options(search="optuna", values={"method.tau": [0.5, 1.0]})
    asked = follow(begin_search(own, None), lambda _: 1.0)
    assert {ask.settings["method.tau"] for ask in asked} == {0.5, 1.0}
    assert len(asked) < own.trials
    own = options(search="optuna", trials=3, parallel=1, rungs=[0.5])
    assert [ask.until for ask in follow(begin_search(own, space()), lambda _: math.inf)] == [0.5] * 3


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4))
def test_overrides_say_exactly_what_is_set(values: list[float]) -> None:
    [parsed] = OverridesParser.create().parse_overrides([f"method.rho.values={override_text(values)}"])
    assert parsed.value() == values


def test_nothing_to_search_is_an_error() -> None:
    with pytest.raises(L2DError, match="has no ρ"):
        begin_search(options(), None)
    with pytest.raises(L2DError, match="has no ρ"):
        next(begin_search(options(search="optuna"), None))
    with pytest.raises(L2DError, match=r"tune\.offsets"):
        begin_search(options(offsets=[-3.0]), space())
