"""What can be answered without torch is answered without it: importing it takes longer than everything else a command does."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import TINY, environment
from tests.forker import Forker

from l2d.commands.main import COMMANDS

pytestmark = pytest.mark.slow
HEAVY = ["torch", "torchvision", "pytorch_lightning", "timm", "matplotlib", "sklearn", "scipy.stats", "transformers"]
LOOKED_FOR = [*HEAVY, "l2d"]
SAY_WHAT_WAS_IMPORTED = f"""
import atexit, sys
atexit.register(lambda: print("imported", *(sys.modules.keys() & {LOOKED_FOR}), file=sys.stderr))
from l2d.commands.main import main
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def folder(forker: Forker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one run is finished."""
    place = tmp_path_factory.mktemp("startup")
    done = forker.start(["train", *TINY], place).wait()
    assert done.returncode == 0, done.stderr
    return place


def answer(folder: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """A command in a fresh process, and which of LOOKED_FOR it had imported at its end."""
    command = [sys.executable, "-c", SAY_WHAT_WAS_IMPORTED, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    *_, last = done.stderr.splitlines()
    assert last.startswith("imported "), done.stderr
    return done, last.split()[1:]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, tmp_path: Path) -> None:
    done, modules = answer(tmp_path, *command.split(), "--help")
    assert (done.returncode, "usage: l2d" in done.stdout) == (0, True), done.stderr
    assert modules == ["l2d"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["train", "recipe.epoch=3"], 1, "recipe.epoch"),
        (["train", "recipe.epochs=three"], 1, "recipe.epochs"),
        (["train", "method=midl"], 1, "mild"),
        (["train", "method.tau=-1"], 1, "method.tau=-1"),
        (["train", "setup.coverage=[0.5,0.2]"], 1, "setup.coverage=[0.5, 0.2]"),
        (["train", "method=mild,tdef"], 1, "-m"),
        (["train", "dataset=digits", "setup=I", "cost.prices=[1,2]"], 1, "cost.prices"),
        (["train", "dry_run=true"], 0, "missing"),
        (["train", "-m", "seed=0,1", "dry_run=true"], 0, "2 missing"),
        (["train", *TINY], 0, "finished already"),
        (["train", *TINY, "dry_run=true"], 0, "finished already"),
        (["report", "runs"], 0, "index.html"),
        (["report", "nowhere"], 1, "nowhere"),
        (["tune", "tune.serch=paper"], 1, "tune.serch"),
        (["tune", "dry_run=true"], 0, "6 runs: 6 missing"),
        (["tune", "dataset=mmlu_sim", "tune.search=coordinate", "dry_run=true"], 0, "1 run: 1 missing"),
        (["experts", "setup=IV"], 1, "setup=IV"),
        (["prepare", "dataset=svnh"], 1, "svhn"),
        (["route", "runs"], 1, "--text"),
        (["route", "nowhere", "--text", "x"], 1, "nowhere: no such folder"),
        (["curve", "nowhere"], 1, "nowhere"),
        (["trian"], 1, "train"),
        (["--version"], 0, "l2d "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_answers_at_once(folder: Path, arguments: list[str], status: int, said: str) -> None:
    done, modules = answer(folder, *arguments)
    assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert modules == ["l2d"]


def test_the_package_itself_is_light(tmp_path: Path) -> None:
    code = f"import l2d, sys; print(*(sys.modules.keys() & {LOOKED_FOR}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["l2d"]
