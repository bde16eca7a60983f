"""A table: what is read, and what is refused with its parameter, or with its file, column and rows."""

import csv
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from omegaconf import DictConfig
from PIL import Image
from pyarrow import parquet
from sklearn.model_selection import train_test_split
from tests.running import assembled, build, train

from l2d.config import compose
from l2d.config.signatures import check_arguments, read_signature
from l2d.data.arrays import Arrays
from l2d.data.cells import cell_word
from l2d.data.sets.outcomes import MONEY, class_numbers, price_hint
from l2d.data.sets.table import Table
from l2d.data.sheet import Sheet, read_sheet
from l2d.data.splits import split
from l2d.data.text.encoders import HASHES, Hashed
from l2d.utils.errors import L2DError, ParameterError

ROOT = Path(__file__).resolve().parents[3]
Cells = dict[str, list[Any]]

# Ten rows; the even ones are for a, the odd ones for b.
GOOD: Cells = {
    "id": list(range(10)),
    "x": [float(i % 2) for i in range(10)],
    "y": [i / 8 for i in range(10)],
    "note": ["some text"] * 10,
    "correct_a": [1 - i % 2 for i in range(10)],
    "correct_b": [i % 2 for i in range(10)],
}


def write(folder: Path, cells: Cells, name: str = "table.csv") -> Path:
    path = folder / name
    if path.suffix.lower() == ".parquet":
        parquet.write_table(pa.table(cells), path)
        return path
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(cells)
        writer.writerows(zip(*cells.values(), strict=True))
    return path


DEFAULTS: dict[str, Any] = {
    "path": None, "experts": None, "outcome": "correct", "features": None, "text": None, "encoder": Hashed(), "image": None,
    "image_size": 32, "label": None, "category": None, "only": None, "split": None, "split_by": None, "test_fraction": 0.2,
}  # fmt: skip


def table(path: Path | None, **changes: Any) -> Table:
    return Table(**{**DEFAULTS, "path": None if path is None else str(path), **changes})


def load(path: Path, **changes: Any) -> Arrays:
    return table(path, **changes).load(Path())


def whole(arrays: Arrays, part: str) -> torch.Tensor:
    """Errors or prices of the training rows, then of the test rows."""
    assert arrays.panel is not None
    return torch.cat([getattr(arrays.panel.train, part), getattr(arrays.panel.test, part)])


def in_order(cells: Cells) -> Cells:
    """With a split column that keeps the rows in their order: the last two are the test split."""
    n = len(next(iter(cells.values())))
    return {**cells, "split": ["train"] * (n - 2) + ["test"] * 2}


SPLIT = {"split": "split"}


# What is read


def test_features_and_experts_are_found_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arrays = load(write(tmp_path, in_order(GOOD)), **SPLIT)
    assert arrays.train_inputs.dtype == torch.float32
    inputs = torch.cat([arrays.train_inputs, arrays.test_inputs])
    assert inputs.tolist() == [[i % 2, i / 8] for i in range(10)]  # x and y: not id, not the text
    assert arrays.panel is not None
    assert arrays.panel.names == ("a", "b")
    assert whole(arrays, "errors").tolist() == [[i % 2, 1 - i % 2] for i in range(10)]
    assert arrays.panel.train.prices is None
    assert arrays.train_labels.tolist() == [-1] * 8
    assert arrays.num_classes == 0
    said = capsys.readouterr().err
    assert "experts: a (correct), b (correct); the router sees: x, y; not used: id, note" in said
    assert read_sheet(write(tmp_path, {"t": ["no", "en"], "n": ["Yes", "no"]})).words("t") == ["no", "en"]
    shouted = {("ID" if name == "id" else name): cells for name, cells in in_order(GOOD).items()}
    assert load(write(tmp_path, shouted), **SPLIT).train_inputs.shape[1] == 2


@pytest.mark.parametrize("extra", [{}, {"label": ["cat", "dog"] * 5}, {"flag": [True, False] * 5}])
def test_csv_and_parquet_are_the_same(tmp_path: Path, extra: Cells) -> None:
    cells = {**GOOD, **extra, "third": [1 / 3 + i for i in range(10)]}
    label = "label" if "label" in extra else None
    first, second = (load(write(tmp_path, cells, name), label=label) for name in ("t.csv", "t.parquet"))
    for name in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert torch.equal(whole(first, "errors"), whole(second, "errors"))
    assert first.train_inputs.shape == (8, 3 + ("flag" in extra))


def test_parquet_of_pandas_with_an_index_and_categories(tmp_path: Path) -> None:
    """pandas keeps an index as one more column, and categories as a dictionary; neither is a feature."""
    cells = {**GOOD, "label": pa.array(["cat", "dog"] * 5).dictionary_encode(), "__index_level_0__": list(range(10))}
    arrays = load(write(tmp_path, cells, "t.parquet"), label="label")
    assert arrays.train_inputs.shape == (8, 2)
    assert arrays.num_classes == 2


def test_outcomes_of_every_kind(tmp_path: Path) -> None:
    """Worked out by hand. Correctness: 1 − value. Predictions: 1 where they differ from the label, compared as numbers where they
    are numbers, and 1 for what is not a label at all. Costs: as they are."""
    cells: Cells = {
        "x": [1, 2, 3, 4],
        "answer": ["3", "3", "7", "7"],
        "correct_mean": [1, 0.75, 0, 0.5],
        "correct_word": ["true", "False", "Yes", "no"],
        "prediction_p": ["3.0", "7", " 7", "none of them"],
        "loss_c": [0, 2.5, 0.125, 1e-3],
    }
    arrays = load(write(tmp_path, in_order(cells)), **SPLIT, label="answer")
    assert whole(arrays, "errors").tolist() == [
        [0, 0, 0, 0],
        [0.25, 1, 1, 2.5],
        [1, 0, 0, 0.125],
        [0.5, 1, 1, 1e-3],
    ]
    assert arrays.panel is not None
    assert arrays.panel.names == ("mean", "word", "p", "c")
    assert torch.cat([arrays.train_labels, arrays.test_labels]).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("outcome", "errors"), [("correct", [[0, 1], [1, 0]]), ("loss", [[1, 0], [0, 1]]), ("prediction", [[1, 0], [1, 0]])]
)
def test_named_columns(tmp_path: Path, outcome: str, errors: list[list[int]]) -> None:
    """The same columns, read as each of the three; the label is 0, 1."""
    cells: Cells = {"x": [1, 2, 1, 2], "label": [0, 1, 0, 1], "gpt": [1, 0, 1, 0], "llama": [0, 1, 0, 1]}
    given = {"experts": ["gpt", "llama"], "outcome": outcome, "label": "label", **SPLIT}
    with pytest.raises(ParameterError, match=r"^features: missing"):
        load(write(tmp_path, in_order(cells)), **given)
    arrays = load(write(tmp_path, in_order(cells)), features=["x"], **given)
    assert whole(arrays, "errors").tolist() == errors * 2
    assert arrays.train_inputs.tolist() == [[1], [2]]


