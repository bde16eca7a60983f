"""People's labels belong to their images and come from the published files alone; nothing in a file is run."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.experts import published_files as files
from tests.experts.published_files import HUNDRED, LABELS, PEOPLE, TEN, TEST, TRAIN, VOTES, counts, load, ten

from l2d.data.arrays import Arrays
from l2d.experts.annotations import draw_votes, read_annotations, read_columns, read_votes
from l2d.utils.errors import L2DError, ParameterError


def ask(data_dir: Path, images: Arrays | None = None, *, people: int = 1) -> None:
    """Read the annotators' labels and, of CIFAR-10, the votes."""
    folder = data_dir / "human"
    if images is not None:
        read_annotations(folder / HUNDRED, ["noisy_label"], images)
        return
    read_annotations(folder / TEN, PEOPLE[:people], files.arrays())
    read_votes(folder / VOTES, people, files.arrays())


@given(st.integers(0, 999))
def test_no_vote_is_given_twice(seed: int) -> None:
    """As many people as votes: what they say is the votes, all of them."""
    table = np.random.default_rng(seed).multinomial(6, [0.5, 0.3, 0.2, 0.0], size=8)
    drawn = draw_votes(table, 6, np.random.default_rng(seed))
    for row, said in enumerate(drawn.tolist()):
        assert np.bincount(said, minlength=4).tolist() == table[row].tolist()


def test_votes_are_drawn_in_proportion() -> None:
    """Votes (7, 2, 0, 1): each person says class k with k's share, 5 σ on 40,000; two agree in (7·6 + 2·1)/(10·9) of the cases, not in
    (49 + 4 + 1)/100 as they would with replacement."""
    drawn = draw_votes(np.tile([7, 2, 0, 1], (40_000, 1)), 2, np.random.default_rng(0)).numpy()
    for person in range(2):
        shares = np.bincount(drawn[:, person], minlength=4) / 40_000
        np.testing.assert_allclose(shares, [0.7, 0.2, 0, 0.1], atol=5 * (0.25 / 40_000) ** 0.5)
        assert shares[2] == 0
    assert np.mean(drawn[:, 0] == drawn[:, 1]) == pytest.approx(44 / 90, abs=5 * (0.25 / 40_000) ** 0.5)


@pytest.mark.parametrize("name", [TEN, HUNDRED, VOTES])
def test_a_file_in_another_order_is_refused(name: str, data_dir: Path) -> None:
    file, order = data_dir / "human" / name, np.random.default_rng(1).permutation
    if name == VOTES:
        np.save(file, counts()[order(TEST)])
        words = r"cifar10h-counts\.npy: .*order.* \d+%"
    else:
        content = load(data_dir, name)
        rows = order(len(content["clean_label"]))
        torch.save({key: values[rows] for key, values in content.items()}, file)
        differ = int((content["clean_label"] != content["clean_label"][rows]).sum())
        words = rf"_human\.pt: .*order.* {differ} of {len(rows)} .*clean_label"
    with pytest.raises(L2DError, match=words):
        ask(data_dir, files.carved() if name == HUNDRED else None)


@pytest.mark.parametrize("name", [TEN, VOTES])
def test_a_missing_file_is_named_with_what_to_do(name: str, data_dir: Path) -> None:
    (data_dir / "human" / name).unlink()
    with pytest.raises(L2DError, match=rf"/human/{name}: missing; .*docs/human_experts\.md"):
        ask(data_dir)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1, 2], ".*dict"),
        ({"clean_label": LABELS[0]}, ".*random_label1"),
        (ten(random_label1=LABELS[0][:-1]), r"random_label1 .*60.*\[59\]"),
        (ten(random_label1=np.eye(TRAIN, dtype=np.int64)), r"random_label1 .*\[60, 60\]"),
        (ten(random_label1=LABELS[0].tolist()), r"random_label1 .*object"),
        (ten(random_label1=LABELS[0] + 1), r"random_label1 .*0\.\.9"),
        (ten(random_label1=LABELS[0] - 1), r"random_label1 .*0\.\.9"),
        (ten(random_label1=LABELS[0].astype(np.float64)), "not opened"),
        (ten(extra=Path("x")), "not opened"),
    ],
)
def test_other_contents_are_refused(content: Any, words: str, data_dir: Path) -> None:
    torch.save(content, data_dir / "human" / TEN)
    with pytest.raises(L2DError, match=rf"{TEN}: {words}") as caught:
        ask(data_dir)
    assert "\n" not in str(caught.value)


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.file,)


