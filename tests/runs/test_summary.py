"""The table a reader sees, what is said beneath it, the picture."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle
from tests.metrics_example import example_metrics

from l2d.core import results
from l2d.core.metrics import routing_metrics
from l2d.core.prices import Prices
from l2d.core.results import CategoryScore, GuardedScore, GuardEvidence, RowCounts, RunMetrics
from l2d.runs.summary import format_line, format_table, run_figure

ROUTER = [0, 0, 1, 0]
CATEGORY = CategoryScore(rows=10, deferral_loss=0.3, best_single=0.5, oracle=0.1)
HALF = results.Estimate(0.5, 0.1)
VALUE = results.OffPolicyValue(direct=HALF, snips=None, doubly_robust=HALF)
LOG = results.LoggedOutcomes([0.5, 0.5], "given", HALF, VALUE, VALUE, VALUE, [10.0, 10.0], None, 2.0, 1.0, None)
# The score of always asking expert 2, the best single expert, on the test rows below.
SECOND = results.Score(deferral_loss=0.5, error_rate=0.5, mean_price=0.0, ratios=[0.0, 1.0], standard_error=0.125)


def metrics(decisions: list[int], **changes: Any) -> RunMetrics:
    """Four rows, two for each expert; the first expert's price is .5."""
    prices = torch.tensor([0.5, 0.0])
    costs = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64) + prices
    routing = routing_metrics(torch.tensor(decisions), costs, costs, prices, ["expert 1", "expert 2"])
    return replace(example_metrics(), **vars(routing), **{"rows": RowCounts(40, 10, 30), **changes})


def guarded(gain: float, error: float | None, best: str = "expert 2", **changes: Any) -> GuardedScore:
    seen = GuardEvidence(best_constant=best, gain=gain, standard_error=error)
    defaults = {"constant": None, "offsets": None, "validation": seen, "test": seen}
    return GuardedScore(**{**vars(SECOND), **defaults, **changes})


def line_of(text: str, start: str) -> str:
    [found] = [line for line in text.splitlines() if line.startswith(start)]
    return found


def test_table() -> None:
    """Two rows to each expert: oracle .5·.5 = .25; expert 1 always: .5 + .5; expert 2 always: .5."""
    lines = format_table(metrics(ROUTER)).splitlines()
    assert lines[0].split("  ")[0] == "test split"
    cells = {line[:26].strip(): line[26:].split() for line in lines if not line.startswith("-")}
    assert lines[0].split()[2:6] == ["deferral", "loss", "95", "%"]
    # .5, .5, 0 and 1.5, whose standard deviation is .6292, over √4, times 1.96
    assert cells["router"] == ["0.6250", "±", "0.6166", "0.2500", "0.3750", "75.0%", "25.0%"]
    assert cells["oracle"] == ["0.2500", "±", "0.2829", "0.0000", "0.2500", "50.0%", "50.0%"]
    assert cells["best single expert"] == ["0.5000", "±", "0.5658", "0.5000", "0.0000", "0.0%", "100.0%"]
    assert cells["always expert 1"] == ["1.0000", "±", "0.5658", "0.5000", "0.5000", "100.0%", "0.0%"]
    assert cells["random expert"] == ["0.7500", "±", "0.0000", "0.5000", "0.2500", "50.0%", "50.0%"]
    assert cells["always the majority expert"] == cells["always expert 1"]
    assert "WARNING" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("p", "shown", "hidden"), [(8, [7, 6, 5, 4, 3, 2, 1], None), (9, [8, 7, 6], 5), (13, [12, 11, 10], 9)]
)
def test_a_row_for_each_single_expert(p: int, shown: list[int], hidden: int | None) -> None:
    """The first expert is the best single one; of the others the last is the cheapest. Of many, the three cheapest are shown."""
    experts = [results.ExpertAlone(f"m{k}", 0.5 - 0.03125 * k, 0.25, 0.0625) for k in range(p)]
    lines = format_table(example_metrics(p=p, experts=experts)).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("best single expert"))
    found = [line.split() for line in lines[start + 1 :] if line.startswith("always m")]
    assert [cells[1] for cells in found] == [f"m{k}" for k in shown]
    first = shown[0]
    loss, error = f"{0.75 - 0.03125 * first:.4f}", f"{0.5 - 0.03125 * first:.4f}"
    assert found[0][2:7] == [loss, "±", "0.1225", error, "0.2500"]
    assert found[0][7:] == ["100.0%" if k == first else "0.0%" for k in range(p)]
    not_shown = [line.split()[2] for line in lines if line.startswith("not shown: ")]
    assert not_shown == ([] if hidden is None else [str(hidden)])


