import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from l2d.core import ridge
from l2d.core.prices import PriceUnit
from l2d.core.ridge import channel_statistics
from l2d.data import arrays
from l2d.data.arrays import Answers, Arrays, Panel, Seen
from l2d.utils.plain import from_plain

NAN = float("nan")
Rows = list[list[float]]


@given(st.data(), st.integers(1, 40), st.integers(1, 7))
def test_rows_move_to_the_front(data: st.DataObject, n: int, at_a_time: int) -> None:
    """In any order, in the memory where they are, whatever the shape of a row."""
    order = torch.tensor(data.draw(st.permutations(range(n))))[: data.draw(st.integers(0, n))]
    inputs = torch.arange(6 * n, dtype=torch.int32).reshape(data.draw(st.sampled_from([(n, 6), (n, 3, 2)])))
    expected, before = inputs[order.long()], arrays.COLUMNS
    arrays.COLUMNS = at_a_time
    try:
        found = arrays.moved_to_the_front(inputs, order.long())
    finally:
        arrays.COLUMNS = before
    assert torch.equal(found, expected)
    assert not len(order) or found.data_ptr() == inputs.data_ptr()


def test_all_that_belongs_to_a_row_goes_to_its_side() -> None:
    """Rows 0, 2 and 3 are for training, rows 1 and 4 for the test."""
    five, labels, unit = torch.arange(5.0).double()[:, None], torch.tensor([5, 6, 7, 8, 9]), PriceUnit(2.0)
    answers = Answers(five + torch.tensor([10, 20]), (five + 30).long(), five + 40)
    whole = Arrays(
        five.float(),
        labels,
        five[:0],
        labels[:0],
        10,
        panel=Panel(("a", "b"), answers, answers[:0], unit=unit),
        groups=torch.tensor([0, 1, 2, 0, 1]),
        train_categories=tuple("ABCDE"),
        train_ids=np.array([*"pqrst"]),
        texts=(list("vwxyz"), []),
        seen=Seen(("x",)),
    )
    found: Any = arrays.divided(whole, torch.tensor([0, 2, 3]), torch.tensor([1, 4]), torch.tensor([1]))
    assert (found.train_inputs.tolist(), found.test_inputs.tolist()) == ([[0], [2], [3]], [[1], [4]])
    assert (found.train_labels.tolist(), found.test_labels.tolist()) == ([5, 7, 8], [6, 9])
    assert (found.panel.names, found.panel.unit) == (("a", "b"), unit)
    for part, rows in ((found.panel.train, [0, 2, 3]), (found.panel.test, [1, 4])):
        assert part.errors.tolist() == [[10 + row, 20 + row] for row in rows]
        assert part.predictions.tolist() == [[30 + row] for row in rows]
        assert part.prices.tolist() == [[40 + row] for row in rows]
    assert (found.groups.tolist(), found.test_groups.tolist()) == ([0, 2, 0], [1, 1])
    assert (found.train_ids.tolist(), found.ids.tolist()) == (["p", "r", "s"], ["q", "t"])
    assert (found.train_categories, found.categories) == (("A", "C", "D"), ("B", "E"))
    assert found.texts == (["v", "x", "y"], ["w", "z"])
    assert found.validation.tolist() == [1]
    assert (found.num_classes, found.seen) == (10, Seen(("x",)))
    assert arrays.taken(np.array(["p", "q"]), torch.tensor([1])).tolist() == ["q"]  # one row is a row too


def test_statistics_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images of 1 × 2 pixels: red is 0, 2, 4, 6, green always 5."""
    images = torch.tensor([[[[0, 5], [2, 5]]], [[[4, 5], [6, 5]]]], dtype=torch.uint8)
    mean, std = channel_statistics(images, torch.arange(2))
    assert mean == [3, 5]
    assert std == [pytest.approx(5**0.5), 1e-6]
    # Six rows of two values, four values at most: rows 0 and 3 of the rows that are given.
    source = torch.tensor([[9.0, 9], [0, 5], [7, 7], [7, 7], [2, 5], [7, 7], [7, 7]])
    monkeypatch.setattr(ridge, "SAMPLED", 4)
    assert channel_statistics(source, torch.arange(1, 7)) == ([1, 5], [1, pytest.approx(1e-6)])


ALONE, BOTH = [[0, NAN], [NAN, 1]], [[0, NAN], [0, 1]]  # outcomes of one expert per row, and of both on one
# Propensities of every expert, and of those that were asked.
EVERY, OWN = [[0.2, 0.3], [0.3, 0.1]], [[0.2, NAN], [NAN, 0.1]]


@pytest.mark.parametrize(
    ("errors", "chances", "others", "each_asked", "expected", "said"),
    [
        (ALONE, EVERY, True, False, [[0.4, 0.6], [0.75, 0.25]], ""),  # given that one of the two was asked
        (ALONE, EVERY, False, False, [[0.4, 0.6], [0.75, 0.25]], ""),
        (ALONE, OWN, False, False, OWN, ""),
        (ALONE, OWN, True, True, None, "left out"),
        (BOTH, EVERY, False, False, None, "without an outcome"),
        (BOTH, EVERY, False, True, EVERY, ""),
        (BOTH, EVERY, True, True, None, "left out"),
        (ALONE, None, True, False, None, ""),
    ],
)
def test_propensities_among_rows_that_are_kept(
    errors: Rows, chances: Rows | None, others: bool, each_asked: bool, expected: Rows | None, said: str
) -> None:
    """By hand: p/(p + q), as they are, or not known."""
    given_ones = None if chances is None else torch.tensor(chances).double()
    answers = Answers(torch.tensor(errors).double(), propensities=given_ones)
    found, problem = arrays.with_kept_propensities(answers, others=others, each_asked=each_asked)
    assert said in problem
    assert bool(problem) is bool(said)
    assert (found.propensities is None) is (expected is None)
    if expected is not None:
        wanted = torch.tensor(expected).double()
        torch.testing.assert_close(found.propensities, wanted, equal_nan=True, atol=1e-6, rtol=0)


def test_inputs_are_read_back_from_json() -> None:
    """Also those of a router that was saved before columns of words could be features."""
    seen = Seen(("x", "tenant"), "text", categories={"tenant": ("a", "b")})
    content = json.loads(json.dumps(asdict(seen)))
    assert from_plain(Seen, content) == seen
    del content["categories"]
    assert from_plain(Seen, content) == Seen(("x", "tenant"), "text")
