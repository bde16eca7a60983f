"""Sweeps: what is finished is skipped, what is broken off goes on, nobody does what another does; killed, raced, out of space."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import filelock
import pytest
from omegaconf import OmegaConf
from tests.conftest import TINY, environment
from tests.forker import Child
from tests.runs.some_cells import finish, some_cells

from l2d.config import compose, launchers
from l2d.runs import sweep as sweeping
from l2d.runs.cells import Cell, make_cells
from l2d.runs.folder import RunFolder
from l2d.runs.sweep import ATTEMPTS, list_only, run_cells
from l2d.utils.errors import L2DError

Command = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Child]
GRID = ["-m", "setup=I,III", "method=tdef,mild", "seed=0,1"]
HALF = [text for text in GRID if text != "seed=0,1"]


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return some_cells(tmp_path / "runs", 1)[0]


def hold(cell: Cell) -> filelock.BaseFileLock:
    """As another process would."""
    cell.run.path.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(cell.run.path / ".lock")
    lock.acquire()
    return lock


class Launcher:
    """Stands in for Hydra's: `behave` says what becomes of a cell."""

    def __init__(self, behave: Callable[[Cell, int], None], folder: Path) -> None:
        self.behave, self.folder, self.rounds = behave, folder, list[list[int]]()

    def __call__(self, todo: Sequence[Cell], first: int) -> None:
        self.rounds.append([cell.seed for cell in todo])
        if len(self.rounds) > 20:
            pytest.fail("it goes on and on")
        for i, cell in enumerate(todo):
            (self.folder / f"{first + i}.started").touch()
            self.behave(cell, first + i)


def test_a_wrong_value_is_a_failure_unless_the_run_is_finished(cell: Cell, tmp_path: Path) -> None:
    wrong = replace(cell, problem="key=3: too large")
    launcher = Launcher(lambda *_: pytest.fail("it was launched"), tmp_path)
    assert run_cells([wrong], launcher, tmp_path) == {wrong: "key=3: too large"}
    finish(cell)
    assert run_cells([wrong], launcher, tmp_path) == {}
    assert [*run_cells([wrong], launcher, tmp_path, force=True)] == [wrong]


def test_a_result_of_other_data_is_a_failure(cell: Cell, tmp_path: Path) -> None:
    finish(cell)
    (cell.run.path / "data.txt").write_text("aaaa\n")
    other = replace(cell, data="bbbb")
    launcher = Launcher(lambda cell, _: finish(cell), tmp_path)
    assert "other data" in run_cells([other], launcher, tmp_path)[other]
    assert run_cells([other], launcher, tmp_path, force=True) == {}
    assert len(launcher.rounds) == 1


def test_an_old_result_is_not_taken_for_the_new_one(cell: Cell, tmp_path: Path) -> None:
    """With force, the first worker is killed."""
    finish(cell)
    launcher = Launcher(lambda cell, number: finish(cell) if number else None, tmp_path)
    assert run_cells([cell], launcher, tmp_path, force=True) == {}
    assert len(launcher.rounds) == 2


def test_an_error_counts_whatever_else_is_there(tmp_path: Path) -> None:
    """Also one without a reason, for which the disk had no room."""

    def behave(cell: Cell, number: int) -> None:
        finish(cell)
        (tmp_path / f"{number}.error").write_text("key=3: too large\n\nTraceback" if number else "")

    failed = run_cells(some_cells(tmp_path, 2), Launcher(behave, tmp_path), tmp_path)
    assert ["no room" in reason or reason == "key=3: too large" for reason in failed.values()] == [True, True]


def test_only_what_is_not_finished_is_launched(tmp_path: Path) -> None:
    cells = some_cells(tmp_path)
    finish(cells[1])
    launcher = Launcher(lambda cell, _: finish(cell), tmp_path)
    assert run_cells(cells, launcher, tmp_path) == {}
    assert launcher.rounds == [[0, 2]]
    assert run_cells(cells, launcher, tmp_path) == {}
    assert launcher.rounds == [[0, 2]]
    run_cells(cells, launcher, tmp_path, force=True)
    assert launcher.rounds[1:] == [[0, 1, 2]]