def test_in_dollars() -> None:
    """A wrong answer costs 2 cents, so all losses and prices are that times the loss; rates and shares stay."""
    found = metrics(ROUTER, guarded=guarded(0.25, 0.0625), by_category={"a": CATEGORY, "b": CATEGORY}, log=LOG)
    text = format_table(found, Prices(error_price=0.02))
    cells = {line[:26].strip(): line[26:].split() for line in text.splitlines()}
    assert cells["router"] == ["$0.012500", "±", "$0.012331", "0.2500", "$0.007500", "75.0%", "25.0%"]
    assert dollars(line_of(text, "losses and prices")) == ["$0.02"]
    assert dollars(line_of(text, "guard: ")) == ["+$0.005000", "$0.002450"]
    assert dollars(line_of(text, "verdict: ")) == ["$0.005000", "$0.002450"]
    assert dollars(line_of(text, "value of the router")) == ["$0.010000", "$0.003920"] * 2
    assert dollars(line_of(text, "the log's own")) == ["$0.010000", "$0.003920"]
    assert line_of(text, "a  ").split() == ["a", "10", "$0.006000", "$0.010000", "$0.002000", "+$0.004000"]
    assert dollars(format_line(found, Prices(error_price=0.02))) == ["$0.012500", "$0.010000", "$0.005000"]
    assert dollars(format_table(found)) == []
    # A price that contains latency says so above its column and in a line of its own.
    priced = [Prices(error_price=0.02, latency_price=price) for price in (0.0, 0.001)]
    plain, late = (format_table(metrics(ROUTER), one) for one in priced)
    assert "latency" not in plain
    assert "latency" in late.splitlines()[0]
    assert dollars(line_of(late, "prices contain latency")) == ["$0.001"]


def dollars(text: str) -> list[str]:
    return re.findall(r"[+-]?\$[\d.]*\d", text)


@pytest.mark.parametrize(
    ("price", "shown"), [(0.02, "-$0.010000"), (2, "-$1.0000"), (50, "-$25.000"), (40000, "-$20000.00")]
)
def test_digits_of_dollars(price: float, shown: str) -> None:
    assert Prices(error_price=price).show(-0.5) == shown
    assert Prices(error_price=price).show(0.5, "+") == shown.replace("-", "+")


def test_line() -> None:
    plain, fallback = (format_line(metrics(ROUTER, guarded=found)) for found in (guarded(0.25, 0.1), FALLBACK))
    assert re.findall(r"0\.\d+", plain) == ["0.6250", "0.5000", "0.2500"]  # router, best single expert, oracle
    assert re.findall(r"0\.\d+", fallback) == ["0.6250", "0.5000", "0.5000", "0.2500"]  # the second is guarded


def test_categories_by_gain() -> None:
    """Eight of them: the three where the router gains most on the best single expert, the three where it loses most."""
    gains = {"a": 0.0, "b": 0.3, "c": -0.2, "d": 0.1, "e": 0.2, "f": -0.1, "g": -0.3, "h": 0.01}
    parts = {name: replace(CATEGORY, deferral_loss=0.5 - gain) for name, gain in gains.items()}
    lines = format_table(metrics(ROUTER, by_category=parts)).splitlines()[-9:]
    assert [line.split()[0] for line in lines] == ["category", lines[1], "b", "e", "d", "(2", "f", "c", "g"]
    assert lines[2].split() == ["b", "10", "0.2000", "0.5000", "0.1000", "+0.3000"]
    assert "others" not in format_table(metrics(ROUTER, by_category={name: parts[name] for name in "abcdef"}))
    assert "category" not in format_table(metrics(ROUTER, by_category={"a": parts["a"]}))
    two = format_table(metrics(ROUTER, by_category={name: parts[name] for name in "ab"})).splitlines()[-4:]
    assert two[0].split() == ["category", "rows", "router", "best", "single", "expert", "oracle", "gain"]
    assert [line.split()[0] for line in two[2:]] == ["b", "a"]


def test_extreme_prices_are_said() -> None:
    found = results.ExtremeShares("big", [0.0, 1.0, 0.3], target=0.95, share_train=0.94, share_test=0.967)
    line = line_of(format_table(metrics(ROUTER, extreme=found)), "cost=extreme: prices 0, 1, 0.3;")
    assert re.findall(r"[\d.]+%", line) == ["94.0%", "95%", "96.7%"]
    assert "big" in line


