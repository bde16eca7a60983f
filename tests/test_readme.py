"""README.md: every command and every piece of code in it is run."""

import csv
import re
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from l2d.config import check, compose

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
SHELL = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^runs/.*/seed=\d+$")
# As in the README, but one seed is enough to see that it runs.
FEWER = {"seed=0,1,2": "seed=0"}
Command = Callable[..., subprocess.CompletedProcess[str]]


def test_the_readme_is_short_and_begins_with_a_picture() -> None:
    lines = README.splitlines()
    assert len(lines) <= 150
    assert any("docs/pictures/flow.svg" in line for line in lines[:10])
    assert len(re.findall(r"^## Door \d", README, re.MULTILINE)) == 3


def test_no_code_block_is_left_out() -> None:
    """The block without a language is the example's output, which bench/digits.py writes."""
    assert README.count("\n```") == 2 * (len(SHELL) + len(PYTHON) + 1)
    assert (len(SHELL), len(PYTHON)) == (2, 1)


def test_make_commands_are_targets() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    indented = re.findall(r"^    (\S.*?)(?:  +#.*)?$", README, re.MULTILINE)
    commands = [line for line in indented if line.startswith("make ")]
    assert commands == ["make train", "make test"]
    assert {command.removeprefix("make ") for command in commands} <= {*targets}


def test_figures_of_the_decision_table_are_those_of_the_evidence() -> None:
    """docs/beyond.md has that of cost_regression, as "-10 to -7 %"; bench/results/paper_runs.csv the runs of plugin and mild."""
    evidence = (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8")
    [row] = re.findall(r"^\| `cost_regression` \|(.* less in .*)\|$", evidence, re.MULTILINE)
    most, least = re.findall(r"-(\d+) to -(\d+) %", row.split("|")[2])[0]
    rows = {
        method: line
        for line in README.splitlines()
        for method in ("plugin", "cost_regression")
        if f"| `method={method}" in line
    }
    assert f"{least} to {most} % less" in rows["cost_regression"]
    losses: dict[tuple[str, ...], list[float]] = defaultdict(list)
    with (ROOT / "bench" / "results" / "paper_runs.csv").open(newline="", encoding="utf-8") as lines:
        for run in csv.DictReader(lines):
            if (run["experts"], run["cost"], run["recipe"]) == ("synthetic", "error", "fast"):
                losses[run["dataset"], run["setup"], run["method"]].append(float(run["test"]))
    means = {key: statistics.fmean(found) for key, found in losses.items()}
    less = [100 * (1 - mean / means[*cell, "mild"]) for (*cell, method), mean in means.items() if method == "plugin"]
    assert f"{min(less):.0f} to {max(less):.0f} % less" in rows["plugin"]


@pytest.mark.slow
@pytest.mark.parametrize("block", SHELL, ids=range(len(SHELL)))
def test_commands(block: str, command: Command, tmp_path: Path) -> None:
    """One after the other, in an empty folder, with a router and a schedule that are tiny."""
    for line in block.splitlines():
        first, *rest = shlex.split(line)
        words = [FEWER.get(word, word) for word in rest]
        if first == ".":
            assert words == [".venv/bin/activate"]
        elif first == "python":
            file, *arguments = words
            subprocess.run([sys.executable, ROOT / file, *arguments], cwd=tmp_path, check=True, capture_output=True)
        else:
            assert first == "l2d"
            name, *arguments = [made(word, tmp_path) for word in with_values(words)]
            done = command(*arguments, name=name, tiny=name in ("train", "report"))
            assert done.returncode == 0, f"{line}\n{done.stderr}"
    if "report" in block:
        assert (tmp_path / "runs" / "report" / "index.html").is_file()
    if "route" in block:
        assert len(done.stdout.splitlines()) == 3  # a header and two choices


def with_values(words: list[str]) -> list[str]:
    """--text QUERY as --text=QUERY: the fixture puts what begins with a dash first."""
    return re.sub(r"(^|\0)(--\w+)\0", r"\1\2=", "\0".join(words)).split("\0")


def made(word: str, folder: Path) -> str:
    """A run's folder as the README names it: tiny, it has another hash."""
    if not RUN.match(word):
        return word
    [found] = folder.glob(f"{Path(word).parents[1]}/*/{Path(word).name}")
    return str(found)


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON, ids=range(len(PYTHON)))
def test_python(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out
    for line in block.splitlines():
        if found := re.search(r"print\(.*\)  # (expert \d)$", line):
            assert f"\n{found[1]}\n" in said
    assert {file.name for file in tmp_path.iterdir()} == {"router", "router.png"}


@pytest.mark.slow
def test_commands_of_the_guide_compose() -> None:
    """They are checked and not run: some train for hours."""
    lines = [line.strip() for line in GUIDE.splitlines() if line.strip().startswith("l2d train ")]
    found = [shlex.split(line, comments=True)[2:] for line in lines]
    single = [words for words in found if "-m" not in words and not words[0].startswith("-")]
    assert len(single) > 6
    for words in single:
        check(compose(words))
