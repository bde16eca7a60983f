"""bench/mutants.py on a tree of one function: caught, survived and stale mistakes."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.full
def test_verdicts(tmp_path: Path) -> None:
    files = {
        "src/l2d/__init__.py": "",
        "src/l2d/core/add.py": "def add(a, b):\n    return a + b  # plus\n",
        "tests/core/test_add.py": ("from l2d.core.add import add\ndef test_three():\n    assert add(1, 2) == 3\n"),
    }
    for name, text in files.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text(text)
    with (tmp_path / "list.csv").open("w", newline="") as file:
        rows = [("sign", "core/add.py", "a + b", "a - b"), ("comment", "core/add.py", "plus", "minus")]
        rows += [("gone", "core/add.py", "a * b", "a")]
        csv.writer(file).writerows([("what", "file", "before", "after"), *rows])
    options = ["--list", str(tmp_path / "list.csv"), "--root", str(tmp_path / "tree")]
    quickly = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "mutants.py", *options]
    done = subprocess.run(command, cwd=BENCH, env=quickly, capture_output=True, text=True, check=False, timeout=250)
    lines = done.stdout.splitlines()
    assert "tests/core/test_add.py::test_three" in lines[0]
    assert "SURVIVED" in lines[1]
    assert "stale" in lines[2]
    assert "caught 1 of 2" in lines[3]
    assert done.returncode == 1