def test_some_of_the_experts(tmp_path: Path) -> None:
    """In the order asked for, with their prices; those left out are no features."""
    cells = {**GOOD, "correct_c": [1] * 10, "price_a": [0.1] * 10, "price_b": [0.2] * 10, "price_c": [0.3] * 10}
    arrays = load(write(tmp_path, cells), experts=["correct_c", "correct_a"])
    assert arrays.panel is not None
    assert arrays.panel.names == ("c", "a")
    with pytest.raises(ParameterError, match=r"^features: missing; .*not listed would count as features"):
        load(write(tmp_path, {**cells, "gpt": [1] * 10, "llama": [0] * 10}), experts=["correct_c", "gpt"])
    assert whole(arrays, "prices").tolist() == [[0.3, 0.1]] * 10
    assert arrays.train_inputs.shape == (8, 2)


def test_the_label_may_be_the_category(tmp_path: Path) -> None:
    """A method may go by what results are broken down by."""
    path = write(tmp_path, in_order({**GOOD, "topic": [["war", "art"][i % 2] for i in range(10)]}))
    arrays = load(path, **SPLIT, label="topic", category="topic")
    assert arrays.seen.features == ("x", "y")
    assert arrays.num_classes == 2
    assert arrays.train_labels.tolist() == [1, 0] * 4  # in the order of the words
    assert arrays.test_labels.tolist() == [1, 0]
    assert arrays.categories == ("war", "art")
    assert arrays.train_categories == ("war", "art") * 4
    with pytest.raises(ParameterError, match=r"^category=correct_a: that column is what a did already"):
        load(path, **SPLIT, label="topic", category="correct_a")


def test_a_split_column(tmp_path: Path) -> None:
    words = ["train", "Test", "val", "TRAIN", "dev", "test", "train", "valid", "validation", "train"]
    arrays = load(write(tmp_path, {**GOOD, "part": words}), split="part")
    assert (8 * arrays.test_inputs[:, 1]).tolist() == [1, 5]
    assert (8 * arrays.train_inputs[:, 1]).tolist() == [0, 2, 3, 4, 6, 7, 8, 9]
    assert arrays.validation is not None
    assert (8 * arrays.train_inputs[arrays.validation, 1]).tolist() == [2, 4, 7, 8]


def test_without_a_split_column_the_test_rows_are_fixed(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert torch.equal(load(path).test_inputs, load(path).test_inputs)
    assert len(load(path, test_fraction=0.5).test_inputs) == 5
    _, rows = train_test_split(np.arange(10), test_size=0.2, stratify=[-1] * 10, random_state=0)
    assert (8 * load(path).test_inputs[:, 1]).tolist() == sorted(rows.tolist())


def test_a_table_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, GOOD)
    assert len(load(Path("~/table.csv")).train_inputs) == 8


@pytest.mark.parametrize("labels", [[0] * 9 + [1], list(range(10)), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]])
def test_labels_too_rare_or_too_many_to_stratify_by(tmp_path: Path, labels: list[int]) -> None:
    """Whether it is the test split or the validation split that has no room for a row of each."""
    arrays = load(write(tmp_path, {**GOOD, "label": labels}), label="label")
    kept, held_out = split(arrays, 0.2, seed=0)
    assert (len(kept), len(held_out), len(arrays.test_labels)) == (6, 2, 2)
    assert arrays.num_classes == len(set(labels))


def test_text_is_hashed(tmp_path: Path) -> None:
    cells = {**GOOD, "query": ["how tall is it", "a poem, please"] * 5}
    arrays = load(write(tmp_path, in_order(cells)), text="query", **SPLIT)
    assert arrays.train_inputs.shape == (8, 2 * HASHES)
    assert arrays.train_inputs.dtype == torch.float32
    assert torch.equal(arrays.train_inputs[0], arrays.test_inputs[0])  # the same text
    assert not torch.equal(arrays.train_inputs[0], arrays.train_inputs[1])
    both = load(write(tmp_path, in_order(cells)), text="query", features=["y"], **SPLIT)
    assert torch.equal(both.train_inputs[:, 1:], arrays.train_inputs)
    assert both.train_inputs[:, 0].tolist() == [i / 8 for i in range(8)]


def test_texts_with_words_in_common_are_nearer() -> None:
    a, b, c = Hashed().encode(["sort a list in python", "sort a tuple in python", "who was the first king"], Path())
    assert a @ b > a @ c + 0.3


def test_images(tmp_path: Path) -> None:
    """Grey, with another size and in a folder beside the table: RGB of the size asked for."""
    (tmp_path / "pictures").mkdir()
    for i in range(10):
        Image.new("L", (20, 12), color=10 * i).save(tmp_path / "pictures" / f"{i}.png")
    cells = in_order({**GOOD, "file": [f"pictures/{i}.png" for i in range(10)]})
    arrays = load(write(tmp_path, cells), image="file", image_size=16, **SPLIT)
    assert arrays.train_inputs.shape == (8, 16, 16, 3)
    assert arrays.train_inputs.dtype == torch.uint8
    assert arrays.test_inputs[:, 0, 0].tolist() == [[80] * 3, [90] * 3]


def test_cells_with_commas_line_breaks_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfx,note,correct_a,correct_b\r\n1,"a, b\n""c""",1,0\r\n\r\n2,d,0,1\r\n3,e,1,1\r\n')
    arrays = load(path, test_fraction=0.34)
    assert sorted(torch.cat([arrays.train_inputs, arrays.test_inputs])[:, 0].tolist()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [(3, "3"), (3.0, "3"), (" 3.0 ", "3"), (True, "1"), ("a b ", "a b"), (0.5, "0.5"), ("1_000", "1_000")],
)
def test_words(cell: object, expected: str) -> None:
    assert cell_word(cell) == expected


def test_long_numbers_stay_apart() -> None:
    assert cell_word("9007199254740993") != cell_word("9007199254740992")


