"""Plans on the answers of language models: figures worked out by hand."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
import torch

from l2d.data.sheet import Sheet, read_sheet

Bench = Callable[[str], ModuleType]


def test_what_plans_cost(bench: Bench) -> None:
    """Two experts and three plans. Expert 2 is best alone, at .3; the guarded router follows the plan on the first row and
    expert 1 on the second: .2 and .9. The oracle takes .1 and .2."""
    plans = bench("plans")
    costs = torch.tensor([[0.1, 0.4, 0.3, 0.3, 0.2], [0.9, 0.2, 0.4, 0.4, 0.5]], dtype=torch.float64)
    found = plans.outcomes(torch.stack([costs, costs / 2]), torch.tensor([4, 0]), 2)
    means = {name: (float(cost.mean()), float(price.mean())) for name, (cost, price) in found.items()}
    assert means["best single"] == pytest.approx((0.3, 0.15))
    assert means["plan, guarded"] == pytest.approx((0.55, 0.275))
    assert means["oracle"] == pytest.approx((0.15, 0.075))
    assert means["one choice"] == pytest.approx((0.35, 0.175))


def test_gains_are_paired_over_rows_and_folds(bench: Bench) -> None:
    """Two sets of folds of the same two rows. The plan is .2 cheaper than one choice on the first row and .4 on the second, in the
    mean of both sets: .3 ± .1. "Two agree" is the best simple plan."""
    plans = bench("plans")
    once = torch.tensor([0.5, 0.9], dtype=torch.float64)
    sets = []
    for less in ([0.1, 0.5], [0.3, 0.3]):
        plan = once - torch.tensor(less, dtype=torch.float64)
        costs = dict.fromkeys(plans.SIMPLE, once) | {"two agree": once - 0.2, "plan, guarded": plan}
        sets.append({name: torch.stack([cost, cost / 2]) for name, cost in costs.items()})
    rows = plans.rows_of(plans.mean_outcomes(sets), ("A", "answers", "mean"), {"small": 0.1, "large": 0.2})
    [row] = [row for row in rows if row["plan"] == "plan, guarded"]
    assert {name: float(row[name]) for name in ("cost", "less_once", "once_error", "less_simple", "simple_error")} == {
        "cost": pytest.approx(0.4),
        "less_once": pytest.approx(0.3),
        "once_error": pytest.approx(0.1),
        "less_simple": pytest.approx(0.1),
        "simple_error": pytest.approx(0.1),
    }
    assert (row["models"], "less_auto" in row, row["n"]) == ("small=0.1 large=0.2", False, "2")
    pools = [row | {"pool": str(number), "less_once": less} for number, less in enumerate(("0.3", "0.1", "-0.3"))]
    assert "| one choice | 2 of 3 | 1 of 3 | 1 of 3 | +0.0333 (-0.3000 to +0.3000) |" in plans.drawn_table(pools)


def test_pools_are_drawn_by_accuracy(bench: Bench, tmp_path: Path) -> None:
    """Model k of 8 is right on k of 100 questions, and costs .15·(k + 1)/8; too few answers of the ninth are known."""
    plans = bench("plans")
    columns = {f"correct_m{k}": pa.array([1] * k + [0] * (100 - k)) for k in range(8)}
    columns["correct_m9"] = pa.array([1] * 50 + [None] * 50)
    sheet = Sheet(Path("outcomes"), {"question": pa.array([str(row) for row in range(100)]), **columns})
    pools = plans.drawn_pools(sheet)
    assert len({tuple(pool) for pool in pools}) == plans.DRAWN
    assert all(len(pool) == plans.SIZE and "m9" not in pool for pool in pools)
    prices = {name: price for pool in pools for name, price in pool.items()}
    assert prices == {f"m{k}": pytest.approx(0.15 * (k + 1) / 8, abs=1e-4) for k in range(8)}
    more = {f"{kind}_m9": pa.array(range(100)) for kind in ("answer", "chars")}
    whole = Sheet(Path("outcomes"), {**sheet.columns, **more})
    written = read_sheet(plans.write_pool(whole, ["m9"], tmp_path / "pool" / "m9.parquet", plans.LENGTHS))
    assert (len(written), list(written.columns)) == (50, ["question", "correct_m9", "answer_m9", "length_m9"])
