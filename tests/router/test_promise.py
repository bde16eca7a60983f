"""A router that keeps an error rate."""

from pathlib import Path

import numpy as np
import pytest

import l2d
from l2d.router.router import Router
from l2d.utils.errors import ParameterError

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(3_000, 1))
ERRORS = (RNG.random((3_000, 2)) < np.concatenate([np.full_like(X, 0.05), X], axis=1)).astype(float)


def test_at_a_higher_error_it_is_cheaper_and_saved(tmp_path: Path) -> None:
    router = l2d.fit(X, errors=ERRORS, prices=[0.3, 0.1], method="linear", options={"progress": False})
    strict, loose = (router.at(max_error=level) for level in (0.12, 0.25))
    queries = np.linspace(0, 1, 200)[:, None]
    shares = [np.mean([choice.expert == "expert 1" for choice in one.route(queries)]) for one in (strict, loose)]
    assert shares[0] > shares[1] + 0.1
    point = strict.operating_point
    assert point is not None
    assert (point.max_error, point.confidence) == (0.12, 0.95)
    assert point.error < 0.12
    strict.save(tmp_path / "strict")
    saved = Router.load(tmp_path / "strict")
    assert saved.route(queries) == strict.route(queries)
    assert saved.operating_point == point
    assert str(point) == str(saved.operating_point)
    again = saved.at(max_error=0.25).operating_point
    assert loose.operating_point is not None
    assert again is not None
    assert again.factor == loose.operating_point.factor
    assert saved.at(budget=0.2).operating_point == router.at(budget=0.2).operating_point
    dearer = router.at([0.3, 0.29], max_error=0.25).operating_point
    assert dearer is not None
    assert dearer.factor * 0.01 == pytest.approx(loose.operating_point.factor * 0.2, rel=1e-3)


def test_what_is_refused() -> None:
    router = l2d.fit(X, errors=ERRORS, prices=[0.3, 0.1], method="linear", options={"progress": False})
    for given in ({"budget": 0.2}, {"raw": True}):
        with pytest.raises(ParameterError, match=r"^max_error=0.1: cannot be combined"):
            router.at(max_error=0.1, **given)
    kept = router.at(max_error=0.12)
    with pytest.raises(ParameterError, match=r"^max_error: "):
        kept.at([0.1, 0.1])
    with pytest.raises(ParameterError, match=r"^max_error=0.001: cannot be kept"):
        router.at(max_error=0.001)


def test_equal_texts_are_kept_together() -> None:
    texts = [f"sum {k % 40} of {k % 7}" for k in range(400)]
    rows = l2d.fit(texts, errors=ERRORS[:400], prices=[0.3, 0.1], method="linear", options={"progress": False}).held_out
    assert rows is not None
    assert rows.groups is not None
    assert 1 < len(rows.groups.unique()) < len(rows.errors)
