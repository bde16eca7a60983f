import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

from l2d.router.score import Comparison, RouterScore, compare_decisions, score_decisions

COSTS = torch.tensor([[0.0, 1.0], [1.0, 0.25], [0.5, 1.0], [0.0, 1.0]])


def test_by_hand() -> None:
    """Chosen costs 0, .25, 1, 0; always a: 0, 1, .5, 0; the differences are 0, .75, −.5, 0."""
    score = score_decisions(torch.tensor([0, 1, 1, 0]), COSTS, ["a", "b"])
    assert (score.n, score.deferral_loss, score.oracle_loss) == (4, 0.3125, 0.1875)
    assert (score.best_single, score.best_single_loss, score.gain) == ("a", 0.375, 0.0625)
    spread = np.std([0, 0.75, -0.5, 0], ddof=1) / 2
    assert score.gain_interval == pytest.approx((0.0625 - 1.96 * spread, 0.0625 + 1.96 * spread), abs=1e-4)
    spread = np.std([0, 0.25, 1, 0], ddof=1) / 2
    assert 1.96 * spread > 0.3125  # a loss is not negative
    assert score.interval == pytest.approx((0, 0.3125 + 1.96 * spread), abs=1e-4)
    dear = score_decisions(torch.tensor([0, 1, 1, 0]), COSTS + 1, ["a", "b"])
    assert dear.interval == pytest.approx((1.3125 - 1.96 * spread, 1.3125 + 1.96 * spread), abs=1e-4)
    assert score.shares == {"a": 0.5, "b": 0.5}
    assert score.oracle_shares == {"a": 0.75, "b": 0.25}
    assert score.single_losses == {"a": 0.375, "b": 0.8125}


def test_the_price_is_part_of_the_loss() -> None:
    """Always a, always b by turns; prices .25 and .5, then by row."""
    decisions = torch.tensor([0, 1, 1, 0])
    score = score_decisions(decisions, COSTS + torch.tensor([0.25, 0.5]), ["a", "b"], torch.tensor([0.25, 0.5]))
    assert (score.deferral_loss, score.mean_error, score.mean_price) == (0.6875, 0.3125, 0.375)
    assert "of which price  0.3750" in str(score)
    assert "of which price  0.0000" in str(score_decisions(decisions, COSTS, ["a", "b"], torch.zeros(2)))
    by_row = score_decisions(decisions, COSTS, ["a", "b"], torch.tensor([[0.0, 9], [9, 0.25], [9, 0.5], [0, 9]]))
    assert (by_row.mean_error, by_row.mean_price) == (0.125, 0.1875)


def test_compared_by_hand() -> None:
    """The first pays 0, .25, 1, 0, the second 0, 1, .5, 0: differences 0, −.75, .5, 0."""
    found = compare_decisions(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 0, 0, 0]), COSTS)
    spread = np.std([0, -0.75, 0.5, 0], ddof=1) / 2
    assert (found.n, found.difference) == (4, -0.0625)
    assert found.interval == pytest.approx((-0.0625 - 1.96 * spread, -0.0625 + 1.96 * spread), abs=1e-4)
    assert str(found).endswith("the other")
    many, first, second = COSTS.repeat(50, 1), torch.tensor([0, 1, 0, 0] * 50), torch.tensor([1, 1, 1, 1] * 50)
    assert str(compare_decisions(first, second, many)).endswith("this router is better")
    assert str(compare_decisions(second, first, many)).endswith("the other router is better")


def test_words() -> None:
    for chosen, word in (([0, 1, 0, 0], "better"), ([1, 1, 1, 1], "worse"), ([0, 0, 0, 0], "no clear difference")):
        assert word in str(score_decisions(torch.tensor(chosen * 50), COSTS.repeat(50, 1), ["a", "b"]))