class Reader(Hashed):
    """As Hashed, with an identity of its own."""

    def identity(self) -> str:
        return "another"


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.PARQUET"])
def test_experts_are_known_from_the_header_alone(tmp_path: Path, name: str) -> None:
    """In the order of the file or of `experts`; what is wrong with the header is said as for the whole file."""
    path = write(tmp_path, {**GOOD, "correct_c": [None] * 10}, name)
    assert table(path).expert_names(Path()) == ["a", "b", "c"]
    assert table(path, experts=["correct_b", "a"]).expert_names(Path()) == ["b", "a"]
    with pytest.raises(ParameterError, match=r"^experts=gpt: no such column"):
        table(path, experts=["a", "gpt"]).expert_names(Path())
    with pytest.raises(L2DError, match="only one expert, a"):
        table(write(tmp_path, without("correct_b"), name)).expert_names(Path())
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(L2DError, match=rf"{name}: cannot be read"):
        table(path).expert_names(Path())


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_text("correct_a,correct_b,x\n1,0,2\n", encoding="utf-8-sig")
    assert table(path).expert_names(Path()) == ["a", "b"]


def test_fingerprint(tmp_path: Path) -> None:
    """Of the file's bytes, and of the encoder if there is text for it to read."""
    path = write(tmp_path, GOOD)
    before = table(path).fingerprint(Path())
    assert len(before) == 16
    assert table(path).fingerprint(Path()) == table(path, encoder=Reader()).fingerprint(Path()) == before
    read = [table(path, text="note", encoder=encoder).fingerprint(Path()) for encoder in (Hashed(), Reader())]
    assert read[0] == before != read[1]
    path.write_text(path.read_text().replace("0.125", "0.25"))
    assert table(path).fingerprint(Path()) != before
    for missing in (Path("nowhere.csv"), None):
        with pytest.raises(ParameterError) as caught:
            table(missing).fingerprint(Path())
        assert caught.value.parameter == "path"


# What is refused


def with_cell(column: str, row: int, value: object) -> Cells:
    return {name: [*cells[:row], value, *cells[row + 1 :]] if name == column else cells for name, cells in GOOD.items()}


def without(*columns: str) -> Cells:
    return {name: cells for name, cells in GOOD.items() if name not in columns}


LABELLED: Cells = {**GOOD, "label": ["cat", "dog"] * 5, "prediction_p": ["cat"] * 10}

