"""What annotations allow, and what is said of the rest: the parameter, its value, the bound."""

import math
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, MinLen
from hypothesis import given
from hypothesis import strategies as st

from l2d.utils.errors import ParameterError
from l2d.utils.parameters import (
    Count,
    EvenWidth,
    Factory,
    Letters,
    Name,
    Names,
    NonNegative,
    NonNegativeInt,
    Positive,
    PriceNames,
    ProperShare,
    Rho,
    Seed,
    Share,
    ShareBelowOne,
    check_value,
)

RULE = {"rule": "uniform", "total": 1.0, "offset": 5, "counts": "cheapest", "groups": None, "values": None}

ALLOWED: list[tuple[Any, list[Any]]] = [
    (Positive, [1, 0.5, 1e-300]),
    (NonNegative, [0, 0.0, 3]),
    (Share, [0, 1, 0.5]),
    (ProperShare, [0.5, 1e-9]),
    (ShareBelowOne, [0, 0.999]),
    (Count, [1, 10**9]),
    (NonNegativeInt, [0, 5]),
    (Seed, [0, 2**32 - 1]),
    (EvenWidth, [2, 64]),
    (Names, [["a"], ["a", "b"]]),
    (Letters, [["A", "B"], [1, 2, "C"]]),
    (Name, ["a", 2024]),
    (PriceNames, [{}, {"a": 1, "b": 0.0}]),
    (Factory, [dict]),
    (Rho, [1, 0.5, [1, 2.5], RULE, RULE | {"values": [1.0, 2]}, RULE | {"groups": [[1, 2], [3]]}]),
    (Literal["a", "b"], ["a"]),
    (str | None, ["a", None]),
    (bool, [True, False]),
    (Any, [object(), None]),
    (list[Positive] | None, [None, [], [1]]),
]


@pytest.mark.parametrize(("kind", "values"), ALLOWED)
def test_what_is_allowed(kind: Any, values: list[Any]) -> None:
    for value in values:
        check_value("key", value, kind)


REFUSED: list[tuple[Any, Any, str, str]] = [  # kind, value, how the line begins, what else is in it
    (Positive, 0, "key=0: ", "greater than 0"),
    (Positive, -0.5, "key=-0.5: ", "greater than 0"),
    (Positive, "1", "key=1: ", "number"),
    (Positive, True, "key=True: ", "number"),
    (Positive, None, "key=None: ", "number"),
    (Positive, math.inf, "key=inf: ", "finite"),
    (Positive, math.nan, "key=nan: ", "finite"),
    (NonNegative, -1e-9, "key=-1e-09: ", "at least 0"),
    (Share, 1.5, "key=1.5: ", "at most 1"),
    (ProperShare, 1, "key=1: ", "less than 1"),
    (ProperShare, 0, "key=0: ", "greater than 0"),
    (ShareBelowOne, 1.0, "key=1.0: ", "less than 1"),
    (Count, 0, "key=0: ", "at least 1"),
    (Count, 1.5, "key=1.5: ", "whole number"),
    (Count, 2.0, "key=2.0: ", "whole number"),
    (Count, "3", "key=3: ", "whole number"),
    (Count, True, "key=True: ", "whole number"),
    (Seed, 2**32, "key=4294967296: ", "less than 4294967296"),
    (Seed, -1, "key=-1: ", "at least 0"),
    (EvenWidth, 3, "key=3: ", "multiple of 2"),
    (EvenWidth, 0, "key=0: ", "at least 2"),
    (Names, [], "key=[]: ", "at least 1"),
    (Letters, ["A"], "key=['A']: ", "at least 2"),
    (NonNegativeInt, -1, "key=-1: ", "at least 0"),
    (Names, ["a", 3], "key[2]=3: ", "string"),
    (Names, "a", "key=a: ", "list"),
    (PriceNames, {"a": 1, "2024": -1}, "key.2024=-1: ", "at least 0"),
    (PriceNames, [1], "key=[1]: ", "mapping"),
    (Factory, 3, "key=3: ", "_target_"),
    (Literal["a", "b"], "c", "key=c: ", "'a' or 'b'"),
    (bool, 1, "key=1: ", "true or false"),
    (bool, "true", "key=true: ", "true or false"),
    (str, 3, "key=3: ", "string"),
    (list[Positive] | None, [1, 0], "key[2]=0: ", "greater than 0"),
    (list[list[Count]] | None, [[1], [2, 0]], "key[2][2]=0: ", "at least 1"),
    (Annotated[int, Ge(8)], 7, "key=7: ", "at least 8"),
    (Annotated[list[int], MinLen(2)], [1], "key=[1]: ", "at least 2"),
    (Rho, 0, "key=0: ", "greater than 0"),
    (Rho, "a", "key=a: ", "number"),
    (Rho, [1, -2], "key[2]=-2: ", "greater than 0"),
    (Rho, RULE | {"rule": "best"}, "key.rule=best: ", "'uniform' or 'theory'"),
    (Rho, RULE | {"total": "1"}, "key.total=1: ", "number"),
    (Rho, RULE | {"offset": math.nan}, "key.offset=nan: ", "finite"),
    (Rho, RULE | {"size": 3}, "key.size: ", "unknown key"),
    (Rho, {key: value for key, value in RULE.items() if key != "total"}, "key.total: ", "missing"),
    (Rho, RULE | {"values": [1, 0]}, "key.values[2]=0: ", "greater than 0"),
    (Rho, RULE | {"groups": [[1, 0]]}, "key.groups[1][2]=0: ", "at least 1"),
    (Rho, RULE | {"groups": 3}, "key.groups=3: ", "list"),
]


@pytest.mark.parametrize(("kind", "value", "start", "words"), REFUSED)
def test_what_is_refused(kind: Any, value: Any, start: str, words: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check_value("key", value, kind)
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
            check_value("key", value, kind)
        except ParameterError:
            return False
        return True

    finite = math.isfinite(value)
    assert allows(Positive) == (finite and value > 0)
    assert allows(NonNegative) == (finite and value >= 0)
    assert allows(Share) == (0 <= value <= 1)
    assert allows(ProperShare) == (0 < value < 1)
    assert allows(ShareBelowOne) == (0 <= value < 1)
