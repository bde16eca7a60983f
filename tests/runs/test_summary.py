"""The table a reader sees, the warning, the picture."""

from typing import Any

import pytest
import torch
from matplotlib.patches import Rectangle

from l2d.core.metrics import evaluate
from l2d.runs.summary import figure, format_table


def metrics(decisions: list[int]) -> dict[str, Any]:
    costs = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64) + torch.tensor(
        [0.5, 0.0]
    )
    return evaluate(torch.tensor(decisions), costs, costs, torch.tensor([0.5, 0.0]))


def test_table() -> None:
    """Two rows to each expert: oracle .5·.5 = .25; expert 1 always: .5 + .5; expert 2 always: .5."""
    lines = format_table(metrics([0, 0, 1, 0])).splitlines()
    assert lines[0].split("  ")[0] == "test split"
    cells = {line[:26].strip(): line[26:].split() for line in lines if not line.startswith("-")}
    assert cells["router"] == ["0.6250", "0.2500", "0.3750", "75.0%", "25.0%"]
    assert cells["oracle"] == ["0.2500", "0.0000", "0.2500", "50.0%", "50.0%"]
    assert cells["best single expert"] == ["0.5000", "0.5000", "0.0000", "0.0%", "100.0%"]
    assert cells["random expert"] == ["0.7500", "0.5000", "0.2500", "50.0%", "50.0%"]
    assert cells["always the majority expert"] == ["1.0000", "0.5000", "0.5000", "100.0%", "0.0%"]
    assert "WARNING" not in format_table(metrics([0, 0, 1, 0]))


def test_categories_by_gain() -> None:
    """Eight of them: the three where the router gains most on the best single expert, the three where it loses most."""
    gains = {"a": 0.0, "b": 0.3, "c": -0.2, "d": 0.1, "e": 0.2, "f": -0.1, "g": -0.3, "h": 0.01}
    parts = {
        name: {"rows": 10, "deferral_loss": 0.5 - gain, "best_single": 0.5, "oracle": 0.1}
        for name, gain in gains.items()
    }
    lines = format_table(metrics([0, 0, 1, 0]) | {"by_category": parts}).splitlines()[-9:]
    assert [line.split()[0] for line in lines] == ["category", lines[1], "b", "e", "d", "(2", "f", "c", "g"]
    assert lines[2].split() == ["b", "10", "0.2000", "0.5000", "0.1000", "+0.3000"]
    few = {name: parts[name] for name in "abcdef"}
    assert "others" not in format_table(metrics([0, 0, 1, 0]) | {"by_category": few})
    assert "category" not in format_table(metrics([0, 0, 1, 0]) | {"by_category": {"a": parts["a"]}})


def test_extreme_prices_are_said() -> None:
    found = {"expert": "big", "prices": [0, 1.0, 0.3], "target": 0.95, "share_train": 0.94, "share_test": 0.967}
    assert (
        "cost=extreme: prices 0, 1, 0.3; the oracle gives big 94.0% of the training rows (aimed at 95%) and 96.7% of the test rows"
        in format_table(metrics([0, 0, 1, 0]) | {"extreme": found})
    )


def held(**changes: Any) -> dict[str, Any]:
    """Metrics of a router that has collapsed onto expert 1, and what a guard made of it."""
    by_validation = {"best_constant": "expert 2", "gain": -0.5, "standard_error": 0.25}
    of = {
        "deferral_loss": 0.5,
        "error_rate": 0.5,
        "mean_price": 0.0,
        "ratios": [0, 1],
        "constant": None,
        "offsets": None,
    }
    return metrics([0, 0, 0, 0]) | {"guarded": of | {"validation": by_validation} | changes}


def test_the_guard_is_said_where_it_changes_something() -> None:
    lines = format_table(held(constant="expert 2")).splitlines()
    assert lines[2].startswith("router  ")
    assert lines[3].split("  ")[0] == "router, guarded"
    assert lines[3].split()[2:] == ["0.5000", "0.5000", "0.0000", "0.0%", "100.0%"]
    assert lines[4] == lines[1]
    assert lines[5].startswith("oracle")
    assert lines[-1] == (
        "guard: on validation the router does not beat always expert 2 by more than the noise (-0.5000 ± 0.2500 per input, paired,"
        " one standard error): everything is sent to expert 2; l2d route --raw asks the router all the same"
    )
    shifted = format_table(held(offsets=[0.125, -0.125])).splitlines()
    assert shifted[3].startswith("router, guarded")
    assert shifted[-1] == (
        "guard: each expert's score is shifted, as validation asks for (expert 1 +0.125, expert 2 -0.125); there, the"
        " router is then cheaper than always expert 2 by -0.5000 ± 0.2500 per input; l2d route --raw leaves it out"
    )
    few = {"rows": {"validation": 40}}
    worse = format_table(held(constant="expert 2") | few).splitlines()[-1]
    assert "(-0.5000 ± 0.2500 per input over 40 rows, paired" in worse
    assert "validation_fraction" not in worse
    one_row = {"best_constant": "expert 2", "gain": 1.0, "standard_error": None}
    of_one = format_table(held(constant="expert 2", validation=one_row) | few)
    assert "(+1.0000 ± unknown per input" in of_one
    assert "validation_fraction" not in of_one


