import os
import subprocess
import sys
from pathlib import Path

import pytest

from l2d.utils.own_modules import changed_since, look_here


def test_modules_here_come_last_and_in_other_processes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "mine_here.py").write_text("print('mine')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    for _ in range(2):
        look_here()
    assert sys.path.count(str(tmp_path)) == 1
    assert sys.path[-1] == str(tmp_path)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == ["elsewhere", str(tmp_path)]
    command = [sys.executable, "-c", "import mine_here"]
    assert subprocess.run(command, cwd="/", capture_output=True, text=True, check=True).stdout == "mine\n"


def test_code_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "changing.py"
    file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    os.utime(file, (100, 100))
    assert changed_since({"changing", "no_such_module"}, 99) == [file]
    assert changed_since({"changing"}, 100) == []
