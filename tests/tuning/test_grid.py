"""The settings that a search tries."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from l2d.config.composing import override_text
from l2d.core.costs import sum_others
from l2d.core.rho import build_rho
from l2d.tuning.study import own_grid, rho_at, rho_grid
from l2d.utils.errors import L2DError

RULE = {"rule": "theory", "total": 1.0, "offset": 5.0, "counts": "cheapest", "groups": None, "values": None}
COSTS = 1 - torch.eye(3, dtype=torch.float64).repeat_interleave(torch.tensor([6, 3, 1]), dim=0)
# Six, three and one rows to the experts: theory's shares are as the cube roots.
ROOTS = [m ** (1 / 3) for m in (6, 3, 1)]
SHARES = [root / sum(ROOTS) for root in ROOTS]


def rho_of(settings: Mapping[str, Any]) -> list[float]:
    """ρ that a trial of MILD would have."""
    rule = {**RULE, **{key.removeprefix("method.rho."): value for key, value in settings.items()}}
    return [float(value) for value in build_rho(rule, COSTS, sum_others(COSTS))]


def test_the_papers_grid_keeps_positive_rho_only() -> None:
    """And tries settings that are the same once."""
    wanted = [{"method.rho.total": 1.0, "method.rho.offset": offset} for offset in range(6)]
    assert rho_grid(RULE, SHARES, None) == wanted
    for rho in (RULE, 1.0):
        assert rho_at(rho, [0.5, 0.5], -0.5) is None  # a ρ of exactly 0 is not positive
        assert rho_at(rho, [0.5, 0.5], -0.25) is not None
    assert [one["method.rho"] for one in rho_grid(1.0, SHARES, [1.0, 2.0, 1.0])] == [1.333, 2.333]
    with pytest.raises(L2DError, match=r"tune\.offsets"):
        rho_grid(RULE, SHARES, [-3.0])


def test_negative_offsets_where_the_total_allows_them() -> None:
    total = 10.0
    found = rho_grid({**RULE, "total": total}, SHARES, None)
    assert [one["method.rho.offset"] for one in found] == [k for k in range(-5, 6) if total * min(SHARES) + k > 0]


def test_grids_over_the_rule_and_over_own_values() -> None:
    """Values would win over total and offset: all trials would be one."""
    wanted = {"method.rho.total": 1.0, "method.rho.offset": 2.0, "method.rho.values": None}
    assert rho_grid({**RULE, "values": [1.0, 2.0, 3.0]}, SHARES, [2.0]) == [wanted]
    found = own_grid({"method.scale": [10, 30, 10], "method.max_margin": [0.1, 0.5]})
    assert [tuple(one.values()) for one in found] == [(10, 0.1), (10, 0.5), (30, 0.1), (30, 0.5)]


def test_a_temperature_is_searched_over_the_same_sizes() -> None:
    """TDEF at total/p + offset: as many trials as MILD, and the mean of MILD's ρ in each."""
    means = [sum(rho_of(settings)) / 3 for settings in rho_grid(RULE, SHARES, None)]
    assert [one["method.rho"] for one in rho_grid(1.0, SHARES, None)] == pytest.approx(means, abs=1e-3)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=4))
def test_overrides_say_exactly_what_is_set(values: list[float]) -> None:
    [parsed] = OverridesParser.create().parse_overrides([f"method.rho.values={override_text(values)}"])
    assert parsed.value() == values
