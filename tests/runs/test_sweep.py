"""Sweeps: what is finished is skipped, what is broken off goes on, nobody does what another does; killed, raced, out of space."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import filelock
import hydra
import pytest
import torch
from omegaconf import DictConfig
from tests.conftest import TINY, environment
from tests.forker import Child

from l2d.config import CONF, compose, groups, launchers, sweep_axes, to_plain
from l2d.routing.make import make
from l2d.runs.cells import Cell, listing, named, places, results
from l2d.runs.cells import make_cells as grid_cells
from l2d.runs.folder import RunFolder
from l2d.runs.sweep import ATTEMPTS, Workshop, list_only, run_cells
from l2d.utils.errors import L2DError

Command = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Child]
GRID = ["-m", "setup=I,III", "method=tdef,mild", "seed=0,1", "recipe.batch_size=256"]
HALF = [text for text in GRID if text != "seed=0,1"]


def make_cells(folder: Path, n: int = 3) -> list[Cell]:
    names = {"dataset": "digits", "method": "mild"}
    return [Cell((f"seed={seed}",), RunFolder(folder / f"seed={seed}"), names, seed, 3) for seed in range(n)]


def finish(cell: Cell, loss: float = 0.25) -> None:
    cell.run.path.mkdir(parents=True, exist_ok=True)
    (cell.run.path / "timing.json").write_text(json.dumps({"total_seconds": 100.0}))
    write_json(cell.run.path / "metrics.json", example_metrics(loss).as_json())


class Launcher:
    """Stands in for Hydra's: `behave` says what becomes of a cell."""

    def __init__(self, behave: Callable[[Cell, int], None], folder: Path) -> None:
        self.behave, self.folder, self.rounds = behave, folder, list[list[int]]()

    def __call__(self, todo: Sequence[Cell], first: int) -> None:
        self.rounds.append([cell.seed for cell in todo])
        for i, cell in enumerate(todo):
            (self.folder / f"{first + i}.started").touch()
            self.behave(cell, first + i)


def test_only_what_is_not_finished_is_launched(tmp_path: Path) -> None:
    cells = make_cells(tmp_path)
    finish(cells[1])
    launcher = Launcher(lambda cell, _: finish(cell), tmp_path)
    assert run_cells(cells, launcher, tmp_path) == {}
    assert launcher.rounds == [[0, 2]]
    assert run_cells(cells, launcher, tmp_path) == {}
    assert launcher.rounds == [[0, 2]]
    run_cells(cells, launcher, tmp_path, force=True)
    assert launcher.rounds[1:] == [[0, 1, 2]]


def test_an_error_is_listed_and_not_tried_again(tmp_path: Path) -> None:
    def behave(cell: Cell, number: int) -> None:
        if cell.seed == 1:
            (tmp_path / f"{number}.error").write_text("key=3: too large\n\nTraceback …")
        else:
            finish(cell)

    launcher = Launcher(behave, tmp_path)
    failed = run_cells(make_cells(tmp_path), launcher, tmp_path)
    assert {cell.seed: reason for cell, reason in failed.items()} == {1: "key=3: too large"}
    assert launcher.rounds == [[0, 1, 2]]


def test_a_killed_run_is_tried_again_and_given_up(tmp_path: Path) -> None:
    times: list[int] = []

    def behave(cell: Cell, _: int) -> None:
        times.append(cell.seed)
        if cell.seed == 0 or (cell.seed == 1 and times.count(1) > 1):
            finish(cell)

    launcher = Launcher(behave, tmp_path)
    failed = run_cells(make_cells(tmp_path), launcher, tmp_path)
    assert launcher.rounds == [[0, 1, 2], [1, 2]]
    assert [cell.seed for cell in failed] == [2]
    assert f"{ATTEMPTS} times" in failed[next(iter(failed))]


def test_a_launcher_that_breaks_does_not_lose_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = make_cells(tmp_path)

    def behave(cell: Cell, number: int) -> None:
        if number == 1:
            raise RuntimeError("a worker was killed\nlong story")
        finish(cell)

    assert run_cells(cells, Launcher(behave, tmp_path), tmp_path) == {}
    assert "the launcher stopped (RuntimeError: a worker was killed)" in capsys.readouterr().out


