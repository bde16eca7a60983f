"""docs/extending.md, done: its files are written into an empty folder and its last command is run."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import environment

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\*\*`(my_\w+/[\w/.]+)`\*\*\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\npython -m l2d (.*?)\n```$", PAGE, re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    (tmp_path / "my_router" / "__init__.py").touch()
    return tmp_path


def l2d(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "l2d", *arguments]
    return subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, check=False)


def test_the_page_has_an_example_of_each_kind() -> None:
    kinds = {file.split("/")[1] for file in FILES if file.startswith("my_conf/")}
    assert kinds == {"method", "dataset", "experts", "cost", "router"}


@pytest.mark.full
def test_the_page_does_what_it_says(project: Path) -> None:
    arguments = shlex.split(COMMANDS[0])
    done = l2d(project, *arguments, "trainer.accelerator=cpu")
    assert done.returncode == 0, done.stderr
    [run] = project.glob("runs/stripes/own/tired/flat_fee/squared_hinge/*/seed=0")
    metrics = json.loads((run / "metrics.json").read_text())
    assert [expert["price"] for expert in metrics["experts"]] == [0.0, 0.1, 0.1]
    assert [expert["name"] for expert in metrics["experts"]] == ["person 1", "person 2", "person 3"]
    wrong = l2d(project, *arguments, "method.margin=-1", "runs_dir=other")
    assert wrong.returncode == 1
    assert "method.margin=-1" in wrong.stderr
    assert not (project / "other").exists()