def test_a_newer_module_of_ones_own_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless all is run again anyway."""
    loss = tmp_path / "my_newer_loss.py"
    loss.write_text("")
    os.utime(loss, (2**33, 2**33))
    monkeypatch.syspath_prepend(tmp_path)
    cells = [replace(cell, own_modules=frozenset({"my_newer_loss"})) for cell in some_cells(tmp_path)]
    finish(cells[1])
    launcher = Launcher(lambda cell, _: finish(cell), tmp_path)
    for force, done in ((False, 1), (True, 0)):
        run_cells(cells, launcher, tmp_path, force)
        out = capsys.readouterr().out
        assert f"3 runs, {done} " in out
        assert (str(loss) in out) is not force


@pytest.mark.parametrize("number", [0, 2, 3])
def test_the_end_of_a_sweep(number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what failed and, if there is a result, a report of the narrowest folder of its runs."""
    cells = some_cells(tmp_path / "my runs" / "mild" / "aaaa")
    cells[2] = replace(cells[2], run=RunFolder(tmp_path / "my runs" / "ce" / "aaaa" / "seed=2"))
    finish(cells[0])
    reasons = dict(zip(cells[:-4:-1], ("killed", "key=3: too large", "other data"), strict=True))
    failed = {cell: reasons[cell] for cell in cells[::-1][:number]}
    shop = SimpleNamespace(config=compose(["dry_run=false"]), grid=[], cells=lambda _: cells, open=lambda: tmp_path)
    shop.run = lambda *_: failed
    with pytest.raises(L2DError, match=f"{number} of 3") if failed else nullcontext():
        sweeping.sweep(cast(Any, shop))
    out = capsys.readouterr().out
    assert "1/3" in out
    assert (f"l2d report '{tmp_path}/my runs'\n" in out) == (number < 3)
    listed = [any(reason in line for line in out.splitlines()) for reason in reasons.values()]
    assert listed == [i < number for i in range(3)]
    shop.run = lambda *_: dict.fromkeys(cells, "key=4: too large")
    with pytest.raises(L2DError, match=r"3 of 3.*key=4"):  # one reason for all is said once
        sweeping.sweep(cast(Any, shop))
    assert "key=4" not in capsys.readouterr().out


def test_a_killed_run_is_tried_again_and_given_up(tmp_path: Path) -> None:
    """A run that failed is not, nor one whose values are wrong. The second round has numbers, and so errors, of its own."""
    times: list[int] = []

    def behave(cell: Cell, number: int) -> None:
        times.append(cell.seed)
        if cell.seed == 3 or (cell.seed == 1 and times.count(1) > 1):
            finish(cell)
        if cell.seed == 0:
            (tmp_path / f"{number}.error").write_text("key=3: too large\n\nTraceback …")

    launcher = Launcher(behave, tmp_path)
    *cells, wrong = some_cells(tmp_path, 5)
    failed = run_cells([*cells, replace(wrong, problem="key=4: too large")], launcher, tmp_path)
    assert launcher.rounds == [[0, 1, 2, 3], [1, 2]]
    reasons = {cell.seed: reason for cell, reason in failed.items()}
    assert f"{ATTEMPTS} times" in reasons.pop(2)
    assert reasons == {0: "key=3: too large", 4: "key=4: too large"}


@pytest.mark.parametrize("force", [False, True])
def test_what_a_worker_is_told(force: bool, tmp_path: Path) -> None:
    """The overrides that make the run, its places from the root, and where to answer. With force=true it is told though the run is finished."""
    cell = replace(some_cells(tmp_path, 1)[0], places=("runs_dir='/a'",))
    if force:
        finish(cell)
    told: list[tuple[Any, int]] = []

    def launch(overrides: Any, initial_job_idx: int) -> None:
        told.append((overrides, initial_job_idx))
        finish(cell)
        os.utime(cell.run.path / "metrics.json", ns=(1, 1))

    config = OmegaConf.create({"force": force, "hydra": {"sweep": {"dir": str(tmp_path / "now")}}})
    loader, launcher = cast(Any, None), cast(Any, SimpleNamespace(launch=launch))
    shop = sweeping.Workshop(config, loader, launcher, [])
    assert shop.run([cell], tmp_path) == {}
    assert told == [([["seed=0", "runs_dir='/a'", f"hydra.sweep.dir='{tmp_path}'"]], 0)]
    assert config.hydra.sweep.dir == str(tmp_path)


