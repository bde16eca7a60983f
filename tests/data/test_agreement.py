"""Which answers agree."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2d.data.agreement import Agreement, Said
from l2d.utils.errors import ParameterError

NAN = float("nan")
WORDS = st.text('aB .,1$%-{}":', max_size=5)
ROWS = st.lists(st.lists(st.none() | WORDS, min_size=3, max_size=3), min_size=1, max_size=4)


def agree(one: object, two: object, rule: str = "exact") -> bool:
    first, second = Agreement(rule).kinds([[one, two]])[0]
    assert (first, second) in ((0, 0), (0, 1))
    return bool(first == second)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("Paris", " paris. ", True), ("a  b\nc", "A b c", True), ("Paris", "Lyon", False), ("a b", "ab", False),
        ("1,000.0", "1000", True), ("$5", "5", True), ("-$5", "−5.", True), ("5", "-5", False), ("1e3", "1000", True),
        (5, "5.0", True), (np.float64(2), 2, True), (True, "true", True), ("5%", "5.0 %", True), ("5%", "5", False),
        ("12345678901234567890", "12345678901234567891", False), ("1e99999999999999999999", "1e99999999999999999999", True),
        ("1,5", "15", False), ("5 apples", "5", False),
    ],
)  # fmt: skip
def test_exact(one: object, two: object, expected: bool) -> None:
    assert agree(one, two) is expected


def test_no_answer_is_no_kind() -> None:
    assert Agreement().kinds([[None, NAN, " ", "nan"], ["x", None, "X", "y"]]).tolist() == [[-1] * 4, [0, -1, 0, 3]]
    assert Agreement().kinds([]).shape == (0, 0)


@given(ROWS, st.sampled_from(["exact", "within:0.1", "json:a", "similar:0.5"]))
def test_any_text_under_any_rule(rows: list[list[str | None]], rule: str) -> None:
    """A kind is the place of an earlier answer or the answer's own. Equal texts agree, and what is empty has none."""
    for row, kinds in zip(rows, Agreement(rule).kinds(rows).tolist(), strict=True):
        for place, (text, kind) in enumerate(zip(row, kinds, strict=True)):
            assert -1 <= kind <= place
            assert kind == -1 or kinds[kind] == kind
            assert kind == -1 or text
            assert not text or kind == kinds[row.index(text)] or rule != "exact"


def test_a_tolerance_is_of_the_larger_number() -> None:
    assert agree("99", "100", "within:0.01")
    assert not agree("98.9", "100", "within:0.01")
    assert agree("5%", "5.01%", "within:0.01")
    assert not agree("5%", "5", "within:0.01")
    assert agree("A", "a.", "within:0.01")
    assert agree("-0", "0", "within:0")
    assert not agree("1", "-1", "within:1")


def test_without_transitivity_the_first_earlier_answer_gives_its_number() -> None:
    """101 is near 100; 102 is near 101 alone, and has its number. 105 is near none."""
    assert Agreement("within:0.01").kinds([["100", "101", None, "102", "105"]]).tolist() == [[0, 0, -1, 0, 4]]


def test_a_field_of_json() -> None:
    row = [
        '{"a": 1, "b": 2}',
        'Here:\n```json\n{"a": "1.0"}\n```',
        '{"b": 1}',
        "a",
        '{"a": null}',
        '{"a": [1]}',
        '{"a": [1 ]}',
    ]
    assert Agreement("json:a").kinds([row]).tolist() == [[0, 0, -1, -1, -1, 5, 5]]


def test_similar_texts() -> None:
    row = ["The capital of France is Paris", "the capital of France is paris.", "Ask somebody else"]
    assert Agreement("similar:0.8").kinds([row]).tolist() == [[0, 0, 2]]
    assert Agreement("similar:0").kinds([row]).tolist()[0][1] == 0


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with rules of its own."""
    source = "from os import system\ndef lengths(one, two): return abs(len(one) - len(two)) < 2\n"
    (tmp_path / "own_rules.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_rules"


def test_a_function_of_ones_own(own: str) -> None:
    assert Agreement(f"{own}.lengths").kinds([["a", "bb", None, "ccc", "dddddd"]]).tolist() == [[0, 0, -1, 0, 4]]


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("name", ["own_rules.system", "own_rules.nothing", "no_such_module.f"])
def test_functions_that_there_are_not(name: str) -> None:
    with pytest.raises(ParameterError, match=f"^agree={name}: "):
        Agreement(name).kinds([["a", "b"]])


@pytest.mark.parametrize("rule", ["exat", "within", "within:x", "similar:2", "similar:-1", "json:", "", "a.b:c"])
def test_rules_that_there_are_not(rule: str) -> None:
    with pytest.raises(ParameterError, match=f"^agree={rule}: "):
        Agreement(rule)


def test_signals() -> None:
    """Where an expert was not asked, nothing is known; who was asked and said nothing wrote 0 characters."""
    answers = np.array([["abc", "ABC", None], ["abc", "x", "y"]], dtype=object)
    confidence, length = np.array([[-1, NAN, 2], [0.5, 1, 1]]), np.array([[NAN, 9, NAN], [NAN, NAN, 0]])
    asked = np.array([[True, True, True], [True, False, True]])
    found = Said(answers, confidence, length).replies(asked, Agreement())
    assert found.kinds.tolist() == [[0, 0, -1], [0, -1, 2]]
    expected = [[[np.log(4), -1], [np.log(10), NAN], [0, 2]], [[np.log(4), 0.5], [NAN, NAN], [0, 1]]]
    np.testing.assert_allclose(found.signals.numpy(), np.array(expected, dtype=np.float32))
