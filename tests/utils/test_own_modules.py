import os
import sys
from pathlib import Path

import pytest

from l2d.utils.own_modules import changed_since, look_in


def test_modules_there_come_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["others"])
    for _ in range(2):
        look_in(str(tmp_path))
    assert sys.path == ["others", str(tmp_path)]
    assert str(tmp_path) not in os.environ.get("PYTHONPATH", "")


def test_nothing_is_imported_to_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "found_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "losses.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    asked = {"found_package.losses", "found_package.none", "none.at.all", ""}
    assert changed_since(asked, 0) == [package / "losses.py"]
    bare = tmp_path / "bare_folder" / "losses" / "hinge.py"  # without an __init__.py
    bare.parent.mkdir(parents=True)
    bare.write_text("")
    assert changed_since({"bare_folder.losses.hinge"}, 0) == [bare]


def test_code_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "changing.py"
    file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    os.utime(file, (100, 100))
    assert changed_since({"changing", "no_such_module", "sys"}, 99) == [file]  # sys has no file
    files = [tmp_path / f"changed_{letter}.py" for letter in "abcdef"]
    for one in files:
        one.write_text("")
    assert changed_since({one.stem for one in files}, 99) == files
    assert changed_since({"changing"}, 100) == []