def test_a_run_that_kills_its_worker_does_not_take_the_others_along(tmp_path: Path) -> None:
    """The first cell breaks the launcher before the others have started: they are launched again until they are done."""

    def behave(cell: Cell, _: int) -> None:
        if cell.seed == 0:
            raise RuntimeError("killed")
        finish(cell)

    failed = run_cells(make_cells(tmp_path, 4), Launcher(behave, tmp_path), tmp_path)
    assert [cell.seed for cell in failed] == [0]


def test_a_launcher_that_never_starts_anything_is_given_up(tmp_path: Path) -> None:
    def launch(*_: object) -> None:
        raise RuntimeError("no cluster")

    failed = run_cells(make_cells(tmp_path), launch, tmp_path)
    assert set(failed.values()) == {"never started (RuntimeError: no cluster)"}


def test_forced_runs_that_fail_are_failed(tmp_path: Path) -> None:
    """An old result is not taken for the new one."""
    cells = make_cells(tmp_path, 2)
    for cell in cells:
        finish(cell)

    def behave(cell: Cell, number: int) -> None:
        if cell.seed == 0:
            (tmp_path / f"{number}.error").touch()  # no room for the reason
        else:
            os.utime(cell.run.path / "metrics.json", ns=(1, 1))

    failed = run_cells(cells, Launcher(behave, tmp_path), tmp_path, force=True)
    assert {cell.seed: reason for cell, reason in failed.items()} == {0: "failed, and there was no room to say why"}


def test_finished_on_other_data(tmp_path: Path) -> None:
    [cell] = make_cells(tmp_path, 1)
    cell = replace(cell, data="bbbb")
    finish(cell)
    (cell.run.path / "data.txt").write_text("aaaa\n")
    failed = run_cells([cell], Launcher(lambda *_: None, tmp_path), tmp_path)
    assert "was run on other data" in failed[cell]


def test_the_same_run_twice_is_one(tmp_path: Path) -> None:
    def compose_here(overrides: list[str]) -> DictConfig:
        return compose([*overrides, f"runs_dir={tmp_path}"])

    cells = grid_cells(
        [["method=mild", "seed=1"], ["method=mild_uniform", "seed=1"], ["method=mild", "seed=1"]], compose_here
    )
    assert [cell.overrides for cell in cells] == [("method=mild", "seed=1")]