@pytest.mark.parametrize(
    ("gain", "error", "verdict", "words", "numbers"),
    [
        (0.125, 0.0312, "routing pays", {"less", "oracle"}, ["0.1250 ± 0.0612", "20%", "33%"]),
        (0.25, 0.0312, "routing pays", {"less", "oracle"}, ["0.2500 ± 0.0612", "33%", "50%"]),
        (0.125, 0.0638, "routing may pay", {"less", "chance"}, ["0.1250 ± 0.1250"]),
        (0.125, None, "routing may pay", {"less", "chance"}, ["0.1250"]),
        (0.0, 0.1, "unclear", {"same"}, []),
        (-0.125, 0.0312, "unclear", {"more"}, ["0.1250 ± 0.0612"]),
    ],
)
def test_the_verdict(gain: float, error: float | None, verdict: str, words: set[str], numbers: list[str]) -> None:
    """The router's loss is .5, the oracle's .25; routing pays if the 95 % interval is above 0. Percentages: of the cost of expert 2
    alone, of the way from there to the oracle."""
    seen = GuardEvidence("expert 2", gain, error)
    line = line_of(format_table(metrics(ROUTER, guarded=guarded(1.0, 0.1, best="expert 1", test=seen))), "verdict: ")
    line, *_ = line.split(" To settle it")
    assert line.startswith(f"verdict: {verdict}")
    assert re.findall(r"\d+%|\d\.\d+(?: ± \d\.\d+)?", line) == numbers
    assert line.count("(95 %)") == (error is not None and gain != 0)
    assert {*re.findall(r"less|more|same|chance|oracle", line)} == words
    assert {*re.findall(r"expert \d", line)} == {"expert 2"}


@pytest.mark.parametrize(
    ("gain", "verdict", "numbers"),
    [
        (0.125, "routing pays", ["0.1250", "0.0612", "20%"]),
        (0.0312, "routing may pay", ["0.0312", "0.0612"]),
        (-0.125, "unclear", ["0.1250", "0.0612"]),
    ],
)
def test_the_verdict_of_a_cross_validated_run_goes_by_guards_that_did_not_see_the_rows(
    gain: float, verdict: str, numbers: list[str]
) -> None:
    """The guard of all rows gains .5 where it was fitted. Those of the folds cost .5 with the router; .125 of .625 are 20 %."""
    found = guarded(0.5, 0.01, test=GuardEvidence("expert 2", gain, 0.0312))
    line = line_of(format_table(metrics(ROUTER, guarded=found, evaluation="cross_validate")), "verdict: ")
    assert line.startswith(f"verdict: {verdict}")
    assert re.findall(r"\d+%|\d\.\d+", line)[: len(numbers)] == numbers


@pytest.mark.parametrize(("rows", "enough"), [(1, False), (29, False), (30, True)])
def test_a_verdict_needs_thirty_rows(rows: int, enough: bool) -> None:
    """With enough of them a fallback is a verdict too."""
    for found, verdict in ((guarded(1.0, 0.1), "routing pays"), (FALLBACK, "use expert 2 alone")):
        line = line_of(format_table(metrics(ROUTER, guarded=found, rows=RowCounts(40, 10, rows))), "verdict: ")
        assert line.startswith(f"verdict: {verdict if enough else 'unclear'}")
        assert enough or str(rows) in line


FALLBACK = guarded(-0.5, 0.25, constant="expert 2")  # the router costs .5 more than always expert 2
OFFSETS = guarded(0.25, 0.0625, offsets=[0.125, -0.125])


def test_a_guarded_row_only_where_it_differs() -> None:
    """A guard that leaves the router as it is adds none, nor one that falls back to what the router does already."""
    for found, decisions in ((FALLBACK, [0, 0, 0, 0]), (OFFSETS, ROUTER)):
        lines = format_table(metrics(decisions, guarded=found)).splitlines()
        assert lines[2].startswith("router  ")
        assert lines[3].split() == ["router,", "guarded", "0.5000", "±", "0.2450", "0.5000", "0.0000", "0.0%", "100.0%"]
        assert lines[4] == lines[1]
        assert lines[5].startswith("oracle")
    constant = metrics([1, 1, 1, 1])
    same = guarded(0.0, 0.25, constant="expert 2", **{name: getattr(constant, name) for name in vars(SECOND)})
    for unchanged in (metrics(ROUTER, guarded=guarded(0.1156, 0.0382)), replace(constant, guarded=same)):
        text = format_table(unchanged)
        assert text.splitlines()[3] == text.splitlines()[1]
        assert "guarded" not in text