def test_foreign_code_is_refused_and_not_run(data_dir: Path) -> None:
    trap = data_dir / "trap"
    content = ten(random_label1=Touch(trap))
    for write in (torch.save, lambda content, file: file.write_bytes(pickle.dumps(content))):
        write(content, data_dir / "human" / TEN)
        with pytest.raises(L2DError, match="not opened"):
            ask(data_dir)
    np.save(data_dir / "human" / VOTES, np.array([Touch(trap)]))
    torch.save(ten(), data_dir / "human" / TEN)
    with pytest.raises(L2DError, match="not a readable array"):
        ask(data_dir)
    assert not trap.exists()
    load(data_dir, TEN)
    pickle.loads(pickle.dumps(Touch(trap)))
    assert trap.exists()  # it would have


@pytest.mark.parametrize("damage", [b"", None])
def test_damaged_files_are_named(damage: bytes | None, data_dir: Path) -> None:
    for name, words in ((VOTES, "not a readable array"), (TEN, "not opened")):
        file = data_dir / "human" / name
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
        with pytest.raises(L2DError, match=rf"{name}: {words}"):
            ask(data_dir)


@pytest.mark.parametrize("core", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_files_of_older_and_newer_numpy_are_read(core: bytes, tmp_path: Path) -> None:
    """NumPy 2 moved the function that pickled arrays name; torch's files were not always archives, as this is none."""
    values, file = np.arange(10, dtype=np.uint8), tmp_path / TEN
    torch.save({"a": values, "b": values[:, None]}, file, _use_new_zipfile_serialization=False)
    file.write_bytes(re.sub(rb"cnumpy\._?core\.multiarray\n", b"c" + core + b"\n", file.read_bytes()))
    assert core in file.read_bytes()
    read = read_columns(file, ("a", "b"), 10, 10)
    assert read["a"].tolist() == read["b"].tolist() == list(range(10))
    assert read["a"].dtype == torch.int64


def test_other_votes_are_refused(data_dir: Path) -> None:
    shapes = {r"\[40, 10\].*\[39, 10\]": counts()[:-1], r"\[40, 9\]": counts()[:, :9]}
    for words, table in {**shapes, "float64": counts() / 10, "negative": counts() - 1}.items():
        np.save(data_dir / "human" / VOTES, table)
        with pytest.raises(L2DError, match=rf"{VOTES}: .*{words}"):
            ask(data_dir)


def test_more_people_than_votes(data_dir: Path) -> None:
    np.save(data_dir / "human" / VOTES, np.eye(10, dtype=np.int64)[LABELS[1]])
    ask(data_dir, people=1)
    with pytest.raises(ParameterError, match=rf"^people=2: .*{VOTES} has only 1 vote"):
        ask(data_dir, people=2)
    some = counts()
    some[7] = np.eye(10, dtype=np.int64)[LABELS[1][7]] * 2  # one image with fewer than the others
    np.save(data_dir / "human" / VOTES, some)
    ask(data_dir, people=2)
    with pytest.raises(ParameterError, match=rf"^people=3: .*{VOTES} has only 2 vote"):
        ask(data_dir, people=3)


def test_nine_majorities_of_ten_must_be_the_label(data_dir: Path) -> None:
    """Of 40 images, 4 may be called something else."""
    for number in (4, 5):
        said = (LABELS[1] + (np.arange(TEST) < number)) % 10
        np.save(data_dir / "human" / VOTES, counts(said))
        if number == 4:
            ask(data_dir)
    with pytest.raises(L2DError, match="88%"):
        ask(data_dir)
