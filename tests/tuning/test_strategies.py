"""Searches ask for the right trials, learn from what they are told, and ask for the same ones again when begun anew."""

import contextlib
import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import pytest

pytest.importorskip("optuna")

import optuna
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from l2d.config import SearchSettings, check_search, compose
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
        "search": "paper", "offsets": None, "totals": None, "values": None, "trials": 40, "recipe": False,
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
    asked = follow(begin_search(options(), space()), lambda _: 0.0)
    assert [ask.settings for ask in asked] == [
        {"method.rho.total": 1.0, "method.rho.offset": offset} for offset in range(6)
    ]


@pytest.mark.parametrize("total", [3.0, 10.0, 30.0])
def test_negative_offsets_where_the_total_allows_them(total: float) -> None:
    asked = follow(begin_search(options(), space({**RULE, "total": total})), lambda _: 0.0)
    shares = torch.tensor([6.0, 3.0, 1.0], dtype=torch.float64) ** (1 / 3)
    least = float(total * (shares / shares.sum()).min())
    assert [ask.settings["method.rho.offset"] for ask in asked] == [k for k in range(-5, 6) if least + k > 0]


def test_a_rho_of_exactly_0_is_not_positive() -> None:
    for rho in (RULE, 1.0):
        assert Space(rho, [0.5, 0.5]).at(2.0, -1.0) is None
        assert Space(rho, [0.5, 0.5]).at(2.0, -0.5) is not None


def test_a_grid_over_the_rule_drops_the_values_there_are() -> None:
    """Which would win over total and offset: all trials would be one."""
    [asked] = begin_search(options(offsets=[2.0]), space({**RULE, "values": [1.0, 2.0, 3.0]}))
    wanted = {"method.rho.total": 1.0, "method.rho.offset": 2.0, "method.rho.values": None}
    assert [ask.settings for ask in asked] == [wanted]


def test_a_temperature_is_searched_over_the_same_sizes() -> None:
    """TDEF at total/p + offset: as many trials as MILD, and the mean of MILD's ρ in each."""
    mild = follow(begin_search(options(), space()), lambda _: 0.0)
    tdef = follow(begin_search(options(), space(1.0)), lambda _: 0.0)
    assert [ask.settings["method.rho"] for ask in tdef] == [
        pytest.approx(sum(rho_of(ask.settings)) / 3, abs=1e-3) for ask in mild
    ]


def test_a_grid_per_expert_is_every_combination_of_the_papers_offsets() -> None:
    """ρ_k is the theory's share plus 0, 1, …, 5, for each of three experts."""
    asked = follow(begin_search(options(search="per_expert", trials=216), space()), lambda _: 0.0)
    shares = space().shares
    wanted = [
        [share + offset for share, offset in zip(shares, chosen, strict=True)] for chosen in product(range(6), repeat=3)
    ]
    assert [rho_of(ask.settings) for ask in asked] == [pytest.approx(rho, rel=1e-3) for rho in wanted]


def test_experts_with_the_smallest_shares_share_a_rho_if_trials_are_few() -> None:
    """36 settings: the largest has its own, the two others their mean share plus an offset."""
    first, second, third = space().shares
    asked = follow(begin_search(options(search="per_expert", trials=215), space()), lambda _: 0.0)
    rho = [rho_of(ask.settings) for ask in asked]
    assert rho == [
        pytest.approx([first + a, *[(second + third) / 2 + b] * 2], rel=1e-3) for a in range(6) for b in range(6)
    ]
    turned = Space(RULE, [third, first, second])
    assert [follow(begin_search(options(search="per_expert"), turned), lambda _: 0.0)[-1].settings] == [
        {"method.rho.values": pytest.approx([(second + third) / 2 + 5, first + 5, (second + third) / 2 + 5], rel=1e-3)}
    ]
    with pytest.raises(L2DError, match=r"tune\.trials=35: .* 36 "):
        begin_search(options(search="per_expert", trials=35), space())


