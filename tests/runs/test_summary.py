"""The table a reader sees, what is said beneath it, the picture."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle
from tests.metrics_example import example_metrics

from l2d.core.metrics import routing_metrics
from l2d.core.results import (
    CategoryScore,
    Estimate,
    ExpertAlone,
    ExtremeShares,
    GuardedScore,
    GuardEvidence,
    LoggedOutcomes,
    OffPolicyValue,
    RowCounts,
    RunMetrics,
    Score,
)
from l2d.runs.summary import format_line, format_table, run_figure
from l2d.utils.text import Unit

ROUTER = [0, 0, 1, 0]
CATEGORY = CategoryScore(rows=10, deferral_loss=0.3, best_single=0.5, oracle=0.1)
HALF = Estimate(0.5, 0.1)
VALUE = OffPolicyValue(direct=HALF, snips=None, doubly_robust=HALF)
LOG = LoggedOutcomes([0.5, 0.5], "given", policy=HALF, router=VALUE, guarded=VALUE, best_single=VALUE)
# What always expert 2, the best single expert, comes to on the test rows below.
SECOND = Score(deferral_loss=0.5, error_rate=0.5, mean_price=0.0, ratios=[0.0, 1.0], standard_error=0.125)


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
    experts = [ExpertAlone(f"m{k}", 0.5 - 0.03125 * k, 0.25, 0.0625) for k in range(p)]
    lines = format_table(example_metrics(p=p, experts=experts)).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("best single expert"))
    found = [line.split() for line in lines[start + 1 :] if line.startswith("always m")]
    assert [cells[1] for cells in found] == [f"m{k}" for k in shown]
    first = shown[0]
    loss, error = f"{0.75 - 0.03125 * first:.4f}", f"{0.5 - 0.03125 * first:.4f}"
    assert found[0][2:7] == [loss, "±", "0.1225", error, "0.2500"]
    assert found[0][7:] == ["100.0%" if k == first else "0.0%" for k in range(p)]
    told = [line for line in lines if line.startswith("not shown: ")]
    assert told == ([] if hidden is None else [f"not shown: {hidden} experts that would cost more alone"])


def test_in_dollars() -> None:
    """A wrong answer costs 2 cents, so all losses and prices are that times the loss; rates and shares stay."""
    found = metrics(ROUTER, guarded=guarded(0.25, 0.0625), by_category={"a": CATEGORY, "b": CATEGORY}, log=LOG)
    text = format_table(found, Unit(0.02))
    cells = {line[:26].strip(): line[26:].split() for line in text.splitlines()}
    assert cells["router"] == ["$0.012500", "±", "$0.012331", "0.2500", "$0.007500", "75.0%", "25.0%"]
    assert line_of(text, "losses and prices are dollars a query").endswith(
        "a wrong answer costs $0.02 (cost.error_price)"
    )
    assert "+$0.005000 ± $0.002450 (95 %) per input" in line_of(text, "guard: ")
    assert "it costs $0.005000 ± $0.002450 (95 %) less per input" in line_of(text, "verdict: ")
    assert "doubly robust $0.010000 ± $0.003920; SNIPS unknown" in line_of(text, "value of the router, ± 95 %: ")
    assert line_of(text, "the log's own choices cost ").endswith("cost $0.010000 ± $0.003920 (95 %)")
    assert line_of(text, "a  ").split() == ["a", "10", "$0.006000", "$0.010000", "$0.002000", "+$0.004000"]
    assert format_line(found, Unit(0.02)).startswith(
        "deferral loss $0.012500 (best single expert $0.010000, oracle $0.0050"
    )
    assert format_table(found).count("$") == 0


def test_latency_is_not_called_money() -> None:
    """A price that contains latency says so above its column and in a line of its own."""
    plain, late = format_table(metrics(ROUTER)), format_table(metrics(ROUTER), Unit(0.02, 0.001))
    assert "  mean price  " in plain
    assert "latency" not in plain
    assert "  mean price + latency  " in late
    assert line_of(late, "prices contain latency") == (
        "prices contain latency: a second costs $0.001 (cost.latency_price)"
    )
    assert "a second costs 0.5 (" in format_table(metrics(ROUTER), Unit(None, 0.5))
    for cost, note in (({}, False), ({"latency_price": 0.0}, False), ({"latency_price": 0.5}, True)):
        assert bool(Unit.of({"cost": cost}).latency_note) == note


@pytest.mark.parametrize(
    ("price", "told"), [(0.02, "-$0.010000"), (2, "-$1.0000"), (50, "-$25.000"), (40000, "-$20000.00")]
)
def test_digits_of_dollars(price: float, told: str) -> None:
    assert Unit(price).told(-0.5) == told
    assert Unit(price).told(0.5, "+") == told.replace("-", "+")


def test_line() -> None:
    alone = "(best single expert 0.5000, oracle 0.2500)"
    assert format_line(metrics(ROUTER)) == f"deferral loss 0.6250 {alone}"
    found = format_line(metrics(ROUTER, guarded=guarded(-0.5, 0.25, constant="expert 2")))
    assert found == f"deferral loss 0.6250, guarded 0.5000 {alone}"


def test_categories_by_gain() -> None:
    """Eight of them: the three where the router gains most on the best single expert, the three where it loses most."""
    gains = {"a": 0.0, "b": 0.3, "c": -0.2, "d": 0.1, "e": 0.2, "f": -0.1, "g": -0.3, "h": 0.01}
    parts = {
        name: CategoryScore(rows=10, deferral_loss=0.5 - gain, best_single=0.5, oracle=0.1)
        for name, gain in gains.items()
    }
    lines = format_table(metrics(ROUTER, by_category=parts)).splitlines()[-9:]
    assert [line.split()[0] for line in lines] == ["category", lines[1], "b", "e", "d", "(2", "f", "c", "g"]
    assert lines[2].split() == ["b", "10", "0.2000", "0.5000", "0.1000", "+0.3000"]
    assert "others" not in format_table(metrics(ROUTER, by_category={name: parts[name] for name in "abcdef"}))
    assert "category" not in format_table(metrics(ROUTER, by_category={"a": parts["a"]}))
    two = format_table(metrics(ROUTER, by_category={name: parts[name] for name in "ab"})).splitlines()[-4:]
    assert two[0].split() == ["category", "rows", "router", "best", "single", "expert", "oracle", "gain"]
    assert [line.split()[0] for line in two[2:]] == ["b", "a"]


def test_extreme_prices_are_said() -> None:
    found = ExtremeShares("big", [0.0, 1.0, 0.3], target=0.95, share_train=0.94, share_test=0.967)
    line = line_of(format_table(metrics(ROUTER, extreme=found)), "cost=extreme: prices 0, 1, 0.3;")
    assert re.findall(r"[\d.]+%", line) == ["94.0%", "95%", "96.7%"]
    assert "big" in line


def test_a_fallback_is_shown_and_said() -> None:
    """The router costs .5 more than always expert 2, so the guard falls back to that."""
    text = format_table(metrics([0, 0, 0, 0], guarded=guarded(-0.5, 0.25, constant="expert 2")))
    lines = text.splitlines()
    assert lines[2].startswith("router  ")
    assert lines[3].split() == ["router,", "guarded", "0.5000", "±", "0.2450", "0.5000", "0.0000", "0.0%", "100.0%"]
    assert lines[4] == lines[1]
    assert lines[5].startswith("oracle")
    line = line_of(text, "guard: ")
    for said in ("everything to expert 2", "costs 0.5000 ± 0.4900 (95 %) more", "10 rows", "--raw"):
        assert said in line
    assert "gain" not in line
    assert "validation_fraction" not in line  # more rows would not make it better
    same = line_of(format_table(metrics([0, 0, 0, 0], guarded=guarded(0.0, 0.25, constant="expert 2"))), "guard: ")
    assert "the router costs no less (10 rows)" in same


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
    assert line.startswith(f"verdict: {verdict}")
    assert re.findall(r"\d+%|\d\.\d+(?: ± \d\.\d+)?", line) == numbers
    assert line.count("(95 %)") == (error is not None and gain != 0)
    assert {*re.findall(r"less|more|same|chance|oracle", line)} == words
    assert {*re.findall(r"expert \d", line)} == {"expert 2"}
    assert "test" in line


def test_the_verdict_of_a_cross_validated_run_is_on_the_router_that_is_used() -> None:
    """Its guard gains .125, and those of the folds lose. They cost .5 with the router; expert 2 alone costs .125 less: .375."""
    found = guarded(0.125, 0.0312, test=GuardEvidence("expert 2", -0.125, 0.1))
    line = line_of(format_table(metrics(ROUTER, guarded=found, evaluation="cross_validate")), "verdict: ")
    assert line.startswith("verdict: routing pays. On held-out rows it costs 0.1250 ± 0.0612 (95 %) less per input")
    assert "33% less" in line


@pytest.mark.parametrize(("rows", "said"), [(1, "1 test row,"), (29, "29 test rows,"), (30, None)])
def test_a_verdict_needs_thirty_rows(rows: int, said: str | None) -> None:
    for found in (guarded(1.0, 0.1), guarded(-0.5, 0.25, constant="expert 2")):
        line = line_of(format_table(metrics(ROUTER, guarded=found, rows=RowCounts(40, 10, rows))), "verdict: ")
        assert line.startswith("verdict: unclear. Too few rows") == (said is not None)
        assert said is None or said in line


def test_the_verdict_of_a_fallback() -> None:
    text = format_table(metrics([0, 0, 0, 0], guarded=guarded(-0.5, 0.25, constant="expert 2")))
    assert line_of(text, "verdict: ").startswith("verdict: use expert 2 alone.")


def test_of_a_single_row_no_error_is_known() -> None:
    found = guarded(1.0, None, constant="expert 2")
    line = line_of(format_table(metrics([0, 0, 0, 0], guarded=found, rows=RowCounts(4, 1, 30))), "guard: ")
    assert "too few rows to tell (1 row)" in line
    assert "validation_fraction" not in line


def test_offsets_are_shown_and_said() -> None:
    text = format_table(metrics(ROUTER, guarded=guarded(0.25, 0.0625, offsets=[0.125, -0.125])))
    assert text.splitlines()[3].startswith("router, guarded")
    line = line_of(text, "guard: ")
    for said in ("expert 1 +0.125, expert 2 -0.125", "over expert 2 alone", "+0.2500 ± 0.1225 (95 %)", "--raw"):
        assert said in line


@pytest.mark.parametrize("changes", [{}, {"constant": "expert 2"}, {"offsets": [0.125, -0.125]}])
def test_the_guard_goes_by_validation(changes: dict[str, Any]) -> None:
    """What the test rows say is the verdict's."""
    other = GuardEvidence("expert 1", 9.0, 9.0)
    of = metrics(ROUTER, guarded=guarded(-0.25, 0.5, test=other, **changes), rows=RowCounts(40, 1234, 77))
    line = line_of(format_table(of), "guard: ")
    assert "0.2500 ± 0.9800 (95 %)" in line
    assert "expert 2" in line
    assert ("(1,234 rows)" in line) == ("constant" in changes)


