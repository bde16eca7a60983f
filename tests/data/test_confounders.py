"""Columns that may have decided who was asked: groups, numbers and a test."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from l2d.data.confounders import encoded, groups_of, tells_who
from l2d.data.sheet import Sheet


def sheet(**columns: Any) -> Sheet:
    return Sheet(Path("log.csv"), {name: pa.chunked_array([pa.array(cells)]) for name, cells in columns.items()})


def test_groups() -> None:
    """Words, empty cells and rare words are groups; numbers with many values have ten."""
    words = ["a"] * 12 + ["b"] * 10 + [None] * 11 + ["c", "d"] * 2
    found = groups_of(sheet(x=words), "x")
    parts = ((0, 12), (12, 22), (22, 33), (33, 37), (0, 37))
    assert [len({*found[start:end]}) for start, end in parts] == [1, 1, 1, 1, 4]
    numbers = groups_of(sheet(x=list(range(100))), "x")
    assert np.bincount(numbers).tolist() == pytest.approx([10] * 10, abs=1)
    assert (np.diff(numbers) >= 0).all()
    assert len({*groups_of(sheet(x=[0, 1, 2] * 20), "x")}) == 3
    assert len({*groups_of(sheet(x=[f"id{k}" for k in range(50)]), "x")}) == 1


def test_encoded() -> None:
    """A 1 for the group of a row; a number with many values also as it is, with mean 0 and deviation 1."""
    found = encoded([sheet(t=["a", "b"] * 50, x=list(range(100)))], ["t", "x"]).numpy()
    assert found.shape == (100, 2 + 10 + 1)
    assert found[:2, :2].tolist() == [[1, 0], [0, 1]]
    assert (found[:, 2:12].sum(axis=1) == 1).all()
    assert (found[:, 12].mean(), found[:, 12].std()) == pytest.approx((0, 1))


def test_of_thousands_of_groups_the_largest_count() -> None:
    """Each of 600 words has ten rows, and some have one more."""
    words = [f"w{k:03}" for k in range(600)] * 10 + [f"w{k:03}" for k in range(100, 600)]
    found = encoded([sheet(t=words)], ["t"]).numpy()
    assert found.sum(axis=0).tolist() == [11] * 500
    assert found[np.array([int(word[1:]) < 100 for word in words])].sum() == 0


def test_a_column_that_tells_who_was_asked() -> None:
    """Of 60 rows 30 asked each expert. t tells which; u says nothing. Among the 59 other rows, 29 asked the same expert."""
    asked = np.eye(2, dtype=bool)[[0, 1] * 30]
    found = tells_who(sheet(t=["a", "b"] * 30, u=["a", "a", "b", "b"] * 15, one=["x"] * 60), ["t", "u", "one"], asked)
    assert found == {"t": pytest.approx((1.0, 29 / 59))}


@pytest.mark.parametrize("n", [300, pytest.param(3_000, marks=pytest.mark.full)])
def test_columns_of_chance_are_hardly_ever_named(n: int) -> None:
    """200 files of five columns each; one file in a hundred may name some."""
    rng = np.random.default_rng(0)
    named = 0
    for _ in range(200):
        asked = np.eye(3, dtype=bool)[rng.choice(3, n, p=[0.7, 0.2, 0.1])]
        columns = {f"x{k}": rng.integers(0, 2 + 3 * k, n) for k in range(4)}
        named += bool(tells_who(sheet(**columns, z=rng.normal(size=n)), [*columns, "z"], asked))
    assert named <= 7
