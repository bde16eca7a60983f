"""From a notebook's data to arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from l2d.data.agreement import Agreement
from l2d.data.arrays import Answers, Seen
from l2d.data.given import (
    make_arrays,
    names_of_experts,
    read_inputs,
    read_labels,
    read_outcomes,
    read_said,
    refuse_other_order,
)
from l2d.utils.errors import ParameterError

TEXTS = ["a b", "c", " a  b "]


def embed(texts: Sequence[str]) -> np.ndarray:
    return np.zeros((len(texts), 2), dtype=np.float32)


@pytest.mark.parametrize(
    ("X", "text", "name"), [(TEXTS, None, "text"), (pd.DataFrame({"prompt": TEXTS}), "prompt", "prompt")]
)
def test_equal_texts_stay_on_one_side(X: Any, text: str | None, name: str) -> None:
    inputs, seen, groups = read_inputs(X, text, embed)
    arrays: Any = make_arrays(inputs, seen, groups, ("a", "b"), Answers(torch.zeros(3, 2)), None)
    assert arrays.groups.tolist() == [0, 1, 0]
    assert arrays.seen == Seen(text=name)


def test_rows_without_any_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever comes with them goes with them. Here two experts were asked on one row, so perhaps none was on another."""
    errors = torch.tensor([[0.0, torch.nan], [torch.nan, torch.nan], [1.0, 0.0]], dtype=torch.float64)
    chances = torch.full((3, 2), 0.5, dtype=torch.float64)
    inputs, groups = torch.arange(3.0)[:, None], torch.tensor([5, 6, 7])
    answers = Answers(errors, prices=errors + 1, propensities=chances)
    arrays: Any = make_arrays(inputs, Seen(), groups, ("a", "b"), answers, ["x", "gone", "y"])
    assert arrays.train_inputs.tolist() == [[0], [2]]
    assert (arrays.train_labels.tolist(), arrays.num_classes) == ([0, 1], 2)
    assert arrays.groups.tolist() == [5, 7]
    assert arrays.panel.train.errors[1].tolist() == [1, 0]
    assert arrays.panel.train.prices[1].tolist() == [2, 1]
    assert arrays.panel.train.propensities is None
    said = capsys.readouterr().err.splitlines()
    assert ["left out 1 row " in said[0], "propensities" in said[1]] == [True, True]
    with pytest.raises(ParameterError, match=r"^labels: must be 3 values"):
        make_arrays(inputs, Seen(), groups, ("a", "b"), answers, ["x", "y"])


def test_outcomes_and_prices() -> None:
    costs = pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]})
    assert read_outcomes(costs, None, None, ["a", "b"])[0].tolist() == [[3, 1], [4, 2]]
    assert read_outcomes(costs, None, None, ["c", "d"])[0].tolist() == [[1, 3], [2, 4]]
    for prices in ([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]):
        names = ["a", "b"]
        found: Any = read_outcomes(None, np.zeros((2, 2)), prices, names)[1]
        assert found.tolist() == prices
        given = pd.DataFrame(prices, columns=names) if isinstance(prices[0], list) else pd.Series(prices, index=names)
        turned = given[["b", "a"]]
        again: Any = read_outcomes(None, np.zeros((2, 2)), turned, names)[1]
        assert torch.equal(again, found)
    with pytest.raises(ParameterError, match=r"^prices: .*\[2, 2\].*\[1, 2\]"):
        read_outcomes(None, np.zeros((2, 2)), [[1.0, 2.0]])


@pytest.mark.parametrize("wrong", [-0.5, np.nan, np.inf])
def test_one_wrong_amount_among_many_is_refused(wrong: float) -> None:
    amounts = np.ones((3, 2))
    amounts[1, 1] = wrong
    given: dict[str, Any] = {"costs": (amounts, None, None), "errors": (None, amounts, None)}
    for name, amounts_ in {**given, "prices": (None, np.ones((3, 2)), amounts)}.items():
        with pytest.raises(ParameterError, match=f"^{name}: .*finite"):
            read_outcomes(*amounts_)


@pytest.mark.parametrize("kind", ["boolean", "Int64", "Float64", "object"])
def test_gaps_in_types_of_pandas(kind: str) -> None:
    errors = pd.DataFrame({"a": [0, 1, None], "b": [1, 0, 1]}, dtype=kind)
    found, _ = read_outcomes(None, errors, None, gaps=True)
    assert found.nan_to_num(nan=-1).tolist() == [[0, 1], [1, 0], [-1, 1]]


def test_experts_keep_their_columns() -> None:
    """Other names are fine, but not that of another column."""
    costs = pd.DataFrame({"a": [0, 1], "b": [1, 0]})
    for names in (["a", "large"], ["b", "a"]):
        assert names_of_experts(costs, names, 2) == tuple(names)
    with pytest.raises(ParameterError, match=r"^experts=.*: a"):
        names_of_experts(costs, ["x", "a"], 2)


def test_rows_in_another_order_are_refused() -> None:
    X = pd.DataFrame({"x": range(4)})
    for errors in (X.iloc[::-1], X["x"].iloc[[1, 0, 3, 2]]):
        with pytest.raises(ParameterError, match=r"^errors: .*index"):
            refuse_other_order(X, errors=errors)
    with pytest.raises(ParameterError, match="errors"):
        refuse_other_order(X.iloc[::-1], errors=X)
    refuse_other_order(X, errors=X.set_axis(range(10, 14)), costs=None, labels=[1, 2, 3, 4])
    refuse_other_order(X.iloc[::-1], errors=X.iloc[::-1], prices=np.zeros(2))