def test_a_run_that_kills_its_worker_does_not_take_the_others_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first cell breaks the launcher before the others have started: they are launched again until they are done."""

    def behave(cell: Cell, _: int) -> None:
        if cell.seed == 0:
            raise RuntimeError("killed")
        finish(cell)

    failed = run_cells(some_cells(tmp_path, 4), Launcher(behave, tmp_path), tmp_path)
    assert [cell.seed for cell in failed] == [0]
    assert "RuntimeError: killed" in capsys.readouterr().out


class Elsewhere:
    """Another process that holds a cell for some looks at it, then finishes it or dies."""

    def __init__(self, cell: Cell, monkeypatch: pytest.MonkeyPatch, *, dies: bool, looks: int = 3) -> None:
        self.cell, self.dies, self.looks, self.lock = cell, dies, looks, hold(cell)
        monkeypatch.setattr("l2d.runs.sweep.time.sleep", self.sleep)

    def sleep(self, _: float) -> None:
        self.looks -= 1
        if self.looks == 0:
            self.end()
        if self.looks < -20:
            pytest.fail("it waits for ever")

    def end(self) -> None:
        if not self.dies:
            finish(self.cell)
        self.lock.release()

    def holds(self, cell: Cell) -> bool:
        return cell is self.cell and self.lock.is_locked


@pytest.mark.parametrize("dies", [False, True])
def test_what_another_process_holds_is_not_forgotten_while_a_killed_run_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dies: bool
) -> None:
    """Two cells, one held, the other killed once: the held one is waited for, and run if its holder dies."""
    cells = some_cells(tmp_path, 2)
    other = Elsewhere(cells[0], monkeypatch, dies=dies)
    attempts: list[int] = []

    def behave(cell: Cell, _: int) -> None:
        attempts.append(cell.seed)
        killed = cell.seed == 1 and attempts.count(1) == 1
        if not killed and not other.holds(cell):
            finish(cell)

    launcher = Launcher(behave, tmp_path)
    assert run_cells(cells, launcher, tmp_path) == {}
    assert launcher.rounds == [[1], [1], *([[0]] if dies else [])]
    assert all(cell.run.finished for cell in cells)
    assert capsys.readouterr().out.count("another process") == 1


def test_a_launcher_that_starts_nothing_is_given_up_though_another_process_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = some_cells(tmp_path, 2)
    Elsewhere(cells[0], monkeypatch, dies=False)
    rounds: list[int] = []

    def launch(todo: Sequence[Cell], _: int) -> None:
        rounds.append(len(todo))
        if len(rounds) > 20:
            pytest.fail("it goes on and on")
        raise RuntimeError("no cluster")

    failed = run_cells(cells, launch, tmp_path)
    assert [*failed] == [cells[1]]
    assert rounds == [1, 1]
    assert cells[0].run.finished


def test_the_folder_and_the_places_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweeping, "split_grid", lambda *_: [])
    nobody: Any = None
    for said, place in (("~/here", "home/here"), ("sub/here", "sub/here")):
        config = OmegaConf.create({"hydra": {"sweep": {"dir": said}}})
        assert sweeping.Workshop(config, nobody, nobody, ["experiment=noise", "seed=0,1"]).place == tmp_path / place
        with pytest.raises(L2DError, match="experiment=noise,table4: "):
            sweeping.Workshop(config, nobody, nobody, ["experiment=noise,table4"])


def finished(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("metrics.json"))}


@pytest.mark.full
def test_chaos(start: Start, command: Command, tmp_path: Path) -> None:
    """One process at the sweep, or two, killed at 4 random moments and started again until done: the same results, nothing done twice.

    (A launcher's own worker is killed in test_joblib_and_a_killed_worker.)
    """
    whole = command(*HALF, "runs_dir=whole")
    assert whole.returncode == 0, whole.stderr
    reference = finished(tmp_path / "whole")
    assert len(reference) == 4
    moments = random.Random(0)
    written: dict[str, int] = {}
    for number in range(3):
        for sweep in [start(*HALF, "runs_dir=chaos") for _ in range(1 + (number > 1))]:  # twice one, once two
            time.sleep(moments.uniform(0.1, 1.4))
            sweep.kill(signal.SIGKILL)
            sweep.wait()
        for name in finished(tmp_path / "chaos"):
            stamp = (tmp_path / "chaos" / name).stat().st_mtime_ns
            assert written.setdefault(name, stamp) == stamp, f"{name} was written twice"
    last = command(*HALF, "runs_dir=chaos")
    assert last.returncode == 0, last.stderr
    assert finished(tmp_path / "chaos") == reference
    assert all((tmp_path / "chaos" / name).stat().st_mtime_ns == stamp for name, stamp in written.items())
    again = command(*HALF, "runs_dir=chaos", "dry_run=true")
    assert "4 finished" in again.stdout


def cells_in(folder: Path, grid: Sequence[Sequence[str]]) -> list[Cell]:
    return make_cells(grid, lambda overrides: compose([*overrides, f"runs_dir={folder}"]))


@pytest.mark.slow
def test_dry_run_says_what_would_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = product((0, 3), (1, 2), (0, 1, 2**32))
    grid = [(f"recipe.epochs={e}", f"trainer.devices={d}", f"seed={s}", "dry_run=true") for e, d, s in values]
    with pytest.raises(L2DError, match="7 "):
        list_only(cells_in(tmp_path, grid), force=False)
    out = capsys.readouterr().out
    assert "12 missing" in out
    keys = (": recipe.epochs=0: ", ": seed=4294967296: ", ": trainer.devices: ")
    assert [out.count(key) for key in keys] == [4, 2, 1]


class Opened(Exception):
    pass


def begin(cells: list[Cell], force: bool) -> None:
    """Raises Opened if the sweep would run."""

    def opened() -> None:
        raise Opened

    config = OmegaConf.create({"force": force, "dry_run": False})
    sweeping.sweep(cast(Any, SimpleNamespace(config=config, grid=[], cells=lambda _: cells, open=opened)))


def test_a_sweep_of_which_nothing_can_be_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finished run would not fail."""
    good, first, second = some_cells(tmp_path)
    wrong = [replace(cell, problem="recipe.epochs=0: too small") for cell in (first, second)]
    with pytest.raises(Opened):
        begin([*wrong, good], force=False)
    with pytest.raises(L2DError, match=r"^recipe\.epochs=0: "):
        begin(wrong, force=False)
    finish(first)
    with pytest.raises(Opened):
        begin(wrong, force=False)
    for act in (list_only, begin):
        with pytest.raises(L2DError):
            act(wrong, force=True)
    with pytest.raises(L2DError):
        list_only(wrong, force=False)
    finish(second)
    list_only(wrong, force=False)
    assert "2 finished" in capsys.readouterr().out


@pytest.mark.full
def test_full_disk(command: Command, tmp_path: Path) -> None:
    """Said clearly, nothing that looks finished; with space again the sweep goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        sweep = ["-m", "seed=0,1", f"runs_dir={disk}", "router.width=8", "recipe.epochs=1"]
        full = command(*sweep)
        assert full.returncode == 1
        assert "2 of 2" in full.stderr
        assert "Traceback" not in full.stderr
        assert not finished(disk)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert command(*sweep).returncode == 0
        assert len(finished(disk)) == 2
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def launch(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With launchers of their own processes a fork is of no use."""
    given = [sys.executable, "-m", "l2d", "train", "-m", *TINY, "recipe.epochs=1", *arguments]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    return subprocess.run(given, cwd=tmp_path, env=environment(), **options)


@pytest.mark.full
def test_ray(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    options = ["+hydra.launcher.ray.init.num_cpus=2", "+hydra.launcher.ray.init.include_dashboard=false"]
    result = launch(tmp_path, "method.rho.offset=-5,5", "hydra/launcher=ray", *options)
    assert result.returncode == 1
    assert "1 of 2" in result.stderr
    assert "rho.offset" in result.stdout
    assert len(finished(tmp_path / "runs")) == 1


@pytest.mark.full
def test_submitit_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    result = launch(tmp_path, "hydra/launcher=submitit_local")
    assert result.returncode == 0, result.stderr
    assert len(finished(tmp_path / "runs")) == 1


@pytest.mark.full
def test_joblib_and_a_killed_worker(tmp_path: Path) -> None:
    """A worker dies by SIGKILL; the sweep finishes all the same."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    given = [sys.executable, "-m", "l2d", "train", "-m", *TINY, "recipe.epochs=15"]
    given += ["hydra/launcher=cpus", "hydra.launcher.n_jobs=2"]
    sweep = subprocess.Popen(given, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/**/history.csv")):
        time.sleep(0.1)
        assert time.monotonic() < deadline
    workers = subprocess.run(["pgrep", "-P", str(sweep.pid)], capture_output=True, text=True, check=True).stdout.split()
    os.kill(max(map(int, workers), key=processor_time), signal.SIGKILL)  # the other has nothing to do
    out, _ = sweep.communicate(timeout=240)
    assert sweep.returncode == 0, out
    assert len(finished(tmp_path / "runs")) == 1


def processor_time(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])


@pytest.mark.parametrize("name", sorted(launchers()))
def test_launchers_compose(name: str) -> None:
    """Each says in its first line what it is for, and fits the plugin it builds upon."""
    assert launchers()[name]
    cfg = compose([f"hydra/launcher={name}"], with_hydra=True)
    target = cfg.hydra.launcher._target_
    assert target.startswith("hydra_plugins.")
    if name.startswith("gpus_"):
        number = int(name.removeprefix("gpus_"))
        assert (cfg.hydra.launcher.ray.init.num_gpus, cfg.hydra.launcher.ray.remote.num_gpus) == (number, 0.5)


@pytest.mark.slow
@pytest.mark.measured
def test_a_reason_that_all_runs_share_is_said_once(command: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,correct_a,correct_b\nhi,1,0\nho,3,1\n")
    given = ("dataset=table", "dataset.path=t.csv", "dataset.text=text", "seed=0,1,2")
    ran = command("-m", *given, tiny=False)
    assert ran.returncode == 1
    assert ran.stderr.count("correct_a") == 1