def test_groups_of_the_rule_share_a_rho() -> None:
    asked = follow(
        begin_search(options(search="per_expert", trials=1000), space({**RULE, "groups": [[1, 3]]})), lambda _: 0.0
    )
    rho = [ask.settings["method.rho.values"] for ask in asked]
    assert len(rho) == 36
    assert all(first == third for first, _, third in rho)
    one = {**RULE, "groups": [[1, 2, 3]]}
    assert len(follow(begin_search(options(search="per_expert"), space(one)), lambda _: 0.0)) == 6


def test_a_temperature_has_the_budget_of_a_grid_per_expert() -> None:
    asked = follow(begin_search(options(search="per_expert"), space(1.0)), lambda _: 0.0)
    rho = [ask.settings["method.rho"] for ask in asked]
    assert rho == [pytest.approx(1 / 3 + 5 * step / 35, rel=1e-3) for step in range(36)]
    control = follow(begin_search(options(search="per_expert"), space({**RULE, "rule": "uniform"})), lambda _: 0.0)
    assert [ask.settings["method.rho.values"] for ask in control] == [[one] * 3 for one in rho]  # still one ρ for all
    one = options(search="per_expert", offsets=[2.0])
    assert [ask.settings["method.rho"] for ask in follow(begin_search(one, space(1.0)), lambda _: 0.0)] == [2.333]


def test_extended_grid_goes_up_to_fifty_in_both() -> None:
    asked = follow(begin_search(options(search="extended"), space()), lambda _: 0.0)
    pairs = [(ask.settings["method.rho.total"], ask.settings["method.rho.offset"]) for ask in asked]
    assert len(pairs) == len(set(pairs)) == 42
    sizes = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    assert pairs == [(total, offset) for total in sizes for offset in (0.0, *sizes)]
    few = options(search="extended", totals=[2.0], offsets=[-1.0, 0.0, 3.0])
    assert len(follow(begin_search(few, space()), lambda _: 0.0)) == 2


def test_settings_that_are_the_same_are_tried_once() -> None:
    """A temperature of total/3 + offset: 1, 2, 2 and 3."""
    few = options(search="extended", totals=[3.0, 6.0], offsets=[0.0, 1.0])
    asked = follow(begin_search(few, space(1.0)), lambda _: 0.0)
    assert [ask.settings["method.rho"] for ask in asked] == [1.0, 2.0, 3.0]


def test_coordinate_search_finds_each_experts_own() -> None:
    target = [20.0, 5.0, 1.0]

    def value(ask: Ask) -> float:
        return sum((math.log(a) - math.log(b)) ** 2 for a, b in zip(rho_of(ask.settings), target, strict=True))

    asked = follow(begin_search(options(search="coordinate", trials=100), space()), value)
    best = min(asked, key=value)
    assert asked[0].settings == {"method.rho.values": [pytest.approx(v, rel=1e-3) for v in rho_of(RULE)]}
    assert all(0.8 < a / b < 1.25 for a, b in zip(rho_of(best.settings), target, strict=True))
    assert len(asked) < 100  # it stopped by itself


