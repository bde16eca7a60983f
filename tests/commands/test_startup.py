"""Commands answer without torch if they can: importing it takes longer than everything else a command does."""

import json
import subprocess
import sys

import pytest
from tests.conftest import TINY, environment
from tests.running import folder_of, train

from l2d.commands.main import COMMANDS
from l2d.config import compose

pytestmark = pytest.mark.slow
HEAVY = ["torch", "torchvision", "pytorch_lightning", "timm", "matplotlib", "sklearn", "scipy.stats", "transformers"]
LOOKED_FOR = [*HEAVY, "l2d"]
# Runs commands one after the other; gives the status, the output and what was imported by then.
ANSWER_ALL = f"""
import contextlib, io, json, sys
from l2d.commands.main import main
answers = []
for arguments in json.load(sys.stdin):
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(arguments)
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
            said.write(leave.code if isinstance(leave.code, str) else "")
    answers.append([code, said.getvalue(), sorted(sys.modules.keys() & {LOOKED_FOR})])
print(json.dumps(answers))
"""
CASES: list[tuple[list[str], int, str]] = [
    *(([*command.split(), "--help"], 0, "usage: l2d") for command in ("", *COMMANDS)),
    (["train", "recipe.epoch=3"], 1, "recipe.epoch"),
    (["train", "method.tau=-1"], 1, "method.tau=-1"),
    (["train", "dataset=digits", "setup=I", "cost.prices=[1,2]"], 1, "cost.prices"),
    (["train", "dataset=table", "dataset.path=none.csv"], 1, "none.csv"),
    (["check", "none.csv"], 1, "none.csv"),
    (["train", "dry_run=true"], 0, "missing"),
    (["train", "-m", "seed=0,1", "dry_run=true"], 0, "2 missing"),
    (["train", *TINY], 0, "finished already"),
    (["report", "runs"], 0, "index.html"),
    (["tune", "tune.serch=paper"], 1, "tune.serch"),
    (["tune", "dry_run=true"], 0, "6 runs: 6 missing"),
    (["experts", "setup=IV"], 1, "setup=IV"),
    (["route", "runs"], 1, "--text"),
    (["route", "nowhere", "--text", "x"], 1, "nowhere"),
    (["serve", "nowhere"], 1, "nowhere"),
    (["serve", "runs", "--explore", "2"], 1, "--explore=2.0"),
    (["curve", "nowhere"], 1, "nowhere"),
    (["--version"], 0, "l2d "),
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, list[str]]]:
    """The answers of one fresh process, where one run is finished."""
    place = tmp_path_factory.mktemp("startup")
    cfg = compose([*TINY, f"runs_dir={place / 'runs'}"])
    train(cfg)
    (folder_of(cfg) / "deferral.png").touch()  # drawing it takes matplotlib
    asked = [arguments for arguments, _, _ in CASES]
    command = [sys.executable, "-c", ANSWER_ALL]
    given = json.dumps(asked)
    found = subprocess.run(
        command, cwd=place, env=environment(), input=given, capture_output=True, text=True, check=True
    )
    return dict(zip(map(str, asked), json.loads(found.stdout), strict=True))


@pytest.mark.parametrize(
    ("arguments", "status", "said"), CASES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_answers_at_once(
    arguments: list[str], status: int, said: str, answers: dict[str, tuple[int, str, list[str]]]
) -> None:
    code, output, modules = answers[str(arguments)]
    assert (code, said in output) == (status, True), output
    assert "Traceback" not in output
    assert modules == ["l2d"]


def ended(program: str) -> subprocess.CompletedProcess[str]:
    """A process whose command is the function `work`."""
    program = f"{program}\nfrom l2d.commands import main as commands\ncommands.main = work\ncommands.console()\n"
    command = [sys.executable, "-c", program, "train"]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=100)


@pytest.mark.parametrize(("end", "status", "freed"), [("pass", 0, ""), ("sys.exit(3)", 3, "freed\n")])
def test_a_command_that_went_well_leaves_at_once(end: str, status: int, freed: str) -> None:
    """Libraries still do what they registered for the end. After an error Python ends as usual."""
    program = f"""
import atexit, sys

class Late:
    def __del__(self):
        print("freed")

def work(arguments):
    atexit.register(print, "the library's end")
    print(*arguments)
    {end}

late = Late()
"""
    ran = ended(program)
    assert (ran.returncode, ran.stdout) == (status, f"train\nthe library's end\n{freed}")


def test_a_command_whose_workers_still_run_ends_with_them() -> None:
    """joblib keeps its workers for minutes, and they hold the output of the command open. Children that have ended do not count."""
    program = """
def work(arguments):
    import subprocess
    from joblib import Parallel, delayed
    from l2d.commands.main import has_children
    subprocess.run(["true"])
    print(has_children())
    print(sum(Parallel(n_jobs=2)(delayed(abs)(-one) for one in range(4))))
    print(has_children())
"""
    ran = ended(program)
    assert (ran.returncode, ran.stdout.split()) == (0, ["False", "6", "True"])