def test_within_a_budget_the_best_single_expert_is_one_that_it_allows() -> None:
    """Always b costs 1, .25, 1, 1, and the choices 0, .25, .5, 0: 2.5 less on four rows. a alone would be better."""
    score = score_decisions(torch.tensor([0, 1, 0, 0]), COSTS, ["a", "b"], allowed=[1])
    assert (score.best_single, score.best_single_loss, score.gain) == ("b", 0.8125, 0.625)
    assert score.single_losses["a"] < 0.8125
    assert "budget allows" in str(score)
    assert RouterScore.from_dict(score.as_dict()) == score
    both = score_decisions(torch.tensor([0, 1, 0, 0]), COSTS, ["a", "b"], allowed=[0, 1])
    assert both.best_single == "a"


def test_every_number_stands_in_its_line() -> None:
    score = RouterScore(
        n=1234, deferral_loss=0.25, interval=(0.2, 0.3), oracle_loss=0.1, best_single="b", best_single_loss=0.4, gain=0.15,
        gain_interval=(-0.05, 0.35), shares={"a": 0.75, "b": 0.25}, oracle_shares={"a": 0.5, "b": 0.5},
        single_losses={"a": 0.6, "b": 0.4}, mean_error=0.2, mean_price=0.05,
    )  # fmt: skip
    loss, price, best, oracle, gain, shares = (
        re.findall(r"[+-]?\d[\d.,]*\d", line) for line in str(score).splitlines()
    )
    assert (loss, price, best, oracle) == (["0.2500", "0.2000", "0.3000", "1,234"], ["0.0500"], ["0.4000"], ["0.1000"])
    assert (gain, shares) == (["+0.1500", "-0.0500", "+0.3500"], ["75.0", "25.0"])
    compared = str(Comparison(1234, -0.0625, (-0.125, 0.25)))
    assert re.findall(r"[+-]?\d[\d.,]*\d", compared) == ["-0.0625", "-0.1250", "+0.2500", "1,234"]
    assert "no significant difference" in compared


def test_one_row_has_no_interval() -> None:
    score = score_decisions(torch.tensor([0]), COSTS[:1], ["a", "b"])
    assert (score.interval, score.gain_interval) == ((0, math.inf), (-math.inf, math.inf))
    assert RouterScore.from_dict(score.as_dict()) == score


@given(st.integers(0, 2**31))
def test_round_trip_and_bounds(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    costs, decisions = torch.rand(9, 3, generator=draw), torch.randint(0, 3, (9,), generator=draw)
    score = score_decisions(decisions, costs, ["a", "b", "c"])
    assert RouterScore.from_dict(score.as_dict()) == score
    oracle: Any = score.oracle_loss
    assert oracle <= min(score.deferral_loss, score.best_single_loss)
    assert score.best_single_loss == min(score.single_losses.values())
    assert score.gain == pytest.approx(score.best_single_loss - score.deferral_loss)


def test_the_picture_shows_the_numbers() -> None:
    """Bars from below: the oracle, the router, always b, always a."""
    score = score_decisions(torch.tensor([0, 1, 1, 0]), COSTS, ["a", "b"])
    losses, shares = score.plot().axes
    names = [text.get_text() for text in losses.get_yticklabels()]
    bars = [bar for bar in losses.patches if isinstance(bar, Rectangle)]
    found = {name: bar.get_width() for name, bar in zip(names, bars, strict=True)}
    assert found == {"always a": 0.375, "always b": 0.8125, "router": 0.3125, "oracle": 0.1875}
    assert names[:2] == ["oracle", "router"]
    assert [bar.get_facecolor() for bar in bars[:2]] == [to_rgba("tab:green"), to_rgba("tab:blue")]
    heights = [bar.get_height() for bar in shares.patches if isinstance(bar, Rectangle)]
    assert heights == [50, 50, 75, 25]  # the router's, then the oracle's
    assert [text.get_text() for text in shares.get_xticklabels()] == ["a", "b"]
    assert [bars.get_label() for bars in shares.containers] == ["router", "oracle"]
    assert losses.get_title() == "4 rows"
    assert score.plot()._repr_png_().startswith(b"\x89PNG")  # in a notebook