# (cells, arguments, words of the message)
BAD_CELLS: dict[str, tuple[Cells, dict[str, Any], Sequence[str]]] = {
    "n/a correctness": (with_cell("correct_a", 2, "n/a"), {}, ["column correct_a", "not a number", ": 3", "'n/a'"]),
    "n/a feature": (with_cell("y", 4, "N/A"), {}, ["column y", "not a number", "dataset.features", ": 5", "'N/A'"]),
    "correctness above 1": (with_cell("correct_b", 9, 3), {}, ["column correct_b", "not between 0", ": 10", "'3'"]),
    "correctness in words": (with_cell("correct_a", 0, "si"), {}, ["column correct_a", "not a number", "'si'"]),
    "negative loss": ({**GOOD, "loss_c": [-1.0] * 10}, {}, ["column loss_c", "negative", "10 of 10", "1, 2, 3"]),
    "infinite loss": ({**GOOD, "loss_c": [0, "inf"] * 5}, {}, ["column loss_c", "not finite", ": 2, 4, 6, 8, 10"]),
    "an expert that was never asked": (
        {**GOOD, "loss_c": [""] * 10},
        {},
        ["column loss_c: no outcome of c in any row", "leave it out"],
    ),
    "losses that are called costs": (
        {"x": [1.0] * 10, "cost_a": [0] * 10, "cost_b": [1] * 10},
        {},
        ["no experts", "cost_a, cost_b are money; if they are losses, call them loss_a, loss_b"],
    ),
    "two prices": (
        {**GOOD, "price_a": [0] * 10, "price_b": [0] * 10, "cost_usd_b": [0] * 10},
        {},
        ["columns price_b and cost_usd_b", "two prices of b"],
    ),
    "a price where none was asked": (
        {**with_cell("correct_a", 2, ""), "price_a": [1] * 9 + [""], "price_b": [0] * 10},
        {},
        ["column price_a", "empty although correct_a is not,", ": 10"],
    ),
    "a propensity of nothing": (
        {**GOOD, "propensity_a": [0.5] * 9 + [0], "propensity_b": [0.5] * 10},
        {},
        ["column propensity_a", "not above 0 and at most 1", ": 10"],
    ),
    "a propensity above 1": (
        {**GOOD, "propensity_a": [0.5] * 10, "propensity_b": [1.5, *[0.5] * 9]},
        {},
        ["column propensity_b", "not above 0 and at most 1", ": 1"],
    ),
    "propensities of some experts": ({**GOOD, "propensity_a": [0.5] * 10}, {}, ["no column propensity_b"]),
    "a time that is none": (
        {**GOOD, "time": ["2026-01-01"] * 9 + ["soon"]},
        {"split_by": "time"},
        ["column time", "not a time", ": 10", "'soon'"],
    ),
    "empty feature": (with_cell("y", 4, ""), {}, ["column y", "empty", "1 of 10 rows", ": 5"]),
    "infinite feature": (with_cell("y", 4, "-inf"), {}, ["column y", "not finite", ": 5"]),
    "enormous feature": (with_cell("y", 4, 1e300), {}, ["column y", "too large", ": 5"]),
    "enormous negative feature": (with_cell("y", 4, -1e300), {}, ["column y", "too large", ": 5", "'-1e+300'"]),
    "a slip in a feature": (with_cell("y", 4, "0.5O"), {}, ["column y", "not a number", "features", "'0.5O'"]),
    "text as a feature": (GOOD, {"features": ["note"]}, ["column note", "not a number", "'some text'"]),
    "empty text": (with_cell("note", 1, "  "), {"text": "note"}, ["column note", "empty", ": 2"]),
    "images that are not there": (GOOD, {"image": "note"}, ["column note", "no such file", "'some text'"]),
    "no experts": (without("correct_a", "correct_b"), {}, ["no experts", "correct_NAME", "there are id, x, y, note"]),
    "experts at the end": (
        {**without("correct_a", "correct_b"), "gpt_correct": [1] * 10, "b_correct": [0] * 10},
        {},
        ["no experts", "dataset.experts", "correct_gpt by gpt_correct"],
    ),
    "experts in capitals": (
        {**without("correct_b"), "Correct_B": [1] * 10},
        {},
        ["only one expert, a", "correct_B by Correct_B"],
    ),
    "dollars called costs": (
        {**GOOD, "cost_usd_b": [0.5] * 10},
        {},
        ["no column cost_usd_a", "every expert a price column"],
    ),
    "one expert": (without("correct_b"), {}, ["only one expert, a", "two or more"]),
    "two outcomes": ({**GOOD, "loss_a": [0] * 10}, {}, ["correct_a and loss_a", "one outcome"]),
    "an expert twice": (GOOD, {"experts": ["correct_a", "a"]}, ["correct_a and correct_a", "one outcome per expert"]),
    "price of some": ({**GOOD, "price_a": [1] * 10}, {}, ["no column price_b", "every expert"]),
    "negative price": (
        {**GOOD, "price_a": [1] * 10, "price_b": [0, -1] * 5},
        {},
        ["column price_b", "negative", ": 2, 4", "'-1'"],
    ),
    "empty price": ({**GOOD, "price_a": [1] * 10, "price_b": [0, ""] * 5}, {}, ["column price_b", "empty", ": 2, 4"]),
    "empty label": (
        {**LABELLED, "label": ["cat", ""] * 5},
        {"label": "label"},
        ["column label", "empty", "5 of 10", ": 2, 4, 6, 8, 10"],
    ),
    "predictions that are never labels": (
        {**LABELLED, "prediction_p": ["Cat"] * 10},
        {"label": "label"},
        ["column prediction_p", "Cat", "cat, dog"],
    ),
    "unknown split": (
        {**GOOD, "split": ["train", "held out"] * 5},
        SPLIT,
        ["column split", "none of train, test, validation", ": 2, 4", "'held out'"],
    ),
    "empty split": ({**GOOD, "split": ["train"] * 9 + [""]}, SPLIT, ["column split", "empty", ": 10"]),
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_what_is_wrong_with_the_file_names_the_file(case: str, tmp_path: Path) -> None:
    cells, changes, words = BAD_CELLS[case]
    path = write(tmp_path, cells)
    with pytest.raises(L2DError) as caught:
        load(path, **changes)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for expected in words:
        assert expected in message


# (cells, arguments, the parameter and its value, words of the message)
BAD_ARGUMENTS: dict[str, tuple[Cells, dict[str, Any], str, Sequence[str]]] = {
    "no features": (without("x", "y"), {}, "features", ["no numeric column"]),
    "empty list of features": (GOOD, {"features": []}, "features", ["no numeric column"]),
    "unknown feature": (GOOD, {"features": ["z"]}, "features=z", ["no such column", "x, y"]),
    "the answer as a feature": (GOOD, {"features": ["correct_a"]}, "features=correct_a", ["must not see"]),
    "unknown text": (GOOD, {"text": "query"}, "text=query", ["no such column"]),
    "images with features": (GOOD, {"image": "note", "features": ["x"]}, "image=note", ["features"]),
    "images with text": (GOOD, {"image": "note", "text": "note"}, "image=note", ["only one"]),
    "unknown image": (GOOD, {"image": "photo"}, "image=photo", ["no such column", "x, y"]),
    "some of an unknown category": (GOOD, {"category": "topic", "only": ["a"]}, "category=topic", ["no such column"]),
    "the label as the split": (
        {**GOOD, "split": ["train", "test"] * 5},
        {"label": "split", **SPLIT},
        "split=split",
        ["the label already"],
    ),
    "unknown expert": (GOOD, {"experts": ["correct_a", "gpt"]}, "experts=gpt", ["no such column"]),
    "outcome without experts": (GOOD, {"outcome": "loss"}, "outcome=loss", ["experts"]),
    "predictions without a label": (LABELLED, {}, "label", ["prediction_p"]),
    "unknown label": (LABELLED, {"label": "lable"}, "label=lable", ["no such column"]),
    "an expert as the label": (GOOD, {"label": "correct_a"}, "label=correct_a", ["what a did"]),
    "unknown split column": (GOOD, SPLIT, "split=split", ["no such column"]),
    "no test rows": ({**GOOD, "split": ["train"] * 10}, SPLIT, "split=split", ["no row is test"]),
    "no training rows": ({**GOOD, "split": ["val", "test"] * 5}, SPLIT, "split=split", ["no row is train"]),
    "too few rows": ({name: cells[:1] for name, cells in GOOD.items()}, {}, "test_fraction=0.2", ["none of 1 rows"]),
    "text that nothing reads": (GOOD, {"text": "note", "encoder": None}, "text=note", ["does not read text"]),
    "categories of no column": (GOOD, {"only": ["a"]}, "only=['a']", ["category"]),
    "a category that no row has": (GOOD, {"category": "note", "only": ["b"]}, "only=b", ["note=b", "some text"]),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_a_wrong_argument_is_named(case: str, tmp_path: Path) -> None:
    cells, changes, start, words = BAD_ARGUMENTS[case]
    path = write(tmp_path, cells)
    with pytest.raises(ParameterError) as caught:
        load(path, **changes)
    message = str(caught.value)
    assert message.startswith(f"{start}: ")
    assert "\n" not in message
    for expected in words:
        assert expected in message


@pytest.mark.parametrize(
    ("argument", "wrong", "right"),
    [
        ("features", "x", ["x"]),
        ("experts", {"a": 1}, ["a", 2024]),  # YAML reads a column called 2024 as a number
        ("only", [1.5], [2024]),
        ("label", ["x"], 2024),
        ("outcome", "score", "loss"),
        ("image_size", 7, 8),
        ("test_fraction", 1.0, 0.99),
        ("test_fraction", 0.0, 0.01),
    ],
)
def test_the_signature_says_what_arguments_may_be(argument: str, wrong: object, right: object) -> None:
    signature = read_signature("l2d.data.sets.table.Table") or {}
    check_arguments({argument: right}, signature)
    with pytest.raises(ParameterError) as caught:
        check_arguments({argument: wrong}, signature)
    assert caught.value.parameter.startswith(argument)


def test_names_may_be_numbers(tmp_path: Path) -> None:
    cells = {**GOOD, "2024": [1.0] * 10, "year": [2019, 2020] * 5}
    arrays = load(write(tmp_path, cells), features=[2024, "y"], category="year", only=[2020])
    assert arrays.seen.features == ("2024", "y")
    assert {*(arrays.categories or ())} == {"2020"}


# (bytes of the file, its name, words of the message)
BAD_FILES: dict[str, tuple[bytes | None, str, Sequence[str]]] = {
    "not there": (None, "t.csv", ["no such file"]),
    "another kind": (b"x", "t.xlsx", [".csv, .parquet or .jsonl"]),
    "empty": (b"", "t.csv", ["Empty CSV file"]),
    "blank": (b"\n\n", "t.csv", ["Empty CSV file"]),
    "only a header": (b"x,correct_a,correct_b\n", "t.csv", ["no rows"]),
    "rows too long and too short": (
        b"x,correct_a,correct_b\n1,0,1\n2,0\n3,0,1\n4,0,1,1\n",
        "t.csv",
        ["Row #3: Expected 3 columns, got 2"],
    ),
    "a column twice": (b"x,x,correct_a,correct_b\n1,1,0,1\n", "t.csv", ["more than one column is called x"]),
    "a nameless column": (b",x,correct_a,correct_b\n0,1,0,1\n", "t.csv", ["column ''", "no name", "index=False"]),
    "semicolons": (b"x;correct_a;correct_b\n1;0;1\n", "t.csv", ["one column", "commas", "';'", "x;correct_a"]),
    "semicolons, and commas in cells": (b"x;correct_a;correct_b\n1,5;0;1\n", "t.csv", ["commas", "';'"]),
    "tabs": (b"x\tcorrect_a\tcorrect_b\n1\t0\t1\n", "t.csv", ["commas", r"'\t'"]),
    "Latin-1": ("x,correct_a,correct_b\n1,0,1\nß,1,0\n".encode("latin-1"), "t.csv", ["not UTF-8", "line 3"]),
    "UTF-16": ("x,correct_a,correct_b\n1,0,1\n".encode("utf-16"), "t.csv", ["not UTF-8", "line 1"]),
    "Parquet in name only": (b"x,correct_a,correct_b\n1,0,1\n", "t.parquet", ["cannot be read"]),
    "an unclosed quote": (
        b'x,note,correct_a,correct_b\n1,"a,0,1\n2,b,0,1\n',
        "t.csv",
        ["Row #2: Expected 4 columns"],
    ),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files(case: str, tmp_path: Path) -> None:
    content, name, words = BAD_FILES[case]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(L2DError) as caught:
        load(path)
    message = str(caught.value)
    named_by_its_parameter = case in ("not there", "another kind")  # before anything is read
    assert message.startswith(f"path={path}: " if named_by_its_parameter else f"{path}: ")
    assert "\n" not in message
    for expected in words:
        assert expected in message


def test_no_path() -> None:
    with pytest.raises(ParameterError, match=r"^path: missing"):
        table(None).load(Path())


def test_damaged_images_are_named(tmp_path: Path) -> None:
    for i in range(10):
        (tmp_path / f"{i}.png").write_bytes(b"not an image")
    cells = {**GOOD, "file": [f"{i}.png" for i in range(10)]}
    with pytest.raises(L2DError, match=r"column file: .* not an image .* 10 of 10 rows: 1, 2, .*'0\.png'"):
        load(write(tmp_path, cells), image="file")


def test_many_rows_are_not_all_listed() -> None:
    sheet = Sheet(Path("t.csv"), {"x": pa.chunked_array([[None] * 2000])})
    with pytest.raises(L2DError, match=r"2,000 of 2,000 rows: 1, 2, .* 12 and 1,988 more \(row 1"):
        sheet.numbers("x")


# Whole runs


def separable(n: int) -> Cells:
    """a is right where x > 0, b elsewhere: a router can be perfect, the best expert is right half the time."""
    x = np.random.default_rng(0).uniform(-1, 1, size=n)
    cells: Cells = {"x": x.tolist(), "noise": np.random.default_rng(1).normal(size=n).tolist()}
    return {**cells, "correct_a": (x > 0).astype(int).tolist(), "correct_b": (x <= 0).astype(int).tolist()}


Tiny = Callable[..., DictConfig]


def test_prices_of_rows_become_costs(tmp_path: Path) -> None:
    """c = error + price of this very row."""
    cells = in_order({**GOOD, "price_a": [i / 4 for i in range(10)], "price_b": [0] * 10})
    overrides = ["dataset=table", f"dataset.path={write(tmp_path, cells)}", "dataset.split=split", "cost=columns"]
    overrides += ["validation_fraction=0.25"]
    splits = assembled(compose(overrides))
    assert splits.test.costs.tolist() == [[0 + 8 / 4, 1], [1 + 9 / 4, 0]]
    assert splits.train.costs[:, 0].tolist() == [row % 2 + row / 4 for row in splits.train.rows.tolist()]
    half = assembled(compose([*overrides, "cost.scale=0.5"]))
    assert half.test.costs.tolist() == [[0 + 8 / 8, 1], [1 + 9 / 8, 0]]
    assert half.test.prices.tolist() == [[8 / 8, 0], [9 / 8, 0]]


@pytest.mark.parametrize("override", ["method=plugin", "aux=label"])
def test_what_goes_by_the_label_names_the_key(override: str, tmp_path: Path) -> None:
    given = ["dataset=table", f"dataset.path={write(tmp_path, in_order(GOOD))}", "dataset.split=split"]
    given += ["validation_fraction=0.3", "recipe.batch_size=4", "trainer.accelerator=cpu", override]
    with pytest.raises(L2DError, match=r"dataset\.label"):
        build(compose(given))


@pytest.mark.slow
def test_a_router_learns_a_table(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, separable(600))
    overrides = ["dataset=table", f"dataset.path={path}", "dataset.name=mine", "router.width=32"]
    metrics = train(tiny(*overrides, "recipe.epochs=20", "recipe.batch_size=64", "recipe.optimizer.lr=0.01"))
    assert metrics["rows"] == {"train": 432, "validation": 48, "test": 120}
    assert metrics["deferral_loss"] < 0.1 < 0.4 < metrics["baselines"]["best_single"]["deferral_loss"]
    assert [expert["name"] for expert in metrics["experts"]] == ["a", "b"]
    assert list((tmp_path / "runs" / "mine" / "own" / "table" / "error" / "mild").iterdir())


@pytest.mark.slow
def test_another_file_in_the_same_place_is_noticed(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, separable(100))
    config = tiny("dataset=table", f"dataset.path={path}", "recipe.epochs=1")
    assert train(config) == train(config)
    write(tmp_path, separable(101))
    with pytest.raises(L2DError, match="data"):
        train(config)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["tdef", "ce", "cwce", "ldam", "cost_regression"])
def test_every_method_does_without_labels(method: str, tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, separable(100))
    metrics = train(tiny("dataset=table", f"dataset.path={path}", "recipe.epochs=1", f"method={method}"))
    assert 0 <= metrics["deferral_loss"] <= 1


@pytest.mark.slow
def test_a_table_with_images_trains_an_image_router(tiny: Tiny, tmp_path: Path) -> None:
    for i in range(10):
        Image.new("RGB", (16, 16), color=(25 * i, 0, 0)).save(tmp_path / f"{i}.png")
    path = write(tmp_path, {**GOOD, "file": [f"{i}.png" for i in range(10)]})
    overrides = ["dataset=table", f"dataset.path={path}", "dataset.image=file", "dataset.image_size=16"]
    metrics = train(tiny(*overrides, "router=resnet18_slim", "recipe=small", "validation_fraction=0.2"))
    assert metrics["rows"] == {"train": 6, "validation": 2, "test": 2}
    with pytest.raises(L2DError, match="reads rows of numbers, not images"):
        train(tiny(*overrides, "validation_fraction=0.2"))


def test_an_image_router_refuses_numbers(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, separable(100))
    with pytest.raises(L2DError, match="reads images, not rows"):
        train(tiny("dataset=table", f"dataset.path={path}", "router=resnet18_slim", "recipe=small"))
    assert not (tmp_path / "runs").exists()


def test_the_example_makes_a_table_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    script = [sys.executable, str(ROOT / "examples" / "make_table.py"), str(path)]
    said = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert "2,000 rows, 15 columns (simulated)" in said
    arrays = load(path)
    assert arrays.train_inputs.shape == (1600, 6)
    assert whole(arrays, "prices").shape == (2000, 3)


def test_labels_are_ordered_as_numbers_where_they_are_numbers() -> None:
    """Coverage takes the classes in order: 10 after 9, words after numbers."""
    assert class_numbers(["10", "2", "b", "0", "a", "2"], 6)[0].tolist() == [2, 1, 4, 0, 3, 1]


def test_text_is_read_as_it_is_written(tmp_path: Path) -> None:
    sheet = read_sheet(write(tmp_path, {"t": ["024", "1.50", "true"], "n": [1, 2, 3]}), ["t"])
    assert sheet.texts("t") == ["024", "1.50", "true"]
    path = write(tmp_path, {"t": [1, 2]}, "table.parquet")
    with pytest.raises(L2DError, match="column t: not text but int64"):
        read_sheet(path, ["t"]).texts("t")


def test_a_cell_may_be_longer_than_two_megabytes(tmp_path: Path) -> None:
    texts = ["word " * 500_000, "short"]
    assert read_sheet(write(tmp_path, {"t": texts})).texts("t") == texts


@pytest.mark.parametrize(("column", "parameter"), [("label", "features"), ("split", "split")])
def test_columns_that_give_the_answer_away_are_not_taken_in_silence(
    column: str, parameter: str, tmp_path: Path
) -> None:
    path = write(tmp_path, {**GOOD, column: [0, 1] * 5})
    with pytest.raises(ParameterError, match=rf"{column}={column}") as caught:
        load(path)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("column", ["target", "answer", "Label"])
def test_every_column_that_sounds_like_the_answer_must_be_named(column: str, tmp_path: Path) -> None:
    path = write(tmp_path, {**GOOD, column: [0, 1] * 5})
    with pytest.raises(ParameterError, match=rf"^features: the router would see column {column}; say label={column},"):
        load(path)
    assert load(path, features=["x", column]).seen.features == ("x", column)


def test_a_column_is_numeric_if_its_cells_are_and_a_few_slips_are_refused(tmp_path: Path) -> None:
    """One without any cell is none, nor is one whose cells are words as often as numbers."""
    odd: Cells = {"empty": [""] * 10, "half": [1, "one"] * 5, "gaps": [1] * 10}
    assert load(write(tmp_path, {**GOOD, **odd})).seen.features == ("x", "y", "gaps")
    with pytest.raises(L2DError, match=r"column half: not a number .* in 4 of 10 rows: 2, 4, 6, 8, the first is 'one'"):
        load(write(tmp_path, {**GOOD, "half": [1, "one"] * 4 + [1, 1]}))
    with pytest.raises(L2DError, match=r"column half: not a number .* in 8 of 10 rows: .* the first is 'NA'"):
        load(write(tmp_path, {**GOOD, "half": [1, 2, *["NA", "n/a"] * 4]}))  # numbers, where there is something


def test_what_experts_did_is_not_for_the_router(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known_later = {
        f"{kind}_a": [1.0] * 10 for kind in ("answer", "probability", "tokens", "seconds", "latency", "Correct")
    }
    assert load(write(tmp_path, {**separable(10), **known_later})).seen.features == ("x", "noise")
    assert "cost=columns" not in capsys.readouterr().err
    prices = {"price_a": [1.0] * 10, "price_b": [0.0] * 10}
    assert load(write(tmp_path, {**separable(10), **prices})).seen.features == ("x", "noise")
    said = capsys.readouterr().err
    assert said.endswith("the router sees: x, noise; prices: price_a, price_b (they count with cost=columns)\n")


@pytest.mark.parametrize("prefix", MONEY)
def test_names_of_money(prefix: str, tmp_path: Path) -> None:
    """None of them makes an expert, and a router does not see them."""
    arrays = load(write(tmp_path, {**GOOD, f"{prefix}a": [0.5] * 10, f"{prefix}b": [0.25] * 10}))
    assert arrays.panel is not None
    assert arrays.panel.names == ("a", "b")
    assert whole(arrays, "prices").tolist() == [[0.5, 0.25]] * 10
    assert arrays.train_inputs.shape == (8, 2)


def test_money_that_fits_no_expert_is_refused_only_if_it_nearly_does(tmp_path: Path) -> None:
    assert load(write(tmp_path, {**GOOD, "cost_busd": [0.5] * 10})).panel is not None
    with pytest.raises(L2DError, match=r"column cost_eur_b looks like the price of b; call it price_b"):
        load(write(tmp_path, {**GOOD, "cost_eur_b": [0.5] * 10}))


def test_empty_outcomes_were_not_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Worked out by hand. A row without any outcome is left out. Prices, latencies and propensities may be empty there too."""
    cells: Cells = {
        "x": [1, 2, 3, 4, 5],
        "answer": ["cat", "dog", "cat", "dog", "dog"],
        "correct_a": ["1", "", "0", "", "nan"],
        "prediction_b": ["cat", "cat", "", "", ""],
        "loss_c": ["", "", "0.5", "", "2"],
        **{
            f"{what}_{name}": ["0.5", "0.5", "", "", "0.5"]
            for what in ("price", "latency", "propensity")
            for name in "b"
        },
        **{f"{what}_{name}": ["0.25"] * 5 for what in ("price", "latency", "propensity") for name in "ac"},
        "split": ["train", "train", "train", "train", "test"],
    }
    arrays = load(write(tmp_path, cells), label="answer", split="split")
    nan = float("nan")
    expected = torch.tensor([[0, 0, nan], [nan, 1, nan], [1, nan, 0.5], [nan, nan, 2]])
    torch.testing.assert_close(whole(arrays, "errors"), expected.double(), equal_nan=True)
    assert arrays.panel is not None
    assert (
        arrays.panel.train.propensities is None
    )  # two were asked on one row, so perhaps none was on the row that is left out
    for part in ("prices", "latencies"):
        found = whole(arrays, part)
        assert found[:, 0].tolist() == [0.25] * 4
        assert found[:2, 1].tolist() == [0.5, 0.5]
        assert found[2, 1].isnan()
    said = capsys.readouterr().err
    assert "left out 1 row without any outcome (taken to be missing at random)\n" in said
    assert "propensities are estimated anew: several experts were asked on one row" in said


def test_names_of_price_columns_say_dollars(tmp_path: Path) -> None:
    for prefix in MONEY:
        panel = load(write(tmp_path, {**GOOD, **{f"{prefix}{name}": [0.5] * 10 for name in "ab"}})).panel
        assert panel is not None
        assert panel.dollars is ("usd" in prefix)


def test_two_experts_whose_names_differ_in_capitals(tmp_path: Path) -> None:
    with pytest.raises(
        L2DError, match=r"columns correct_b and correct_B: names of experts that differ only in capitals"
    ):
        load(write(tmp_path, {**GOOD, "correct_B": [0] * 10}))


def test_two_experts_whose_names_have_spaces_in_other_places(tmp_path: Path) -> None:
    panel = load(write(tmp_path, {**GOOD, "correct_m 1 1": [0] * 10, "correct_m 11": [0] * 10})).panel
    assert panel is not None
    assert panel.names == ("a", "b", "m 1 1", "m 11")


def test_no_outcome_at_all(tmp_path: Path) -> None:
    with pytest.raises(L2DError, match="no row has an outcome of any expert"):
        load(write(tmp_path, {"x": [1, 2], "correct_a": ["", ""], "correct_b": ["", ""]}))


@pytest.mark.parametrize(
    "times", [list(range(10, 0, -1)), [f"2026-01-{11 - day:02d}T00:00:00+01:00" for day in range(1, 11)]]
)
def test_the_latest_rows_are_for_testing(
    times: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Worked out by hand: rows run backwards in time, so the first two are the latest. The time is no feature."""
    cells: Cells = {"x": list(range(10)), "when": times, "correct_a": [1, 0] * 5, "correct_b": [1] * 10}
    arrays = load(write(tmp_path, cells), split_by="when")
    assert sorted(arrays.test_inputs.flatten().tolist()) == [0, 1]
    assert sorted(arrays.train_inputs.flatten().tolist()) == list(range(2, 10))
    assert (
        "from the 8 earlier rows to the 2 later ones, ± 95 %: a 0.5000 to 0.5000 (+0.0000 ± 1.0476)"
        in capsys.readouterr().err
    )


def test_rows_of_one_text_are_on_one_side_of_the_time(tmp_path: Path) -> None:
    """The text that came again late is as old as its first row."""
    cells: Cells = {"prompt": ["old", "b c", "d e", "f g", "new", "old"], "t": [1, 2, 3, 4, 5, 6]}
    cells |= {"correct_a": [1] * 6, "correct_b": [0] * 6}
    arrays = load(write(tmp_path, cells), split_by="t", text="prompt", test_fraction=0.3)
    assert len(arrays.test_inputs) == 2
    assert arrays.test_groups is not None
    assert arrays.groups is not None
    assert not set(arrays.test_groups.tolist()) & set(arrays.groups.tolist())


def test_a_split_of_its_own_and_one_by_time(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"^split_by=t: the column in `split` says already"):
        load(write(tmp_path, GOOD), split="split", split_by="t")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_ids_are_no_features(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If their name says so, whether they repeat or not; in a Parquet file they may be numbers written as text."""
    numbers = [7 * i + 1000 for i in range(10)]
    ids: Cells = {
        "request_id": numbers,
        "Query_ID": [str(one) for one in numbers],
        "uuid": numbers,
        "row_uuid": numbers,
        "customer_id": [1, *range(1, 10)],
    }
    words: Cells = {"trace_id": [f"t-{i}" for i in range(10)]}
    words["order_id"] = [*map(str, range(9)), "none yet"]
    others: Cells = {"valid": numbers, "id_card": numbers}
    path = write(tmp_path, {**without("y"), **ids, **words, **others}, name)
    assert load(path).seen.features == ("x", *others)
    said = capsys.readouterr().err
    assert "not used: id, note, request_id, Query_ID, uuid, row_uuid, customer_id, trace_id, order_id" in said
    [line] = [line for line in said.splitlines() if "by name an id" in line]
    told = f"the router does not see {', '.join(ids)}, by name an id; to use one, list it in dataset.features"
    assert line == f"{path}: {told}"
    assert load(path, features=["x", "request_id"]).seen.features == ("x", "request_id")
    assert "by name an id" not in capsys.readouterr().err


def test_a_text_that_no_router_reads_is_hinted_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If most cells differ and have several words, and nobody named what the router sees."""
    words = {"request": [f"r-{i}" for i in range(10)], "note": ["some text"] * 10}
    cells = {**GOOD, **words, "answer_a": [f"it is {i}" for i in range(10)]}
    path = write(tmp_path, {**cells, "query": [f"what is {i}" for i in range(10)]})
    load(path)
    told = "the router does not see query, which looks like text; read it with dataset.text=query"
    assert f"{path}: {told}" in capsys.readouterr().err.splitlines()
    for named in ({"features": ["x"]}, {"text": "query"}, {"encoder": None}):
        load(path, **named)
        assert "looks like text" not in capsys.readouterr().err
    load(write(tmp_path, cells))
    assert "looks like text" not in capsys.readouterr().err


def test_repeated_texts_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, in_order({**GOOD, "query": ["a b", "c", "a  b", "a b", "d", "e", "f", "g", "h", "c"]}))
    load(path, text="query", **SPLIT)
    assert "earlier row" not in capsys.readouterr().err  # the column decides about their sides
    load(write(tmp_path, {**GOOD, "query": ["a b", "c", "a  b", "a b", *"defgh", "c"]}), text="query")
    assert "3 rows with the text of an earlier row" in capsys.readouterr().err
    load(write(tmp_path, {**GOOD, "query": list("abcdefghij")}), text="query")
    assert "earlier row" not in capsys.readouterr().err


def test_what_the_router_sees_is_listed_up_to_sixty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [f"f{i}" for i in range(61)]
    load(write(tmp_path, {**without("x", "y"), **dict.fromkeys(numbers, [0.5] * 10)}))
    assert f"the router sees: {', '.join(numbers[:60])} and 1 more; not used: id, note\n" in capsys.readouterr().err


@pytest.mark.slow
def test_a_finished_run_does_not_hide_a_missing_file(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, separable(100))
    train(tiny("dataset=table", f"dataset.path={path}", "recipe.epochs=1"))
    with pytest.raises(L2DError, match=r"^dataset\.path=.*typo\.csv: no such file"):
        train(tiny("dataset=table", f"dataset.path={tmp_path / 'typo.csv'}", "recipe.epochs=1"))


def test_spaces_around_a_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(L2DError, match=r"column 'correct_a ': .*spaces around"):
        read_sheet(write(tmp_path, {"correct_a ": [1], "correct_b": [0]}))


def test_two_rows_with_one_id(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(
        "id,x,correct_a,correct_b\n" + "".join(f"{i % 9},{i},{i % 2},1\n" for i in range(10)), encoding="utf-8"
    )
    with pytest.raises(L2DError, match=r"column id: .* in 1 of 10 rows: 10, the first is '0'"):
        load(file)


def test_a_misspelt_outcome_is_not_left_out(tmp_path: Path) -> None:
    """With it, an expert that has a price would be lost without a word. A price of a model that answers nothing is no mistake."""
    cells = {**GOOD, **{f"usd_{name}": [0.1] * 10 for name in ("a", "b", "large")}}
    path = write(tmp_path, {**cells, "corect_large": [1] * 10})
    with pytest.raises(L2DError, match=r"table\.csv: column corect_large: did you mean correct_large\? Rename "):
        load(path)
    for name in ("Correct_large", "is_correct_large"):
        with pytest.raises(L2DError, match=rf"table\.csv: column {name}: did you mean correct_large\?"):
            load(write(tmp_path, {**cells, name: [1] * 10}))
    with pytest.raises(L2DError, match=r"column Correct_large: did you mean correct_large\?"):  # without a price, too
        load(write(tmp_path, {**GOOD, "Correct_large": [1] * 10}))
    assert load(write(tmp_path, cells)).panel is not None


LONG = "claude-3-5-sonnet-20241022-v2"
VALID = [
    ["correct_gpt-4o-mini", "correct_llama-3-8b", "cost_usd_gpt-4o-mini", "cost_usd_llama-3-8b"],
    ["correct_gpt-4", "correct_llama", "price_gpt-4", "price_llama", "price_gpt-4o"],
    [f"correct_{LONG}", "correct_b", f"price_{LONG}", "price_b", f"latency_{LONG}", f"intensity_{LONG}"],
    ["correct_a", "correct_b", f"price_{LONG}", f"content_{LONG}", f"answer_{LONG}"],
    ["correct_a", "correct_b", "cost", "score", "corrections", "corrected", "user_id", "prompt_id", "property_a"],
    ["correct_a", "correct_b", "price_total", "corrects_total", "lossy_total", "n_correct"],
]


@pytest.mark.parametrize("names", VALID, ids=range(len(VALID)))
def test_columns_that_are_no_slips(tmp_path: Path, names: list[str]) -> None:
    """Names that look alike, and money of models without outcomes: all these tables are fine."""
    panel = load(write(tmp_path, {"x": [*range(10)], **{name: [i % 2 for i in range(10)] for name in names}})).panel
    assert panel is not None
    assert [f"correct_{name}" for name in panel.names] == names[:2]


def test_an_outcome_is_no_slip_of_another(tmp_path: Path) -> None:
    """prediction_b, before the end _a, is near prediction; but it is the outcome of b_a, and a has none."""
    cells: Cells = {"x": [*range(10)], "label": [0, 1] * 5, "prediction_b_a": [0, 1] * 5, "prediction_c": [1] * 10}
    panel = load(write(tmp_path, {**cells, "price_a": [0.1] * 10}), label="label").panel
    assert panel is not None
    assert panel.names == ("b_a", "c")


def test_a_misspelt_outcome_of_a_log(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": ["p", "q"], "expert": ["a", "b"], "corect": [1, 0]})
    with pytest.raises(L2DError, match=r"no experts; .* has a column correct, prediction, loss; is that corect\?"):
        load(path)
    path = write(tmp_path, {"id": [1, 1, 1], "x": [1, 1, 1], "expert": ["a", "b", "a"], "corect": [1, 0, 1]})
    with pytest.raises(L2DError, match=r"no experts; .* is that corect\?"):  # not that an id comes again
        load(path)


def test_misspelt_propensities_are_not_left_out(tmp_path: Path) -> None:
    for name, said in (("propensty_a", "propensity_a"), ("Propensity_b", "propensity_b")):
        with pytest.raises(
            L2DError, match=rf"table\.csv: column {name}: did you mean {said}\? Rename it if it is something else$"
        ):
            load(write(tmp_path, {**GOOD, name: [0.5] * 10}))
    with pytest.raises(L2DError, match=r"no column propensity_b; give every expert one"):
        load(write(tmp_path, {**GOOD, "propensity_a": [0.5] * 10}))
    assert load(write(tmp_path, {**GOOD, "propensity_score": [0.5] * 10})).panel is not None


@pytest.mark.parametrize(
    ("prices", "told"), [([0.004, 0.001], "cost.error_price: "), ([0.004, 0.011], ""), ([0.0, 0.0], "")]
)
def test_prices_that_hardly_count(prices: list[float], told: str) -> None:
    found = price_hint({"scale": 1}, prices, [0.3, 0.5])
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_latencies_in_milliseconds_are_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for latency, told in ((1200.0, True), (12.0, False)):
        load(write(tmp_path, {**GOOD, "latency_a": [latency] * 10, "latency_b": [latency] * 10}))
        assert ("latencies are seconds; are these milliseconds?" in capsys.readouterr().err) == told