def test_a_guard_that_leaves_the_router_adds_a_line_and_no_row() -> None:
    text = format_table(metrics(ROUTER, guarded=guarded(0.1156, 0.0382)))
    assert text.splitlines()[3] == text.splitlines()[1]
    assert "guarded" not in text
    line = line_of(text, "guard: ")
    assert "over expert 2 alone" in line
    assert "+0.1156 ± 0.0749 (95 %)" in line
    assert "fold" not in line


def test_why_everything_goes_to_one_expert() -> None:
    for gain, said in (
        (-0.5, "the router costs 0.5000 ± 0.4900 (95 %) more per input (10 rows)"),
        (0.0, "costs no less (10 rows)"),
        (0.125, "the gain of the router, +0.1250 ± 0.4900 (95 %) per input, may be chance (10 rows)"),  # of a log
    ):
        found = guarded(gain, 0.25, constant="expert 2")
        text = format_table(metrics([0, 0, 0, 0], guarded=found, rows=RowCounts(4, 10, 30)))
        assert said in line_of(text, "guard: ")
        assert line_of(text, "guard: ").endswith("--raw asks the router instead")
        offset = format_table(
            metrics([0, 0, 0, 0], guarded=replace(found, offsets=[0.1, -0.1]), rows=RowCounts(4, 10, 30))
        )
        assert said.replace("the router", "the router with offsets") in line_of(offset, "guard: ")
        assert line_of(offset, "guard: ").endswith("--raw asks the router instead, without offsets")
        assert ("validation_fraction" in line_of(text, "verdict: ")) == (gain > 0)


