"""One process makes an entry, the others wait; killed or damaged, it is made anew."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from l2d.experts.cache import Cache

MADE = {"train": np.arange(6, dtype=np.uint8).reshape(3, 2), "test": np.ones((2, 2), dtype=np.uint8)}


def never() -> dict[str, np.ndarray]:
    raise AssertionError("made although it is there")


def test_made_once_then_read_without_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path, "digits-I-trained", {"seed": 0})
    assert cache.get(lambda: MADE) is not MADE
    monkeypatch.setattr("l2d.experts.cache.alone", None)
    read = cache.get(never)
    assert {name: array.tolist() for name, array in read.items()} == {k: v.tolist() for k, v in MADE.items()}
    assert json.loads((cache.entry / "entry.json").read_text())["identity"] == {"seed": 0}
    assert cache.entry.name.startswith("digits-I-trained-")


def test_another_identity_is_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Cache(tmp_path, "x", {"seed": 0})
    others = [base.knowing(seed=1), base.knowing(data="abc"), Cache(tmp_path, "x", {"seed": 0.5})]
    assert len({base.entry, *(other.entry for other in others)}) == 4
    assert (before := base.knowing(seed=0).entry) == base.entry == base.knowing(seed=0.0).entry
    monkeypatch.setattr("l2d.experts.cache.VERSION", 0)
    assert base.entry != before


def flip_a_bit(entry: Path) -> None:
    content = bytearray((entry / "arrays.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (entry / "arrays.npz").write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_bit,
        lambda entry: (entry / "arrays.npz").unlink(),
        lambda entry: (entry / "entry.json").write_text("{"),
        lambda entry: (entry / "entry.json").write_text("[]"),
    ],
)
def test_damage_is_said_and_mended(tmp_path: Path, damage: object, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path, "x", {})
    cache.get(lambda: MADE)
    damage(cache.entry)  # type: ignore[operator]
    again = cache.get(lambda: MADE)
    assert again["train"].tolist() == MADE["train"].tolist()
    said = capsys.readouterr().err
    assert "damaged" in said
    assert str(cache.entry) in said
    cache.get(never)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    """An entry of Python objects, checksum and all, was put there by somebody else: it is made anew, nothing in it is run."""
    cache = Cache(tmp_path, "x", {})
    cache.get(lambda: MADE)
    np.savez(cache.entry / "arrays.npz", train=np.array([object()], dtype=object))
    checksum = hashlib.sha256((cache.entry / "arrays.npz").read_bytes()).hexdigest()
    (cache.entry / "entry.json").write_text(json.dumps({"sha256": checksum}))
    assert cache.get(lambda: MADE)["train"].dtype == np.uint8
    cache.get(never)


def test_a_making_that_failed_or_was_killed_is_not_taken(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "x", {})
    with pytest.raises(ZeroDivisionError):
        cache.get(lambda: {"train": np.zeros(1 // 0)})
    np.savez(cache.entry / "arrays.npz", train=np.zeros(1))  # entry.json was still to come
    assert cache.get(lambda: MADE)["train"].tolist() == MADE["train"].tolist()


def test_what_cannot_be_read_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails for a moment does not make a good entry a damaged one."""
    cache = Cache(tmp_path, "x", {})
    cache.get(lambda: MADE)

    def fail(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", fail)
        with pytest.raises(PermissionError):
            cache.get(never)
    cache.get(never)


def test_how_long_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 2.346 s while the arrays are made, and not while they are read."""
    now = 100.0
    monkeypatch.setattr("l2d.experts.cache.time", SimpleNamespace(monotonic=lambda: now))

    def make() -> dict[str, np.ndarray]:
        nonlocal now
        now += 2.346
        return MADE

    cache = Cache(tmp_path, "x", {})
    for _ in range(2):
        cache.get(make)
        assert json.loads((cache.entry / "entry.json").read_text())["seconds"] == 2.35


def test_what_was_made_while_this_process_waited_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path, "x", {})

    @contextmanager
    def others_first(*_: object) -> Iterator[None]:
        monkeypatch.undo()
        cache.get(lambda: MADE)
        yield

    monkeypatch.setattr("l2d.experts.cache.alone", others_first)
    assert cache.get(never)["train"].tolist() == MADE["train"].tolist()


def test_renew(tmp_path: Path) -> None:
    cache = Cache(tmp_path, "x", {})
    cache.get(lambda: MADE)
    other = {"train": np.zeros(1, dtype=np.uint8)}
    assert replace(cache, renew=True).get(lambda: other)["train"].tolist() == [0]
    assert cache.get(never)["train"].tolist() == [0]
    assert replace(cache, renew=True).knowing(seed=1).renew


def test_renew_forgets_what_a_killed_making_left(tmp_path: Path) -> None:
    """Parts of a making that was killed are for whoever continues it; who asks for new arrays wants none of them."""
    cache = Cache(tmp_path, "x", {})

    def killed() -> dict[str, np.ndarray]:
        cache.parts.mkdir()
        (cache.parts / "00000.npz").write_text("old")
        raise KeyboardInterrupt

    left: list[list[str]] = []

    def make() -> dict[str, np.ndarray]:
        left.append([file.name for file in cache.parts.glob("*")])
        return MADE

    for renew, found in ((False, ["00000.npz"]), (True, [])):
        with pytest.raises(KeyboardInterrupt):
            replace(cache, renew=True).get(killed)
        assert (cache.parts / "00000.npz").exists()
        replace(cache, renew=renew).get(make)
        assert left.pop() == found
        assert not cache.parts.exists()