def test_coordinate_search_begins_with_the_values_there_are() -> None:
    first, *_ = next(begin_search(options(search="coordinate"), space({**RULE, "values": [1.0, 2.0, 3.0]})))
    assert first.settings == {"method.rho.values": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("trials", [1, 2, 7])
def test_coordinate_search_keeps_to_its_budget(trials: int) -> None:
    falling = iter(range(1000, 0, -1))
    asked = follow(begin_search(options(search="coordinate", trials=trials), space()), lambda _: float(next(falling)))
    assert len(asked) == trials


def test_coordinate_search_without_gain_ends_after_a_round() -> None:
    asked = follow(begin_search(options(search="coordinate"), space()), lambda _: 0.0)
    assert len(asked) == 1 + 3 * 4
    one = follow(begin_search(options(search="coordinate"), space(1.0)), lambda _: 0.0)
    assert [ask.settings["method.rho"] for ask in one] == [1.0, 0.5, 0.7071, 1.414, 2.0]


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
    assert start_of([1.0, 1.0, 4.0, 10.0]) == {
        "size": 4.0,
        "ratio 1": 0.5,
        "ratio 2": 0.5,
        "ratio 3": 1.0,
        "ratio 4": 2.0,
    }
    assert [start_of([rho]) for rho in (0.01, 3.0, 1000.0)] == [{"size": 0.1}, {"size": 3.0}, {"size": 100.0}]


def test_optuna_asks_for_as_many_at_once_as_may_run_in_parallel() -> None:
    search, sizes = begin_search(options(search="optuna", trials=8, parallel=3), space()), list[int]()
    with contextlib.suppress(StopIteration):
        batch = next(search)
        while True:
            sizes.append(len(batch))
            batch = search.send([1.0] * len(batch))
    assert sizes == [3, 3, 2]


def test_optuna_is_told_which_trials_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value in their place would draw the search to them."""
    told, real = list[tuple[Any, Any]](), optuna.Study.tell

    def tell(study: optuna.Study, trial: Any, values: Any = None, state: Any = None) -> Any:
        told.append((values, state))
        return real(study, trial, values, state)

    monkeypatch.setattr(optuna.Study, "tell", tell)
    values = iter([0.5, math.inf])
    follow(begin_search(options(search="optuna", trials=2), space()), lambda _: next(values))
    assert told == [(0.5, None), (None, optuna.trial.TrialState.FAIL)]


def test_optuna_draws_sizes_evenly_by_their_logarithm() -> None:
    """From 0.1 to 100, so two thirds of them below 10."""
    asked = follow(begin_search(options(search="optuna", trials=12), space(1.0)), lambda _: 0.0)
    assert sum(ask.settings["method.rho"] < 10 for ask in asked[1:]) > 4


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


def test_optuna_over_the_recipe_alone() -> None:
    """For a method without ρ that is enough to search."""
    [first, *_] = follow(begin_search(options(search="optuna", trials=2, recipe=True), None), lambda _: 1.0)
    assert list(first.settings) == ["recipe.optimizer.lr", "recipe.optimizer.weight_decay"]


def test_optuna_asks_on_where_all_trials_of_a_round_failed() -> None:
    own = options(search="optuna", trials=3, parallel=1, rungs=[0.5])
    assert [ask.until for ask in follow(begin_search(own, space()), lambda _: math.inf)] == [0.5] * 3


def test_optuna_stops_where_all_values_were_asked_for() -> None:
    own = options(search="optuna", values={"method.tau": [0.5, 1.0]})
    asked = follow(begin_search(own, None), lambda _: 1.0)
    assert {ask.settings["method.tau"] for ask in asked} == {0.5, 1.0}
    assert len(asked) < own.trials


def test_own_values_are_a_grid() -> None:
    asked = follow(
        begin_search(options(values={"method.scale": [10, 30], "method.max_margin": [0.1, 0.5]}), None), lambda _: 0.0
    )
    assert [tuple(ask.settings.values()) for ask in asked] == [(10, 0.1), (10, 0.5), (30, 0.1), (30, 0.5)]


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4))
def test_overrides_say_exactly_what_is_set(values: list[float]) -> None:
    [parsed] = OverridesParser.create().parse_overrides([f"method.rho.values={override_text(values)}"])
    assert parsed.value() == values


def test_overrides_compose() -> None:
    ask = Ask({"method.rho.values": [1.0, 2.5, 3.0, 4.0, 5.0], "method.rho.offset": None})
    assert compose(list(ask.overrides)).method.rho.offset is None
    assert override_text(True) == "true"


def test_nothing_to_search_is_said() -> None:
    with pytest.raises(L2DError, match="has no ρ"):
        begin_search(options(), None)
    with pytest.raises(L2DError, match="has no ρ"):
        next(begin_search(options(search="optuna"), None))
    for search in ("paper", "per_expert"):
        with pytest.raises(L2DError, match=r"tune\.offsets"):
            begin_search(options(search=search, offsets=[-3.0]), space())
