"""README.md: every command and every piece of code in it is run."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
# Code and what it prints.
PYTHON = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
# As in the README, but one seed and one fold are enough to see that it runs.
FEWER = {"seed=0,1,2": ["seed=0"], "dataset=table": ["dataset=table", "evaluation=holdout"]}
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.full
@pytest.mark.parametrize("block", SHELL, ids=range(len(SHELL)))
def test_commands(block: str, command: Command, tmp_path: Path) -> None:
    """One after the other, in an empty folder; the paper's with a router and a schedule that are tiny."""
    for line in block.replace("\\\n", "").splitlines():
        first, *rest = shlex.split(line)
        words = [short for word in rest for short in FEWER.get(word, [word])]
        if first == ".":
            assert words == [".venv/bin/activate"]
        elif first == "python":
            file, *arguments = words
            subprocess.run([sys.executable, ROOT / file, *arguments], cwd=tmp_path, check=True, capture_output=True)
        else:
            assert first == "l2d"
            name, *arguments = [globbed(word, tmp_path) for word in with_values(words)]
            done = command(*arguments, name=name, tiny="experiment=table1_error" in arguments)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
    if "report" in block:
        assert (tmp_path / "runs" / "report" / "index.html").is_file()
    if "route" in block:
        asked, chosen = (len((tmp_path / name).read_text().splitlines()) for name in ("log.csv", "choices.csv"))
        assert chosen == asked


def with_values(words: list[str]) -> list[str]:
    """--text QUERY as --text=QUERY: the fixture puts what begins with a dash first."""
    return re.sub(r"(^|\0)(--\w+)\0", r"\1\2=", "\0".join(words)).split("\0")


def globbed(word: str, folder: Path) -> str:
    """A run's folder with a star for its hash, as a shell reads it."""
    if not word.startswith("runs/") or "*" not in word:
        return word
    [found] = folder.glob(word)
    return str(found)


@pytest.mark.full
def test_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what the README says, but for digits that depend on the CPU."""
    monkeypatch.chdir(tmp_path)
    [(block, shown)] = PYTHON
    exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.endswith("expert 1\n")
    assert re.sub(r"\d+\.\d+", "", said) == re.sub(r"\d+\.\d+", "", shown)
    assert {file.name for file in tmp_path.iterdir()} == {"router", "router.png"}
