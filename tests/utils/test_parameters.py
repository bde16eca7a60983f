"""Values that annotations allow, and errors for the others: the parameter, its value, the bound."""

import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2d.utils import parameters as kinds
from l2d.utils.errors import ParameterError

RULE = {"rule": "uniform", "total": 1.0, "offset": 5, "counts": "cheapest", "groups": None, "values": None}

ALLOWED: list[tuple[Any, list[Any]]] = [
    (kinds.Positive, [1, 0.5, 1e-300]),
    (kinds.NonNegative, [0, 0.0, 3]),
    (kinds.Share, [0, 1, 0.5]),
    (kinds.ProperShare, [0.5, 1e-9]),
    (kinds.ShareBelowOne, [0, 0.999]),
    (kinds.Count, [1, 10**9]),
    (kinds.NonNegativeInt, [0, 5]),
    (kinds.Seed, [0, 2**32 - 1]),
    (kinds.EvenWidth, [2, 64]),
    (kinds.Names, [["a"], ["a", "b"]]),
    (kinds.Letters, [["A", "B"], [1, 2, "C"]]),
    (kinds.Name, ["a", 2024]),
    (kinds.PriceNames, [{}, {"a": 1, "b": 0.0}]),
    (kinds.Factory, [dict]),
    (kinds.Rho, [1, 0.5, [1, 2.5], RULE, RULE | {"values": [1.0, 2]}, RULE | {"groups": [[1, 2], [3]]}]),
    (list[kinds.Positive] | None, [None, [], [1]]),
]


@pytest.mark.parametrize(("kind", "values"), ALLOWED)
def test_what_is_allowed(kind: Any, values: list[Any]) -> None:
    for value in values:
        kinds.check_value("key", value, kind)


REFUSED: list[tuple[Any, Any, str, str]] = [  # kind, value, how the line begins, what else is in it
    (kinds.Positive, 0, "key=0: ", "greater than 0"),
    (kinds.Positive, True, "key=True: ", "number"),
    (kinds.Positive, math.inf, "key=inf: ", "finite"),
    (kinds.NonNegative, -1e-9, "key=-1e-09: ", "equal to 0"),
    (kinds.Share, 1.5, "key=1.5: ", "equal to 1"),
    (kinds.Count, 1.5, "key=1.5: ", "integer"),
    (kinds.Seed, 2**32, "key=4294967296: ", "less than 4294967296"),
    (kinds.EvenWidth, 3, "key=3: ", "multiple of 2"),
    (kinds.Letters, ["A"], "key=['A']: ", "at least 2"),
    (kinds.Names, ["a", 3], "key[2]=3: ", "string"),
    (kinds.PriceNames, {"a": 1, "2024": -1}, "key.2024=-1: ", "equal to 0"),
    (kinds.Factory, 3, "key=3: ", "_target_"),
    (Literal["a", "b"], "c", "key=c: ", "'a' or 'b'"),
    (bool, 1, "key=1: ", "boolean"),
    (list[list[kinds.Count]] | None, [[1], [2, 0]], "key[2][2]=0: ", "equal to 1"),
    (kinds.Rho, 0, "key=0: ", "greater than 0"),
    (kinds.Rho, [1, -2], "key[2]=-2: ", "greater than 0"),
    (kinds.Rho, RULE | {"rule": "best"}, "key.rule=best: ", "'uniform' or 'theory'"),
    (kinds.Rho, RULE | {"size": 3}, "key.size: ", "unknown key"),
    (kinds.Rho, {key: value for key, value in RULE.items() if key != "total"}, "key.total: ", "missing"),
    (kinds.Rho, RULE | {"groups": [[1, 0]]}, "key.groups[1][2]=0: ", "equal to 1"),
]


@pytest.mark.parametrize(("kind", "value", "start", "words"), REFUSED)
def test_what_is_refused(kind: Any, value: Any, start: str, words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        kinds.check_value("key", value, kind)
    said = str(caught.value)
    assert said.startswith(start), said
    assert words in said.removeprefix(start)
    assert ".0" not in said.removeprefix(start)
    assert "\n" not in said
    assert caught.value.__cause__ is None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_bounds_are_those_of_their_names(value: float) -> None:
    def allows(kind: Any) -> bool:
        try:
            kinds.check_value("key", value, kind)
        except ParameterError:
            return False
        return True

    finite = math.isfinite(value)
    assert allows(kinds.Positive) == (finite and value > 0)
    assert allows(kinds.NonNegative) == (finite and value >= 0)
    assert allows(kinds.Share) == (0 <= value <= 1)
    assert allows(kinds.ProperShare) == (0 < value < 1)
    assert allows(kinds.ShareBelowOne) == (0 <= value < 1)