def test_a_cross_validated_run_speaks_of_held_out_rows() -> None:
    for found in (
        guarded(0.5, 0.25),
        guarded(-0.5, 0.25, constant="expert 2"),
        guarded(0.5, 0.25, offsets=[0.1, -0.1]),
    ):
        text = format_table(metrics(ROUTER, guarded=found, evaluation="cross_validate"))
        assert text.startswith("every row, held out once")
        # Its loss is another one, though the guard of all rows may leave the router as it is.
        by_fold = not found.changes_decisions
        name = "router, guarded by fold" if by_fold else "router, guarded"
        assert text.splitlines()[3].startswith(f"{name}  ")
        said = f"the row “{name}” shows guards that were fitted to four folds, on the fifth"
        assert (said in line_of(text, "guard: ")) == (found.constant is None)
        assert "on held-out rows" in line_of(text, "guard: ")
        assert "held-out rows" in line_of(text, "verdict: ")
        assert not re.search("validation|test split", text)


def test_a_guarded_row_only_where_it_differs() -> None:
    """The router sends everything to expert 2 already, which the guard falls back to."""
    found = metrics([1, 1, 1, 1])
    same = guarded(0.0, 0.25, constant="expert 2", **{name: getattr(found, name) for name in vars(SECOND)})
    text = format_table(replace(found, guarded=same))
    assert "guarded" not in text
    assert text.splitlines()[3] == text.splitlines()[1]
    assert "everything to expert 2" in line_of(text, "guard: ")


