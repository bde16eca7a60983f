"""Images as a router sees them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from l2d.data.arrays import Seen
from l2d.data.inputs import array_inputs, decode_images, image_inputs, row_inputs, sheet_inputs
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError


def test_image_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Height before width; what is missing is told apart."""
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    images, bad = decode_images([tmp_path / "none.png", tmp_path / "wide.png"], (2, 3, 3))
    assert images[1].tolist() == pixels.tolist()
    assert bad.tolist() == [True, False]
    Image.fromarray(np.array([[0, 128, 255]], np.uint8)).save(tmp_path / "grey.png")
    images, _ = decode_images([tmp_path / "grey.png"], (1, 3, 1), white=16)
    assert images.flatten().tolist() == [0, 8, 16]
    monkeypatch.setenv("HOME", str(tmp_path))
    Image.new("L", (8, 8), 100).save(tmp_path / "a.png")
    sheet = Sheet(Path("elsewhere", "table.csv"), {"file": pa.array(["~/a.png"])})
    assert sheet_inputs(sheet, Seen(image="file"), (8, 8, 1), lengths).unique().tolist() == [100]


def test_rows_and_arrays() -> None:
    rows = [{"text": "b", "y": 2, "x": 1}, {"text": "a", "y": 4, "x": 3}]
    found = row_inputs(
        rows, Seen(("x", "y"), "text"), lambda texts: np.array([[ord(one)] for one in texts], dtype=np.float32)
    )
    assert found.tolist() == [[1, 2, 98], [3, 4, 97]]
    assert array_inputs(np.zeros((1, 4, 4, 3), np.uint8), (4, 4, 3), ()).dtype == torch.uint8
    assert array_inputs(np.zeros((1, 2), np.uint8), (2,), ()).dtype == torch.float32


def test_words_are_one_number_each() -> None:
    """In the order of the features, from rows and from a file. A word that training did not have has zeros, as has none."""
    seen = Seen(("x", "tenant", "y"), categories={"tenant": ("3", "acme")})
    words = ["acme", " 3.0", "other", None]
    expected = [[5, 0, 1, 6], [5, 1, 0, 6], [5, 0, 0, 6], [5, 0, 0, 6]]
    assert row_inputs([{"y": 6, "tenant": word, "x": 5} for word in words], seen, lengths).tolist() == expected
    cells = {"x": pa.array([5] * 4), "y": pa.array([6] * 4), "tenant": pa.array(words)}
    assert sheet_inputs(Sheet(Path("q.csv"), cells), seen, (4,), lengths).tolist() == expected
    with pytest.raises(L2DError, match="column y: empty"):
        row_inputs([{"y": None, "tenant": "acme", "x": 5}], seen, lengths)


@pytest.mark.parametrize("columns", [("x", "y"), ()])
def test_an_array_of_another_shape_is_refused(columns: tuple[str, ...]) -> None:
    with pytest.raises(L2DError, match=r"^queries: .*\['n', 2\].* float64 \[1, 3\]$") as caught:
        array_inputs(np.zeros((1, 3)), (2,), columns)
    assert ("(x, y)" in str(caught.value)) == bool(columns)


def lengths(texts: Sequence[str]) -> np.ndarray:
    return np.array([[len(text)] for text in texts], dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y": None}, "column y: empty"),
        ({"y": "two"}, "column y: .*not a number"),
        ({"y": -1e39}, "column y: too large"),
        ({"x": float("inf")}, "column x: too large"),
        ({"text": 3}, "string"),
        ({"text": " \n"}, "empty"),
        ({"text": "ab\udc80"}, "UTF-8"),
    ],
)
def test_a_wrong_query_is_named_by_its_place_and_its_column(changes: dict[str, object], words: str) -> None:
    good = {"x": 1, "y": 2, "text": "a", "other": "ignored"}
    with pytest.raises(L2DError, match=f"^query 2: .*{words}"):
        row_inputs([good, good | changes, good], Seen(("x", "y"), "text"), lengths)


@pytest.mark.parametrize("lacking", ["y", "text"])
def test_a_query_without_a_column(lacking: str) -> None:
    good = {"x": 1, "y": 2, "text": "a"}
    others = {name: cell for name, cell in good.items() if name != lacking}
    with pytest.raises(L2DError, match=f"^query 2: has no {lacking}; .*{', '.join(others)}$"):
        row_inputs([good, others], Seen(("x", "y"), "text"), lengths)


@pytest.mark.parametrize(("columns", "name"), [(("x", "y"), "y"), ((), "2")])
def test_columns_without_a_name_are_counted_from_one(columns: tuple[str, ...], name: str) -> None:
    with pytest.raises(L2DError, match=f"^query 3: column {name}: "):
        array_inputs(np.array([[1, 2], [3, 4], [5, np.nan]]), (2,), columns)


def test_the_image_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, damaged, or so large that decoding it would fill the memory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    Image.new("RGB", (2, 2), (1, 2, 3)).save(tmp_path / "good.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "large.png")
    (tmp_path / "damaged.png").write_bytes(b"no image")
    assert image_inputs(["~/good.png"], (1, 1, 3), 255).tolist() == [[[[1, 2, 3]]]]
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 8)
    for name in ("missing.png", "damaged.png", "large.png"):
        with pytest.raises(L2DError, match=f"/{name}: "):
            image_inputs([tmp_path / "good.png", tmp_path / name], (1, 1, 3), 255)


def test_what_an_encoder_keeps_is_not_overwritten() -> None:
    """Rows of a table are moved about in the array that the inputs are in."""
    kept = np.array([[1.0], [2.0]], dtype=np.float32)
    sheet = Sheet(Path("t.csv"), {"text": pa.chunked_array([["a", "b"]])})
    inputs = sheet_inputs(sheet, Seen(text="text"), (), lambda _: kept[:])
    inputs += 5
    assert inputs.tolist() == [[6], [7]]
    assert kept.tolist() == [[1], [2]]
