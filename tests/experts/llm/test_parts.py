"""Finished pieces are used again if they are whole and of the same questions."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.experts.llm.tiny_models import LETTERS, Wrapped, make_tokenizer, questions, same

from l2d.experts.llm.scoring import read_part, score_letters, write_part


def test_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "parts" / "00000.npz"
    assert read_part(file, [3, 1]) is None
    write_part(file, [3, 1], {"answers": np.array([2, 0])})
    found = read_part(file, [3, 1])
    assert found is not None
    assert {name: array.tolist() for name, array in found.items()} == {"answers": [2, 0]}
    assert read_part(file, [1, 3]) is None  # of other rows


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(b"NUMPY") + 130] ^= 1  # of the first array, after its header
    file.write_bytes(content)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("damage", [flip_a_bit, lambda file: file.write_bytes(b"PK")])
def test_a_damaged_part_is_noticed(
    model: Any, tmp_path: Path, damage: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    given: Any = {"tokenizer": make_tokenizer(), "letters": LETTERS, "batch_size": 5, "progress": False}
    run: Any = functools.partial(score_letters, prompts=questions(12), **given)
    whole = run(model, parts=tmp_path)
    damage(sorted(tmp_path.iterdir())[1])
    again: list[int] = []
    same(run(Wrapped(model, again.append), parts=tmp_path), whole)
    assert again == [5]
    assert "damaged" in capsys.readouterr().err