def test_simple_routers_stand_beside_the_best_single_expert() -> None:
    plain = metrics(ROUTER)
    assert "nearest neighbours" not in format_table(plain)
    near, table = (replace(plain.baselines.best_single, deferral_loss=loss) for loss in (0.1875, 0.3125))
    more = replace(plain, baselines=replace(plain.baselines, nearest_neighbours=near, category_table=table))
    text = format_table(more)
    assert "0.1875" in line_of(text, "nearest neighbours")
    assert "0.3125" in line_of(text, "per-category table")


def test_which_epoch_was_kept() -> None:
    early = format_table(metrics(ROUTER, checkpoint="best", epochs=4, kept_epoch=2))
    assert "epoch 2 of 4" in line_of(early, "checkpoint=best:")
    by_loss = format_table(metrics(ROUTER, checkpoint="best_loss", epochs=4, kept_epoch=2))
    assert "epoch 2 of 4" in line_of(by_loss, "checkpoint=best_loss:")
    assert "checkpoint" not in format_table(metrics(ROUTER, checkpoint="best", epochs=4, kept_epoch=4))


def test_collapse_is_said() -> None:
    line = line_of(format_table(metrics([1, 1, 1, 1])), "WARNING")
    assert "expert 2" in line
    assert re.findall(r"[\d.]+%", line) == ["100.0%", "50.0%"]


@pytest.mark.parametrize(
    ("decision", "posterior", "buffers", "tries"),
    [
        ("argmax", True, {"rho": [1, 1]}, ["decision=posterior", "method.rho"]),
        ("posterior", True, {"rho": [1, 1]}, ["method.rho"]),
        ("argmax", True, {"weights": [1, 1]}, ["decision=posterior"]),
        ("argmax", False, {"rho": [1, 1]}, ["method.rho"]),
        ("argmax", False, {}, []),
    ],
)
def test_a_collapse_comes_with_what_the_method_has_to_try(
    decision: str, posterior: bool, buffers: dict[str, Any], tries: list[str]
) -> None:
    """The warning is left out where there is nothing and the guard sends everything to the same expert."""
    known = replace(example_metrics().capabilities, has_posterior=posterior)
    of = metrics([1, 1, 1, 1], decision=decision, capabilities=known, method_buffers=buffers)
    line = line_of(format_table(of), "WARNING")
    assert [word for word in ("decision=posterior", "method.rho") if word in line] == tries
    assert "more epochs, another method" in line
    same = format_table(replace(of, guarded=guarded(0.0, 0.1, constant="expert 2")))
    assert ("WARNING" in same) == bool(tries)
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
