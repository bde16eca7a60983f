"""From a notebook's data to arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from l2d.data.arrays import Answers, Seen
from l2d.data.given import make_arrays, read_inputs, read_outcomes
from l2d.utils.errors import ParameterError

TEXTS = ["a b", "c", " a  b "]


def embed(texts: Sequence[str]) -> np.ndarray:
    return np.zeros((len(texts), 2), dtype=np.float32)


@pytest.mark.parametrize(
    ("X", "text", "name"), [(TEXTS, None, "text"), (pd.DataFrame({"prompt": TEXTS}), "prompt", "prompt")]
)
def test_equal_texts_stay_on_one_side(X: Any, text: str | None, name: str) -> None:
    inputs, seen, groups = read_inputs(X, text, embed)
    arrays = make_arrays(inputs, seen, groups, ("a", "b"), Answers(torch.zeros(3, 2)), None)
    assert arrays.groups is not None
    assert arrays.groups.tolist() == [0, 1, 0]
    assert arrays.seen == Seen(text=name)


def test_a_frame_of_costs_is_put_into_the_experts_order() -> None:
    costs = pd.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]})
    assert read_outcomes(costs, None, None, ["a", "b"])[0].tolist() == [[3, 1], [4, 2]]
    assert read_outcomes(costs, None, None, ["c", "d"])[0].tolist() == [[1, 3], [2, 4]]


def test_prices_of_experts_or_of_rows() -> None:
    for prices in ([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]]):
        _, found = read_outcomes(None, np.zeros((2, 2)), prices)
        assert found is not None
        assert found.tolist() == prices
    with pytest.raises(ParameterError, match=r"^prices: must be \[2, 2\] or \[2\], not \[1, 2\]"):
        read_outcomes(None, np.zeros((2, 2)), [[1.0, 2.0]])
