"""Tables that are refused: by the parameter, or by the file, the column and the rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.data.sets.test_table import GOOD, SPLIT, Cells, load, panel_of, without, write

from l2d.utils.errors import L2DError


def with_cell(column: str, row: int, value: object) -> Cells:
    return {name: [*cells[:row], value, *cells[row + 1 :]] if name == column else cells for name, cells in GOOD.items()}


def refused(path: Path, **changes: Any) -> str:
    with pytest.raises(L2DError) as caught:
        load(path, **changes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


LABELLED: Cells = {**GOOD, "label": ["cat", "dog"] * 5, "prediction_p": ["cat"] * 10}
NO_OUTCOMES = without("correct_a", "correct_b")
PRICED: Cells = {**GOOD, "price_a": [1] * 10, "price_b": [0] * 10}
CHANCES: Cells = {**GOOD, "propensity_a": [0.5] * 10, "propensity_b": [0.5] * 10}

# (cells, arguments, words of the message)
BAD_CELLS: dict[str, tuple[Cells, dict[str, Any], Sequence[str]]] = {
    "unknown correctness": (with_cell("correct_a", 2, "maybe"), {}, ["column correct_a", ": 3,", "'maybe'"]),
    "correctness above 1": (with_cell("correct_b", 9, 3), {}, ["column correct_b", ": 10,", "'3'"]),
    "negative loss": ({**GOOD, "loss_c": [-1.0] * 10}, {}, ["column loss_c", "negative", "10 of 10", "1, 2, 3"]),
    "infinite loss": ({**GOOD, "loss_c": [0, "inf"] * 5}, {}, ["column loss_c", "not finite", ": 2, 4, 6, 8, 10,"]),
    "never asked": ({**GOOD, "loss_c": [""] * 10}, {}, ["column loss_c", "empty", "leave c out"]),
    "two prices": ({**PRICED, "cost_usd_b": [0] * 10}, {}, ["price_b and cost_usd_b", "two prices of b"]),
    "no price of an expert": ({**PRICED, "price_a": [""] * 9 + ["n/a"]}, {}, ["column price_a", "empty", "leave a out"]),
    "nearly a price": ({**GOOD, "price_per_call_a": [1] * 10}, {}, ["column price_per_call_a", "price_a"]),
    "negative price": ({**PRICED, "price_b": [0, -1] * 5}, {}, ["column price_b", "negative", ": 2, 4", "'-1'"]),
    "price of some": ({**GOOD, "price_a": [1] * 10}, {}, ["no column price_b"]),
    "propensity of 0": ({**CHANCES, "propensity_a": [0.5] * 9 + [0]}, {}, ["column propensity_a", ": 10,"]),
    "propensities of some": ({**GOOD, "propensity_a": [0.5] * 10}, {}, ["no column propensity_b"]),
    "misspelt propensity": ({**GOOD, "propensty_a": [0.5] * 10}, {}, ["column propensty_a", "propensity_a?"]),
    "no time": ({**GOOD, "time": ["2026-01-01"] * 9 + ["soon"]}, {"split_by": "time"}, ["column time", ": 10,", "'soon'"]),
    "empty feature": (with_cell("y", 4, ""), {}, ["column y", "empty", "1 of 10 rows", ": 5 "]),
    "enormous feature": (with_cell("y", 4, 1e300), {}, ["column y", "too large", ": 5,"]),
    "a slip in a feature": (with_cell("y", 4, "0.5O"), {}, ["column y", "not a number", "features", "'0.5O'"]),
    "four slips": ({**GOOD, "half": [1, "one"] * 4 + [1, 1]}, {}, ["column half", "4 of 10 rows: 2, 4, 6, 8", "'one'"]),
    "mostly nothing": ({**GOOD, "seldom": ["NA", "-"] * 4 + [1, 2]}, {}, ["column seldom", "8 of 10", "'NA'"]),
    "no text": ({**GOOD, "note": ["", "  "] * 5}, {"text": "note"}, ["column note", "empty", "10 of 10"]),
    "three faults": (
        {**with_cell("correct_a", 2, "maybe"), "y": [""] + [1] * 9, "price_a": [-1] * 10, "price_b": [1] * 10}, {},
        ["3 faults", "column correct_a", "column y", "column price_a"],
    ),
    "images that are not there": (GOOD, {"image": "note"}, ["column note", "no such file", "'some text'"]),
    "no experts": (NO_OUTCOMES, {}, ["no experts", "correct_NAME", "id, x, y, note"]),
    "one expert": (without("correct_b"), {}, ["only one expert, a"]),
    "two outcomes": ({**GOOD, "loss_a": [0] * 10}, {}, ["correct_a and loss_a"]),
    "names that differ in capitals": ({**GOOD, "correct_B": [0] * 10}, {}, ["correct_b and correct_B", "capitals"]),
    "no outcome at all": ({"x": [1, 2], "correct_a": ["", ""], "correct_b": ["", ""]}, {}, ["no row has an outcome"]),
    "empty label": ({**LABELLED, "label": ["cat", ""] * 5}, {"label": "label"}, ["column label", "5 of 10", ": 2, 4, 6"]),
    "predictions that are never labels": (
        {**LABELLED, "prediction_p": ["Cat"] * 10}, {"label": "label"}, ["column prediction_p", "Cat", "cat, dog"],
    ),
    "unknown split": ({**GOOD, "split": ["train", "held out"] * 5}, SPLIT, ["column split", ": 2, 4", "'held out'"]),
    "an id twice": ({**GOOD, "id": [i % 9 for i in range(10)]}, {}, ["column id", "1 of 10 rows: 10,", "'0'"]),
    "a log whose outcome is misspelt": (
        {"id": [1, 1, 1], "x": [1, 1, 1], "expert": ["a", "b", "a"], "corect": [1, 0, 1]}, {}, ["no experts", "a log", "corect"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CELLS)
def test_bad_cells_are_named_by_file(case: str, tmp_path: Path) -> None:
    cells, changes, words = BAD_CELLS[case]
    path = write(tmp_path, cells)
    message = refused(path, **changes)
    assert message.startswith(f"{path}: ")
    assert [word for word in words if word not in message] == []


# (cells, arguments, the parameter and its value, a word of the message)
BAD_ARGUMENTS: dict[str, tuple[Cells, dict[str, Any], str, str]] = {
    "no features": (without("x", "y"), {}, "features", "no numeric column"),
    "unknown feature": (GOOD, {"features": ["z"]}, "features=z", "x, y"),
    "the answer as a feature": (GOOD, {"features": ["correct_a"]}, "features=correct_a", "must not see"),
    "images with features": (GOOD, {"image": "note", "features": ["x"]}, "image=note", "features"),
    "some of an unknown category": (GOOD, {"category": "topic", "only": ["a"]}, "category=topic", "no such column"),
    "an outcome as the category": (LABELLED, {"label": "label", "category": "correct_a"}, "category=correct_a", "a did"),
    "the label as the split": (
        {**GOOD, "split": ["train", "test"] * 5}, {"label": "split", **SPLIT}, "split=split", "the label",
    ),
    "unknown expert": (GOOD, {"experts": ["correct_a", "gpt"]}, "experts=gpt", "no such column"),
    "outcome without experts": (GOOD, {"outcome": "loss"}, "outcome=loss", "experts"),
    "predictions without a label": (LABELLED, {}, "label", "prediction_p"),
    "unknown label": (LABELLED, {"label": "lable"}, "label=lable", "no such column"),
    "no test rows": ({**GOOD, "split": ["train"] * 10}, SPLIT, "split=split", "no row is test"),
    "a split and a time": (GOOD, {"split": "split", "split_by": "t"}, "split_by=t", "split"),
    "too few rows": ({name: cells[:1] for name, cells in GOOD.items()}, {}, "test_fraction=0.2", "none of 1 rows"),
    "text that nothing reads": (GOOD, {"text": "note", "encoder": None}, "text=note", "read"),
    "categories of no column": (GOOD, {"only": ["a"]}, "only=['a']", "category"),
    "a category that no row has": (GOOD, {"category": "note", "only": ["b"]}, "only=b", "some text"),
    "a split that is not named": ({**GOOD, "split": [0, 1] * 5}, {}, "split", "split=split"),
    "a label that is not named": ({**GOOD, "Label": [0, 1] * 5}, {}, "features", "label=Label"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments_are_named(case: str, tmp_path: Path) -> None:
    cells, changes, start, word = BAD_ARGUMENTS[case]
    message = refused(write(tmp_path, cells), **changes)
    assert message.startswith(f"{start}: ")
    assert word in message


HEADER = b"x,correct_a,correct_b\n"
# (bytes of the file, its name, words of the message)
BAD_FILES: dict[str, tuple[bytes | None, str, Sequence[str]]] = {
    "not there": (None, "t.csv", ["no such file"]),
    "another kind": (b"x", "t.xlsx", [".csv", ".parquet or .jsonl"]),
    "empty": (b"", "t.csv", ["Empty"]),
    "only a header": (HEADER, "t.csv", ["no rows"]),
    "rows too long and too short": (HEADER + b"1,0,1\n2,0\n3,0,1\n4,0,1,1\n", "t.csv", ["Row #3"]),
    "a column twice": (b"x,x,correct_a,correct_b\n1,1,0,1\n", "t.csv", ["more than one", " x"]),
    "a nameless column": (b",x,correct_a,correct_b\n0,1,0,1\n", "t.csv", ["column ''", "index=False"]),
    "spaces around a name": (b"correct_a ,correct_b\n1,0\n", "t.csv", ["column 'correct_a '", "spaces"]),
    "Latin-1": ((HEADER.decode() + "1,0,1\nß,1,0\n").encode("latin-1"), "t.csv", ["not UTF-8", "line 3"]),
    "Parquet in name only": (HEADER + b"1,0,1\n", "t.parquet", ["cannot be read"]),
    "an unclosed quote": (b'x,note,correct_a,correct_b\n1,"a,0,1\n2,b,0,1\n', "t.csv", ["Row #2"]),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(case: str, tmp_path: Path) -> None:
    content, name, words = BAD_FILES[case]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    message = refused(path)
    by_parameter = case in ("not there", "another kind")  # before anything is read
    assert message.startswith(f"path={path}: " if by_parameter else f"{path}: ")
    assert [word for word in words if word not in message] == []


def test_a_column_of_words_is_no_feature(tmp_path: Path) -> None:
    """One without any cell is none, nor is one whose cells are words as often as numbers."""
    odd: Cells = {"empty": [""] * 10, "half": [1, "one"] * 5, "gaps": [1] * 10}
    assert load(write(tmp_path, {**GOOD, **odd})).seen.features == ("x", "y", "gaps")
    named = write(tmp_path, {**GOOD, "target": [0, 1] * 5})  # which sounds like the answer
    assert load(named, features=["x", "target"]).seen.features == ("x", "target")


@pytest.mark.parametrize("name", ["corect_large", "Correct_large", "is_correct_large"])
def test_a_misspelt_outcome_is_not_left_out(name: str, tmp_path: Path) -> None:
    """With it, an expert that has a price would be lost without a word. A price of a model that answers nothing is no mistake."""
    priced = {**GOOD, **{f"usd_{expert}": [0.1] * 10 for expert in ("a", "b", "large")}}
    tables = [priced, GOOD] if name == "Correct_large" else [priced]
    for cells in tables:
        message = refused(write(tmp_path, {**cells, name: [1] * 10}))
        assert f"column {name}: did you mean correct_large?" in message
    assert load(write(tmp_path, priced)).panel is not None


LONG = "claude-3-5-sonnet-20241022-v2"


@pytest.mark.parametrize(
    "names",
    [
        ["correct_gpt-4", "correct_llama", "price_gpt-4", "price_llama", "price_gpt-4o"],
        [f"correct_{LONG}", "correct_b", f"price_{LONG}", "price_b", f"latency_{LONG}", f"intensity_{LONG}"],
        ["correct_a", "correct_b", f"price_{LONG}", f"content_{LONG}", f"answer_{LONG}"],
        ["correct_a", "correct_b", "cost", "score", "corrections", "corrected", "user_id", "property_a"],
        ["correct_a", "correct_b", "price_total", "corrects_total", "lossy_total", "n_correct"],
    ],
)
def test_columns_that_are_no_slips(tmp_path: Path, names: list[str]) -> None:
    """Names that look alike, and money of models without outcomes: all these tables are fine."""
    cells: Cells = {"x": [*range(10)], **{name: [i % 2 for i in range(10)] for name in names}}
    assert [f"correct_{name}" for name in panel_of(load(write(tmp_path, cells))).names] == names[:2]


def test_an_outcome_is_no_slip_of_another(tmp_path: Path) -> None:
    """prediction_b, before the end _a, is near prediction; but it is the outcome of b_a, and a has none."""
    cells: Cells = {"x": [*range(10)], "label": [0, 1] * 5, "prediction_b_a": [0, 1] * 5, "prediction_c": [1] * 10}
    assert panel_of(load(write(tmp_path, {**cells, "price_a": [0.1] * 10}), label="label")).names == ("b_a", "c")