def test_no_rows_and_labels_of_two_kinds() -> None:
    with pytest.raises(ParameterError, match=r"^errors: "):
        read_outcomes(None, np.zeros((0, 2)), None)
    with pytest.raises(ParameterError, match=r"^labels: "):
        read_labels(np.array([1, "a"], dtype=object), 2)
    with pytest.raises(ParameterError, match=r"^X: .*twin"):
        read_inputs(pd.DataFrame([[1, 2]], columns=["twin", "twin"]), None, None)


@pytest.mark.parametrize("labels", [[0, 1, float("nan")], ["a", None, "b"]])
def test_labels_that_are_not_known(labels: list[Any]) -> None:
    with pytest.raises(ParameterError, match=r"^labels: .*empty"):
        read_labels(labels, 3)


def test_labels_are_numbered_in_their_order() -> None:
    numbers, classes = read_labels(["dog", "cat", "dog", "cat", "owl"], 5)
    assert (numbers.tolist(), classes) == ([1, 0, 1, 0, 2], 3)
    numbers, classes = read_labels(None, 2)
    assert (numbers.tolist(), classes) == ([-1, -1], 0)


def test_what_inputs_may_be() -> None:
    flags = np.array([[True, False], [False, False]])
    for X in (flags, pd.DataFrame(flags, columns=["a", "b"])):
        inputs, _, _ = read_inputs(X, None, None)
        assert inputs.dtype == torch.float32
        assert inputs.tolist() == [[1, 0], [0, 0]]
    for shape in ((2, 4, 5), (2, 4, 5, 1), (2, 4, 5, 3)):
        inputs, _, _ = read_inputs(np.zeros(shape, np.uint8), None, None)
        assert inputs.shape == (2, 4, 5, shape[3] if len(shape) == 4 else 1)
    with pytest.raises(ParameterError, match=r"^X: .*uint8 \[2, 4, 5, 4\]"):
        read_inputs(np.zeros((2, 4, 5, 4), np.uint8), None, None)
    with pytest.raises(ParameterError, match=r"^X: .*float64 \[2, 4, 5\]$"):
        read_inputs(np.zeros((2, 4, 5)), None, None)


@pytest.mark.parametrize("X", ["text", b"text", {"text": 1}])
def test_a_single_input_is_refused(X: Any) -> None:
    with pytest.raises(ParameterError, match=r"^X: must be a list of inputs"):
        read_inputs(X, None, embed)


def test_the_columns_of_a_frame_come_before_its_text() -> None:
    frame = pd.DataFrame({"prompt": ["a", "b"], "y": [1, 2], "x": [3.5, 4]})
    inputs, seen, _ = read_inputs(frame, "prompt", lambda texts: np.array([[9.0]] * len(texts), dtype=np.float32))
    assert inputs.tolist() == [[1, 3.5, 9], [2, 4, 9]]
    assert seen == Seen(("y", "x"), "prompt")


@pytest.mark.parametrize("names", [["small", "small"], ["small", "Small"], ["small", " small "], ["small"]])
def test_names_that_nobody_can_tell_apart(names: list[str]) -> None:
    with pytest.raises(ParameterError, match=r"^experts=.*2 different names"):
        names_of_experts(np.zeros((3, 2)), names, 2)
    assert names_of_experts(pd.DataFrame({"a": [0], 1: [1]}), None, 2) == ("a", "1")


NAMES = ("a", "b")
ANSWERS = [["x", None], ["1,000", 1000]]


@pytest.mark.parametrize(
    "answers",
    [
        ANSWERS,
        np.array(ANSWERS, dtype=object),
        {"answers": ANSWERS},
        pd.DataFrame({"b": [None, 1000], "a": ["x", "1,000"]}),
    ],
)
def test_answers(answers: Any) -> None:
    """A DataFrame's columns are put in order; the length is that of the text."""
    said: Any = read_said(answers, (2, 2), NAMES)
    found = said.replies(np.ones((2, 2), dtype=bool), Agreement())
    assert found.kinds.tolist() == [[0, -1], [0, 0]]
    assert found.signals[..., 0].exp().round().tolist()[0] == [2, 1]
    assert found.signals[..., 1].isnan().all()


def test_signals_beside_answers() -> None:
    """Confidence may be one number per expert, and negative."""
    said: Any = read_said(
        {"answers": ANSWERS, "confidence": [-1, np.nan], "length": [[7, 8], [np.nan, 3]]}, (2, 2), NAMES
    )
    np.testing.assert_array_equal(said.confidence, [[-1, np.nan]] * 2)
    np.testing.assert_array_equal(said.length, [[7, 8], [np.nan, 3]])
    assert read_said(None, (2, 2), NAMES) is None


@pytest.mark.parametrize(
    ("answers", "start", "word"),
    [
        ([["x"], ["y"]], "answers", r"\[2, 2\]"),
        ([["x", "y"], ["z"]], "answers", r"\[2, 2\]"),
        ([["x", None], ["y", ""]], "answers", "b has none"),
        ({"answer": ANSWERS}, "answers=answer", "answers\\?"),
        ({"answers": ANSWERS, "confidence": [[1, np.inf], [1, 1]]}, "confidence", r"\[0, 1\]"),
        ({"answers": ANSWERS, "length": [[1, 1], [-1, 1]]}, "length", "negative"),
        ({"answers": ANSWERS, "confidence": [["high", "low"]] * 2}, "confidence", "numbers"),
    ],
)
def test_answers_that_are_refused(answers: Any, start: str, word: str) -> None:
    with pytest.raises(ParameterError, match=f"^{start}: .*{word}"):
        read_said(answers, (2, 2), NAMES)
