"""Images as a router sees them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image

from l2d.data.arrays import Seen
from l2d.data.inputs import array_inputs, decode_images, read_images, row_inputs
from l2d.data.sheet import Sheet
from l2d.utils.errors import L2DError


def test_images_that_are_not_square(tmp_path: Path) -> None:
    """Height before width; what is missing is told apart."""
    pixels = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    images, bad = decode_images([tmp_path / "none.png", tmp_path / "wide.png"], (2, 3, 3))
    assert images[1].tolist() == pixels.tolist()
    assert bad.tolist() == [True, False]


def test_grey_stays_between_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 128, 255]], np.uint8)).save(tmp_path / "grey.png")
    images, _ = decode_images([tmp_path / "grey.png"], (1, 3, 1), white=16)
    assert images.flatten().tolist() == [0, 8, 16]


def test_images_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    Image.new("L", (8, 8), 100).save(tmp_path / "a.png")
    sheet = Sheet(Path("elsewhere", "table.csv"), {"file": pa.array(["~/a.png"])})
    assert read_images(sheet, "file", (8, 8, 1)).unique().tolist() == [100]


def test_numbers_come_before_the_text() -> None:
    rows = [{"text": "b", "y": 2, "x": 1}, {"text": "a", "y": 4, "x": 3}]
    found = row_inputs(
        rows, Seen(("x", "y"), "text"), lambda texts: np.array([[ord(one)] for one in texts], dtype=np.float32)
    )
    assert found.tolist() == [[1, 2, 98], [3, 4, 97]]


def test_pixels_stay_bytes() -> None:
    assert array_inputs(np.zeros((1, 4, 4, 3), np.uint8), (4, 4, 3), ()).dtype == torch.uint8
    assert array_inputs(np.zeros((1, 2), np.uint8), (2,), ()).dtype == torch.float32


def test_an_array_of_another_shape_is_refused() -> None:
    for columns, said in ((("x", "y"), " (x, y)"), ((), "")):
        with pytest.raises(L2DError) as caught:
            array_inputs(np.zeros((1, 3)), (2,), columns)
        assert str(caught.value) == f"queries: must be numbers ['n', 2]{said}, not float64 [1, 3]"