def test_workers_get_places_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And come to the same run folder with them, wherever they stand; names of models on the hub are left alone."""
    (tmp_path / "models" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    given = ["dataset=mmlu", "dataset.path=q.csv", "experts.models=[models/a,Qwen/x@1]", "experts.table=t.csv"]
    told = places(to_plain(compose(given)))
    assert set(told) == {
        f"runs_dir='{tmp_path}/runs'",
        f"data_dir='{tmp_path}/data'",
        f"dataset.path='{tmp_path}/q.csv'",
        f"experts.table='{tmp_path}/t.csv'",
        f"experts.models=['{tmp_path}/models/a','Qwen/x@1']",
    }
    encoder = places(to_plain(compose([*given, "router.reads.model=models/a"])))
    assert {*encoder} - {*told} == {f"router.reads.model='{tmp_path}/models/a'"}
    here = RunFolder.of(to_plain(compose(given))).path.absolute()
    monkeypatch.chdir("/")
    assert RunFolder.of(to_plain(compose([*given, *told]))).path == here
    assert places(to_plain(compose([*given, *told]))) == ()


@pytest.mark.parametrize("dies", [False, True])
def test_what_another_process_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    """It finishes, or it dies and its run is taken over."""
    monkeypatch.setattr("l2d.runs.sweep.POLL_SECONDS", 0.01)
    cells = make_cells(tmp_path, 2)
    cells[0].run.path.mkdir(parents=True)
    lock = filelock.FileLock(cells[0].run.path / ".lock")
    lock.acquire()
    asleep: list[float] = []

    def sleep(seconds: float) -> None:
        asleep.append(seconds)
        if len(asleep) == 3:
            if not dies:
                finish(cells[0])
            lock.release()

    monkeypatch.setattr("l2d.runs.sweep.time.sleep", sleep)

    def behave(cell: Cell, _: int) -> None:
        if not (cell.seed == 0 and lock.is_locked):
            finish(cell)

    launcher = Launcher(behave, tmp_path)
    assert run_cells(cells, launcher, tmp_path) == {}
    assert launcher.rounds == ([[0, 1], [0]] if dies else [[0, 1]])
    assert all(cell.run.finished for cell in cells)


def test_listing_and_results(tmp_path: Path) -> None:
    cells = make_cells(tmp_path, 4)
    finish(cells[0], 0.2)
    finish(cells[1], 0.4)
    (cells[2].run.path / "checkpoints").mkdir(parents=True)
    (cells[2].run.path / "checkpoints" / "last.ckpt").touch()
    text = listing(cells)
    assert "2 finished, 1 begun, 1 missing" in text
    assert "about 3 min" in text  # two runs of 100 s
    assert "about 7 min" in listing(cells, force=True)
    assert "2 without" not in text
    header, rows = results(cells)
    assert dict(zip(header, rows[0], strict=True)) == {
        **cells[0].names,
        "variant": tmp_path.name,
        "seeds": "2/4",
        "deferral loss": "0.3000",
        "std": "0.1414",
    }
    guarded = dataclasses.replace(example_metrics().guarded, deferral_loss=0.3)
    write_json(cells[1].run.path / "metrics.json", example_metrics(0.4, guarded=guarded).as_json())
    header, rows = results(cells)
    assert dict(zip(header, rows[0], strict=True))["guarded"] == "0.2500"


def test_variants_of_one_name_are_told_apart() -> None:
    """Two noises and two rules of ρ: four cells, four texts, in the listing and in the results."""
    grid = [
        [f"method={method}", f"cost.noise={noise}", "seed=0"] for method in ("mild", "mild_paper") for noise in (0, 0.2)
    ]
    cells = grid_cells(grid, lambda overrides: compose(overrides))
    texts = [names[-1] for names in named(cells).values()]
    assert len(set(texts)) == 4
    assert "mild (cost.noise=0.2 rho.rule=theory)" in texts
    assert all(text in listing(cells) for text in texts)
    assert [row[4] for row in results(cells)[1]] == texts
    assert named(cells[:1])[cells[0]][-1] == "mild"


def test_no_estimate_without_neighbours(tmp_path: Path) -> None:
    assert "no estimate; 3 without a finished neighbour" in listing(make_cells(tmp_path))


PAPER_SETS = "cifar10,cifar100,svhn"
# experiment: datasets, setups, experts, cost
EXPERIMENTS = {
    "table1_error": (f"{PAPER_SETS},tiny_imagenet", "I,II,III", "synthetic", "error"),
    "table1_cost": (f"{PAPER_SETS},tiny_imagenet", "I,II,III", "synthetic", "error_plus_cost"),
    "table2_error": (PAPER_SETS, "I,II,III", "trained", "error"),
    "table2_cost": (PAPER_SETS, "I,II,III", "trained", "error_plus_cost"),
    "table4": (PAPER_SETS, "severe", "trained,synthetic", "error"),
    "noise": ("cifar10,svhn", "III", "synthetic", "error_plus_cost"),
}


def test_every_experiment_is_known_here() -> None:
    assert set(groups()["experiment"]) == set(EXPERIMENTS) | {
        "rho_ablation",
        "rho_size",
        "table3",
        "extreme",
        "price_curve",
        "beyond",
        "beyond_aux",
    }  # the first two vary ρ
    assert sweep_axes(["experiment=noise"])["cost.noise"] == "0.0,0.2"


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiments_pin_rho(experiment: str) -> None:
    """A later default of mild must not change a table."""
    axes = sweep_axes([f"experiment={experiment}"])
    cfg = to_plain(compose([f"experiment={experiment}", "method=mild_paper"]))
    found = (axes["dataset"], *(axes.get(group, cfg[group]["name"]) for group in ("setup", "experts", "cost")))
    assert found == EXPERIMENTS[experiment]
    assert len(axes["seed"].split(",")) == 5
    assert {"mild_paper", "tdef_paper", "mild_uniform", "tdef_uniform"} <= set(axes["method"].split(","))
    assert to_plain(compose(["method=tdef_paper"]))["method"]["rho"] == 1.0
    pinned = {"rule": "theory", "total": 1.0, "offset": 5.0, "counts": "cheapest", "groups": None, "values": None}
    assert cfg["method"]["rho"] == pinned
    text = (Path(__file__).parents[2] / "conf" / "method" / "mild_paper.yaml").read_text()
    assert all(f"{key}:" in text for key in pinned)  # said in the file itself, not taken from mild.yaml


def test_controls_have_the_mean_of_milds_rho() -> None:
    costs = torch.rand(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rho = {}
    for name in ("mild_paper", "mild_uniform", "tdef_uniform"):
        method = make(compose([f"method={name}"]).method, costs=costs, num_classes=4, decision="argmax")
        rho[name] = method.rho
    assert rho["mild_paper"].std() > 0
    for name in ("mild_uniform", "tdef_uniform"):
        assert torch.allclose(rho[name], rho["mild_paper"].mean().expand(4))


def finished(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("metrics.json"))}


@pytest.mark.slow
def test_chaos(start: Start, command: Command, tmp_path: Path) -> None:
    """One process at the sweep, or two, killed at 20 random moments and started again until done: the same results, nothing done twice.

    (A launcher's own worker is killed in test_joblib_and_a_killed_worker.)
    """
    whole = command(*GRID, "runs_dir=whole")
    assert whole.returncode == 0, whole.stderr
    reference = finished(tmp_path / "whole")
    assert len(reference) == 8
    moments = random.Random(0)
    written: dict[str, int] = {}
    for number in range(14):
        for sweep in [start(*GRID, "runs_dir=chaos") for _ in range(1 + (number % 7 > 3))]:  # 8 times one, 6 times two
            time.sleep(moments.uniform(0.1, 1.4))
            sweep.kill(signal.SIGKILL)
            sweep.wait()
        for name in finished(tmp_path / "chaos"):
            stamp = (tmp_path / "chaos" / name).stat().st_mtime_ns
            assert written.setdefault(name, stamp) == stamp, f"{name} was written twice"
    last = command(*GRID, "runs_dir=chaos")
    assert last.returncode == 0, last.stderr
    assert finished(tmp_path / "chaos") == reference
    assert all((tmp_path / "chaos" / name).stat().st_mtime_ns == stamp for name, stamp in written.items())
    again = command(*GRID, "runs_dir=chaos", "dry_run=true")
    assert "8 finished, 0 begun, 0 missing" in again.stdout


def dry(folder: Path, *grid: Sequence[str], force: bool = False) -> None:
    """Hydra's part stood in for."""

    def compose_here(overrides: list[str]) -> DictConfig:
        return compose([*overrides, f"runs_dir={folder}"])

    list_only(cast(Workshop, SimpleNamespace(compose=compose_here, grid=grid, config=SimpleNamespace(force=force))))


def test_dry_run_says_what_would_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = [
        (f"recipe.epochs={epochs}", f"trainer.devices={devices}", f"seed={seed}", "dry_run=true")
        for epochs in (0, 3)
        for devices in (1, 2, 0)
        for seed in (0, 1, 2**32)
    ]
    with pytest.raises(L2DError, match=r"^11 of the combinations would fail$"):
        dry(tmp_path, *grid)
    listed, _, said = capsys.readouterr().out.partition("would fail:\n")
    assert "18 missing" in listed
    assert "  recipe.epochs=0 trainer.devices=1: recipe.epochs=0: must be at least 1\n" in said
    assert said.count(": seed=4294967296: must be between 0 and 4294967295\n") == 4
    assert said.count(": trainer.devices: a sweep gives each run one device;") == 4
    assert said.count(": trainer.devices=0: must be at least 1\n") == 1


def test_what_is_finished_would_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = [("recipe.epochs=0", f"seed={seed}") for seed in (0, 1)]
    cells = grid_cells(grid, lambda overrides: compose([*overrides, f"runs_dir={tmp_path}"]))
    finish(cells[0])
    with pytest.raises(L2DError, match="would fail"):
        dry(tmp_path, *grid)
    finish(cells[1])
    dry(tmp_path, *grid)
    assert "2 finished" in capsys.readouterr().out
    with pytest.raises(L2DError, match="would fail"):
        dry(tmp_path, *grid, force=True)


@pytest.mark.slow
def test_three_people_start_the_same_sweep(start: Start, tmp_path: Path) -> None:
    sweeps = [start(*HALF, "recipe.epochs=2") for _ in range(3)]
    ended = [sweep.wait() for sweep in sweeps]
    assert [one.returncode for one in ended] == [0, 0, 0], [one.stderr for one in ended]
    assert len(finished(tmp_path / "runs")) == 4
    trained = sum(one.stdout.count("always the majority expert") - one.stdout.count("nothing done") for one in ended)
    assert trained == 4


@pytest.mark.slow
def test_interrupted_sweep_goes_on(start: Start, command: Command, tmp_path: Path) -> None:
    sweep = start(*HALF, "recipe.epochs=2")
    while not finished(tmp_path / "runs"):
        time.sleep(0.05)
        assert sweep.poll() is None
    sweep.kill(signal.SIGINT)
    ended = sweep.wait()
    assert ended.returncode == -signal.SIGINT
    assert "interrupted; the same command goes on" in ended.stderr
    assert command(*HALF, "recipe.epochs=2").returncode == 0
    assert len(finished(tmp_path / "runs")) == 4


@pytest.mark.slow
def test_a_run_folder_deleted_under_its_run(start: Start, tmp_path: Path) -> None:
    """Said in one line; the other runs go on."""
    sweep = start("-m", "seed=0,1", "recipe.epochs=400")
    folder: list[Path] = []
    while not folder:
        folder = [file.parent for file in tmp_path.glob("runs/**/seed=0/history.csv")]
        time.sleep(0.02)
        assert sweep.poll() is None
    while folder[0].exists():  # the run may put a file there meanwhile
        shutil.rmtree(folder[0], ignore_errors=True)
    deadline = time.monotonic() + 60
    while "error: " not in sweep.err.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    sweep.kill(signal.SIGKILL)
    line = next(line for line in sweep.wait().stderr.splitlines() if line.startswith("error: "))
    assert "No such file or directory" in line
    assert "seed=0" in line


@pytest.mark.slow
def test_full_disk(command: Command, tmp_path: Path) -> None:
    """Said clearly, nothing that looks finished; with space again the sweep goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        sweep = ["-m", "seed=0,1", f"runs_dir={disk}", "router.width=8", "recipe.epochs=1"]
        full = command(*sweep)
        assert full.returncode == 1
        assert "error: 2 of 2 runs failed" in full.stderr
        assert "Traceback" not in full.stderr
        assert not finished(disk)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        assert command(*sweep).returncode == 0
        assert len(finished(disk)) == 2
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def launch(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """With launchers of their own processes a fork is of no use."""
    given = ["-m", *TINY, "recipe.epochs=1", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "l2d.train", *given],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_ray(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    options = ["+hydra.launcher.ray.init.num_cpus=2", "+hydra.launcher.ray.init.include_dashboard=false"]
    result = launch(tmp_path, "method.rho.offset=-5,5", "hydra/launcher=ray", *options)
    assert result.returncode == 1
    assert "error: 1 of 2 runs failed" in result.stderr
    assert "rho of expert" in result.stdout
    assert len(finished(tmp_path / "runs")) == 1


@pytest.mark.slow
def test_submitit_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    result = launch(tmp_path, "hydra/launcher=submitit_local")
    assert result.returncode == 0, result.stderr
    assert len(finished(tmp_path / "runs")) == 1


@pytest.mark.slow
def test_joblib_and_a_killed_worker(tmp_path: Path) -> None:
    """A worker dies by SIGKILL: the sweep says so and finishes all the same."""
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    given = ["-m", *TINY, "recipe.epochs=15", "seed=0,1", "hydra/launcher=cpus", "hydra.launcher.n_jobs=2"]
    sweep = subprocess.Popen(
        [sys.executable, "-m", "l2d.train", *given],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/**/history.csv")):
        time.sleep(0.1)
        assert time.monotonic() < deadline
    workers = subprocess.run(["pgrep", "-P", str(sweep.pid)], capture_output=True, text=True, check=True).stdout.split()
    os.kill(max(map(int, workers)), signal.SIGKILL)
    out, _ = sweep.communicate(timeout=240)
    assert sweep.returncode == 0, out
    assert "the launcher stopped" in out
    assert len(finished(tmp_path / "runs")) == 2


@pytest.mark.parametrize("name", sorted(launchers()))
def test_launchers_compose(name: str) -> None:
    """Each says in its first line what it is for, and fits the plugin it builds upon."""
    assert launchers()[name]
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = hydra.compose("train", overrides=[f"hydra/launcher={name}"], return_hydra_config=True)
    target = cfg.hydra.launcher._target_
    assert target.startswith("hydra_plugins.")
    if name.startswith("gpus_"):
        number = int(name.removeprefix("gpus_"))
        assert (cfg.hydra.launcher.ray.init.num_gpus, cfg.hydra.launcher.ray.remote.num_gpus) == (number, 0.5)