@pytest.mark.parametrize(
    ("gain", "error", "said"),
    [
        (0.1, 0.249, "2,500 rows on (validation_fraction)"),  # 400 · 2.49² = 2,480
        (0.0051, 0.0101, "1,600 rows on (validation_fraction)"),
        (0.1, 0.13, "680 rows on (validation_fraction)"),
        (0.1, 0.12, None),
        (0.1, 0.5, "10,000 rows on (more than there are)"),
        (0.1, 0.99, "40,000 rows on (more than there are)"),
        (0.1, 1.01, None),
        (0.2, 0.2, None),
        (-0.1, 0.25, None),
        (0.0, 0.0, None),
    ],
    ids=lambda value: str(value).split(" ")[0],
)
def test_from_how_many_rows_on_a_gain_would_tell(gain: float, error: float, said: str | None) -> None:
    unsure = {"best_constant": "expert 2", "gain": gain, "standard_error": error}
    of = held(constant="expert 2", validation=unsure) | {"rows": {"train": 3600, "validation": 400}}
    _, _, more = format_table(of).splitlines()[-1].partition(" all the same")
    assert more == (f"; a gain of that size is more than the noise from about {said}" if said else "")


def test_which_epoch_was_kept() -> None:
    of = metrics([0, 0, 0, 0]) | {"checkpoint": "best", "epochs": 4}
    assert "checkpoint=best: the weights of epoch 2 of 4" in format_table(of | {"kept_epoch": 2}).splitlines()
    assert "checkpoint" not in format_table(of | {"kept_epoch": 4})
    assert "checkpoint" not in format_table(of)  # a run of before it was written down


def test_a_guard_that_lets_the_router_through_adds_a_line_and_no_row() -> None:
    beaten = {"best_constant": "expert 2", "gain": 0.1156, "standard_error": 0.0382}
    lines = format_table(held(validation=beaten)).splitlines()
    assert lines[3] == lines[1]
    assert "guarded" not in "\n".join(lines)
    assert lines[-1] == (
        "guard: the router stands; on validation it beats always expert 2 (+0.1156 ± 0.0382 per input)"
    )
    assert "guard" not in format_table(metrics([0, 0, 0, 0]))  # a run of before there were guards


def test_collapse_is_said() -> None:
    text = format_table(metrics([1, 1, 1, 1]))
    assert (
        "WARNING: the router has collapsed: expert 2 gets 100.0% of the inputs, the oracle would give it 50.0%." in text
    )


def test_a_collapse_comes_with_what_the_method_has_to_try() -> None:
    """And is left out where that is nothing and the guard sends everything to the same expert."""
    has_both = {"decision": "argmax", "by_decision": {}, "method_buffers": {"rho": [1, 1]}}
    rho = "one ρ for all or a larger one (method.rho)"
    for found, tries in (
        (has_both, f"decision=posterior, {rho}, "),
        (has_both | {"decision": "posterior"}, f"{rho}, "),
        (has_both | {"method_buffers": {"weights": [1, 1]}}, "decision=posterior, "),
        ({"decision": "argmax", "method_buffers": {"rho": [1, 1]}}, f"{rho}, "),
        ({"decision": "argmax", "method_buffers": {}}, ""),
    ):
        assert f" Try {tries}more epochs, another method." in format_table(held() | found)
        said = "WARNING" in format_table(held(constant="expert 1") | found)
        assert said == bool(tries), found
        assert "WARNING" in format_table(held(constant="expert 2") | found)


def test_figure_shows_the_numbers() -> None:
    bars, grid = figure(metrics([0, 0, 1, 0])).axes
    assert [round(bar.get_height()) for bar in bars.patches if isinstance(bar, Rectangle)] == [75, 25, 50, 50]
    assert [text.get_text() for text in grid.texts] == ["2", "0", "1", "1"]
