"""The curve of promised errors."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import l2d
from l2d.commands.curve import draw_promises
from l2d.router.promises import promises
from l2d.router.router import Router
from l2d.utils.errors import L2DError


@pytest.fixture(scope="module")
def router() -> Router:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(800, 2))
    errors = rng.random((800, 3)) < 1 / (1 + np.exp(inputs[:, :1] + [-1.0, 1.0, 3.0]))
    found: Router = l2d.fit(inputs, errors=errors, prices=[0.01, 0.05, 0.3], experts=["a", "b", "c"], method="linear")
    return found


def test_smaller_errors_cost_more(router: Router) -> None:
    points = promises(router, 0.9)
    assert len(points) > 5
    for before, after in pairwise(points):
        assert after.max_error < before.max_error
        assert after.price >= before.price
    for one in points:
        assert one.error <= one.max_error
        assert one.low <= one.price <= one.high
    last = points[-1].max_error
    assert router.at(max_error=last, confidence=0.9).operating_point.spend == points[-1].price  # type: ignore[union-attr]


def test_few_rows_and_bad_experts() -> None:
    """The curve begins where a promise can be kept."""
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(300, 2))
    for wrong in ([0.06, 0.05], [0.9, 0.4]):
        errors = rng.random((300, 2)) < wrong
        found = l2d.fit(inputs, errors=errors, prices=[0.01, 0.9], method="linear")
        points = promises(found, 0.95)
        assert 0 < points[-1].max_error <= points[0].max_error < 1


def test_the_command(router: Router, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    router.save(folder)
    said = draw_promises([str(folder)], 0.9)
    assert str(folder / "promises.png") in said
    assert (folder / "promises.png").stat().st_size > 1000
    lines = (folder / "promises.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + len(promises(router, 0.9))
    with pytest.raises(L2DError, match="a=b"):
        draw_promises([str(folder), "a=b"], 0.9)
    with pytest.raises(L2DError, match="confidence"):
        draw_promises([str(folder)], 1.5)