@pytest.mark.parametrize(
    ("found", "numbers"),
    [
        (guarded(0.1156, 0.0382), ["+0.1156", "0.0749"]),
        (guarded(-0.5, 0.25, constant="expert 2"), ["-0.5000", "0.4900"]),
        (guarded(0.0, 0.25, constant="expert 2"), ["+0.0000", "0.4900"]),
        (guarded(0.125, 0.25, constant="expert 2"), ["+0.1250", "0.4900"]),  # of a log, whose estimates are noisy
        (guarded(1.0, None, constant="expert 2"), ["+1.0000"]),
        (OFFSETS, ["+0.125", "-0.125", "+0.2500", "0.1225"]),
    ],
)
def test_the_guard_goes_by_validation(found: GuardedScore, numbers: list[str]) -> None:
    """The evidence of the test rows is the verdict's. A fallback names the number of validation rows; more of them are proposed
    only where the router gained there."""
    of = replace(found, test=GuardEvidence("expert 1", 9.0, 9.0))
    text = format_table(metrics(ROUTER, guarded=of, rows=RowCounts(40, 1234, 77)))
    line = line_of(text, "guard: ")
    assert re.findall(r"[+-]?\d\.\d+", line) == numbers
    assert "expert 2" in line
    assert ("1,234 rows" in line) == (found.constant is not None)
    assert ("--raw" in line) == found.changes_decisions
    assert ("validation_fraction" in text) == (found.constant is not None and found.validation.gain > 0)


@pytest.mark.parametrize("found", [guarded(0.5, 0.25), FALLBACK, OFFSETS])
def test_a_cross_validated_run_speaks_of_held_out_rows(found: GuardedScore) -> None:
    """The loss of its guarded row is another one, even if the guard of all rows leaves the router as it is."""
    text = format_table(metrics(ROUTER, guarded=found, evaluation="cross_validate"))
    assert text.splitlines()[3].startswith("router, guarded by fold  ")
    for start in ("guard: ", "verdict: "):
        assert "held-out rows" in line_of(text, start)
    assert not re.search("validation|test split", text)


def test_the_kept_epoch() -> None:
    for checkpoint in ("best", "best_loss"):
        early = format_table(metrics(ROUTER, checkpoint=checkpoint, epochs=4, kept_epoch=2))
        assert "2 of 4" in line_of(early, f"checkpoint={checkpoint}:")
    assert "checkpoint" not in format_table(metrics(ROUTER, checkpoint="best", epochs=4, kept_epoch=4))


def test_simple_routers_stand_beside_the_best_single_expert() -> None:
    plain = metrics(ROUTER)
    assert "nearest neighbours" not in format_table(plain)
    near, table = (replace(plain.baselines.best_single, deferral_loss=loss) for loss in (0.1875, 0.3125))
    more = replace(plain, baselines=replace(plain.baselines, nearest_neighbours=near, category_table=table))
    text = format_table(more)
    assert "0.1875" in line_of(text, "nearest neighbours")
    assert "0.3125" in line_of(text, "per-category table")


def test_a_collapse_is_a_warning() -> None:
    """It is left out where the guard sends everything to the same expert."""
    of = metrics([1, 1, 1, 1])
    line = line_of(format_table(of), "WARNING")
    assert "expert 2" in line
    assert re.findall(r"[\d.]+%", line) == ["100.0%", "50.0%"]
    assert ("method.rho" in line) == bool(of.rho)
    assert "WARNING" not in format_table(replace(of, guarded=guarded(0.0, 0.1, constant="expert 2")))
    other = guarded(-0.5, 0.1, best="expert 1", constant="expert 1")
    assert "WARNING" in format_table(replace(of, guarded=other))


def test_figure_shows_the_numbers() -> None:
    bars, grid = run_figure(metrics(ROUTER)).axes
    assert [round(bar.get_height()) for bar in bars.patches if isinstance(bar, Rectangle)] == [75, 25, 50, 50]
    assert [text.get_text() for text in grid.texts] == ["2", "0", "1", "1"]
    assert (bars.get_xlabel(), bars.get_ylabel()) == ("expert", "inputs sent to it (%)")
    assert bars.get_title() == "deferral loss 0.6250"
    legend = bars.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["router", "oracle"]
    # A row is the oracle's expert, a column the router's; the colour is the share of the row.
    assert [text.get_position() for text in grid.texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert (grid.get_xlabel(), grid.get_ylabel()) == ("router's expert", "oracle's expert")
    [colours] = grid.get_images()
    assert np.asarray(colours.get_array()).tolist() == [[1, 0], [0.5, 0.5]]
    assert [text.get_color() for text in grid.texts] == ["white", "black", "black", "black"]
    for axis in (bars.get_xticklabels(), grid.get_xticklabels(), grid.get_yticklabels()):
        assert [text.get_text() for text in axis] == ["1", "2"]
