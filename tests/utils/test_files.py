"""Files are whole or absent; an error says which file."""

import errno
import os
import threading
from pathlib import Path

import filelock
import pytest

from l2d.utils.files import alone, clear_folder, write_atomically, write_json, write_text


def test_files_are_whole_or_absent(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_text(file, "old")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(file, fail)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]
    assert file.read_text() == "old"
    file = tmp_path / "a.npz"

    def write(path: Path) -> None:
        path.write_text("half")
        assert not file.exists()
        assert path.suffix == ".npz"  # NumPy would add it and write elsewhere
        path.write_text("whole")

    write_atomically(file, write)
    assert file.read_text() == "whole"


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's own error has no file name: it comes from a write or from fsync."""

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "a.txt", full)
    assert caught.value.filename == str(tmp_path / "a.txt")
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"a\.txt"):
        write_text(tmp_path / "a.txt", "x")


def test_errors_name_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        write_text(tmp_path / "nowhere" / "a.txt", "x")
    assert missing.value.filename == str(tmp_path / "nowhere" / "a.txt")
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "a.txt", lambda _: (tmp_path / "source").read_text())
    assert caught.value.filename == str(tmp_path / "source")
    with pytest.raises(OSError, match=r"^no errno$"):
        write_atomically(tmp_path / "a.txt", lambda _: (_ for _ in ()).throw(OSError("no errno")))


def test_equal_content_is_equal_bytes(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": 1, "a": [2]})
    write_json(tmp_path / "b.json", {"a": [2], "b": 1})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "a.json", {"a": float("nan")})


def test_a_half_cleared_folder_does_not_look_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that says that the folder is whole goes first; a lock stays."""
    for name in ("aaa.npz", "entry.json", ".lock", ".lock.tmp"):
        (tmp_path / name).write_text("")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "1").write_text("")
    removed: list[str] = []
    unlink = Path.unlink

    def noted(path: Path, missing_ok: bool = False) -> None:
        removed.append(path.name)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    clear_folder(tmp_path, first="entry.json", keep=[".lock"])
    assert removed[0] == "entry.json"
    assert [entry.name for entry in tmp_path.iterdir()] == [".lock"]


def test_one_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done: list[str] = []

    def second() -> None:
        with alone(tmp_path / "lock", "waiting for the first"):
            done.append("second")

    thread = threading.Thread(target=second)
    with alone(tmp_path / "lock", "never printed"):
        thread.start()
        thread.join(timeout=0.3)
        assert thread.is_alive()
        done.append("first")
    thread.join(timeout=10)
    assert done == ["first", "second"]
    assert capsys.readouterr().err == "waiting for the first\n"
    with pytest.raises(ZeroDivisionError), alone(tmp_path / "lock", ""):
        print(1 // 0)
    filelock.FileLock(tmp_path / "lock").acquire(blocking=False)
