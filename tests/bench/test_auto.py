"""The figures of bench/auto.py, by hand."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

Bench = Callable[[str], ModuleType]


def test_a_method_beside_auto(bench: Bench) -> None:
    """Both models cost 1/2 alone. The guarded router always asks the cheaper one: it gains 1/2, of which auto, which always asks
    the first, has nothing."""
    module, judged = bench("auto"), bench("benchmarks").Judged
    costs = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).double()
    first, right = torch.zeros(4).long(), torch.tensor([0, 1, 1, 0])
    row = module.figures(judged(costs, first, right, False, []), judged(costs, first, first, True, []))
    assert [float(row[key]) for key in ("single", "own", "gain", "more")] == [0.5, 0, 0.5, 0.5]
    assert float(row["error"]) == pytest.approx((1 / 3) ** 0.5 / 2, abs=1e-6)  # of 0, 1, 1, 0: s² = 1/3
    assert module.difference(row).split()[0] == "-0.5000"


def test_the_best_single_method_is_the_one_with_the_most_gain(bench: Bench) -> None:
    module = bench("auto")
    gains = {"auto": "0.02", "knn": "0.03", "mix": "0.01", module.HASHED: "0.05", module.PLAIN: "0.00"}
    about = {"what": "set", "n": "100", "single": "0.5", "error": "0.01", "more": "0.01", "more_error": "0.002"}
    about |= {"machine": "M", "versions": "V", "commit": "C"}
    rows = [
        {**about, "case": case, "method": name, "gain": gain} for case in module.TABLES for name, gain in gains.items()
    ]
    line = module.sets_table(rows).splitlines()[2]
    assert "`knn` +0.0300 ± 0.0196 | -0.0100 ± 0.0020" in line


def test_intervals_that_cover_are_counted(bench: Bench) -> None:
    """Gains of 0 and .03 lie within 1.96 × .02, one of −.05 does not."""
    about = {"n": "400", "own": "0", "error": "0.02", "command": "c", "machine": "M", "versions": "V", "commit": "C"}
    line = bench("auto").fair_line([{**about, "gain": gain} for gain in ("0", "0.03", "-0.05")])
    assert "2 of 3 intervals" in line
    assert "-0.0067 ± 0.0233" in line  # the mean; s = .0404, over √3
