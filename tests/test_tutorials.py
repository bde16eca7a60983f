"""docs/tutorials, done: the files are written and every command and Python block is run, in order, in an empty folder."""

import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import environment, tiny_for

if TYPE_CHECKING:
    from tests.forker import Forker

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# Perhaps the name of the file that a block is the content of; its language; the block.
BLOCK = re.compile(r"(?:^\*\*`([\w/.]+)`\*\*\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRAINS = ("train", "tune", "experts")


def blocks(page: Path) -> list[tuple[str, str, str]]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def arguments_of(line: str, folder: Path) -> list[str]:
    """Words as a shell makes them: quotes are taken off, and a path with a star is what it stands for."""
    words: list[str] = []
    for word in shlex.split(line):
        found = sorted(folder.glob(word)) if "*" in word else []
        words += [str(file.relative_to(folder)) for file in found] or [word]
    return words


@pytest.fixture
def servers() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """The servers that a page left running."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for server in found:
        server.terminate()
        server.wait(60)


def run_line(
    line: str, folder: Path, forker: "Forker", servers: list["subprocess.Popen[bytes]"]
) -> "subprocess.CompletedProcess[str]":
    """An l2d command runs in a fork that has imported l2d already; training is made tiny. With & at its end it goes on running."""
    words = arguments_of(line, folder)
    if words[-1] == "&":
        command = [sys.executable, "-m", *words[:-1]]
        servers.append(subprocess.Popen(command, cwd=folder, env=environment()))
        return subprocess.CompletedProcess(words, 0)
    given = words[1:] if words[0] == "l2d" else words[3:] if words[:3] == ["python", "-m", "l2d"] else None
    if given is None:
        words[0] = sys.executable if words[0] == "python" else words[0]
        return subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    # A report of a sweep looks for the runs of exactly these settings.
    tiny = given[0] in TRAINS or (given[0] == "report" and any(word.startswith("experiment=") for word in given))
    return forker.start([*given, *(tiny_for(given) if tiny else [])], folder).wait()


def test_each_has_commands() -> None:
    assert TUTORIALS
    for page in TUTORIALS:
        assert any(language == "bash" for _, language, _ in blocks(page)), page


@pytest.mark.full
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_everything_in_it_works(
    page: Path,
    tmp_path: Path,
    forker: "Forker",
    servers: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = str(found.getsockname()[1])
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for file, language, written in blocks(page):
        text = written.replace("8080", port).replace("--rows 2000 ", "--rows 600 ")  # fewer queries for the server
        if file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text, encoding="utf-8")
        elif language == "python":
            with monkeypatch.context() as patch:
                patch.chdir(tmp_path)
                patch.syspath_prepend(tmp_path)
                exec(compile(text, str(page), "exec"), {"__name__": "__main__"})
        else:
            assert language == "bash", f"{page.name}: a block of {language} without a file"
            for line in text.replace("\\\n", " ").splitlines():
                if line.startswith("export "):
                    monkeypatch.setenv(*line.removeprefix("export ").split("=", 1))
                    continue
                done = run_line(line, tmp_path, forker, servers)
                assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
