"""Whole runs: same seed same bytes, crashes at every point, the command as people type it."""

import csv
import json
import re
import signal
import subprocess
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from safetensors.torch import load_file
from tests.conftest import TINY, TINY_ON_ROWS
from tests.data.sets.test_table import separable, write
from tests.forker import Child
from tests.metrics_example import example_metrics
from tests.running import folder_of as folder
from tests.running import train

from l2d.assembly.assemble import Splits
from l2d.assembly.build import make_router
from l2d.assembly.make import make_dataset
from l2d.assembly.module import RouterModule
from l2d.commands import train as train_command
from l2d.commands.train import say_what_next, train_job, what_next
from l2d.config import Experiment, check, compose
from l2d.core.guard import Guard
from l2d.data.arrays import Arrays
from l2d.data.sets.digits import Digits
from l2d.data.sets.prepared import write_prepared
from l2d.lightning.checkpoints import EpochCheckpoint
from l2d.lightning.learner import Learner
from l2d.methods.comp_sum import CompSum
from l2d.methods.cross_entropy import CrossEntropy
from l2d.methods.method import Method
from l2d.router import router as route
from l2d.router.trained import outputs_of
from l2d.runs.folder import RunFolder
from l2d.runs.history import HistoryLogger
from l2d.training import score, walk
from l2d.training.score import RoutedRows, guard_of
from l2d.utils.errors import L2DError

Tiny = Callable[..., DictConfig]
Command = Callable[..., subprocess.CompletedProcess[str]]


def saved_rows(path: Path) -> dict[str, np.ndarray]:
    with np.load(path / "test.npz") as saved:
        return dict(saved)


@pytest.mark.slow
def test_run_folder_and_metrics(tiny: Tiny) -> None:
    """Steps so large that the router is worth something after three epochs, and offsets make it worth more."""
    cfg = tiny("cost=error_plus_cost", "router.width=4", "router.stem=3x3", "recipe.optimizer.lr=0.02")
    metrics = train(cfg)
    path = folder(cfg)
    files = {"config.yaml", "metrics.json", "test.npz", "model.safetensors", "timing.json", "history.csv"}
    assert {entry.name for entry in path.iterdir()} - {".lock", "checkpoints"} == files
    assert json.loads((path / "metrics.json").read_text()) == metrics
    saved = saved_rows(path)
    scores, costs, decisions, held, prices = (saved[k] for k in ("scores", "costs", "decisions", "guarded", "prices"))
    assert prices.tolist() == metrics["prices"]
    assert np.allclose(saved["posterior"].sum(1), 1, atol=1e-5)
    assert (decisions == 4 - scores[:, ::-1].argmax(1)).all()  # ties to the highest index
    assert metrics["deferral_loss"] == pytest.approx(costs[np.arange(360), decisions].mean())
    assert metrics["by_decision"]["argmax"] == {
        "validation": pytest.approx(metrics["validation"]["deferral_loss"]),
        "test": pytest.approx(metrics["deferral_loss"]),
    }
    by_posterior = 4 - saved["posterior"][:, ::-1].argmax(1)
    assert metrics["by_decision"]["posterior"]["test"] == pytest.approx(costs[np.arange(360), by_posterior].mean())
    assert metrics["rows"] == {"train": 1293, "validation": 144, "test": 360}
    assert metrics["epochs"] == metrics["kept_epoch"] == 3
    assert metrics["method_buffers"]["rho"][0] > 5
    guarded, by_validation = metrics["guarded"], metrics["guarded"]["validation"]
    assert guarded["deferral_loss"] == pytest.approx(costs[np.arange(360), held].mean())
    assert guarded["mean_price"] == pytest.approx(prices[held].mean())
    assert guarded["error_rate"] == pytest.approx(guarded["deferral_loss"] - guarded["mean_price"])
    assert guarded["ratios"] == pytest.approx(np.bincount(held, minlength=5) / 360)
    assert (guarded["constant"], by_validation["best_constant"]) == (None, "expert 2")
    assert by_validation["gain"] > by_validation["standard_error"]
    shifted = scores.astype(np.float64) + guarded["offsets"]
    assert (held == 4 - shifted[:, ::-1].argmax(1)).all()
    assert (held != decisions).any()


@pytest.mark.slow
def test_extreme_prices_are_in_the_metrics(tiny: Tiny) -> None:
    metrics = train(tiny("setup=I", "cost=extreme", "recipe.epochs=1"))
    found = metrics["extreme"]
    assert metrics["prices"] == found["prices"]
    assert metrics["baselines"]["oracle"]["ratios"][0] == pytest.approx(found["share_test"])


# f_1 − f_2 is 0.1, 0.2, 0.3, 0.4: the router takes expert 1, though expert 2 is right on the first two rows. 25 times each.
BIASED = torch.tensor([[0.6, 0.5], [0.7, 0.5], [0.8, 0.5], [0.9, 0.5]]).repeat(25, 1)
RIGHT = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=torch.float64).repeat(25, 1)


def held(method: Method, outputs: torch.Tensor, costs: torch.Tensor, test: torch.Tensor) -> tuple[Guard, list[int]]:
    """The guard of the validation rows, and the experts that it gives to the test rows."""
    split: Any = SimpleNamespace(logged=None, costs=costs, prices=torch.zeros(costs.shape[1]))
    validation, tested = (RoutedRows.of(method, split, rows) for rows in (outputs, test))
    guard = guard_of(method, validation, best=int(costs.mean(dim=0).argmin()))
    return guard, guard.decide(tested.utilities, tested.decisions).tolist()


@pytest.mark.parametrize("decision", ["argmax", "posterior"])
def test_what_validation_asks_for_is_done_to_the_test_rows(decision: str) -> None:
    """Shifted by between 0.2 and 0.3, of scores or, as decisions go by it, of what a softmax makes of them. Costs the other way
    round, or the same on every row, ask for other things."""
    method = CrossEntropy(costs=RIGHT, num_classes=0, decision=decision, weighted=False, beta=1.0)
    test = torch.tensor([[0.65, 0.5], [0.85, 0.5], [0.0, 0.5]])
    guard, decided = held(method, BIASED, RIGHT, test)
    assert (guard.constant, decided) == (None, [1, 0, 1])
    assert guard.offsets is not None
    assert guard.offsets[0] < -0.05 < 0.05 < guard.offsets[1]
    assert decision == "posterior" or guard.offsets == pytest.approx((-0.125, 0.125))
    assert (guard.gain, guard.best) == (0.5, 0)
    assert held(method, BIASED, RIGHT.flip(1), test)[1] != decided
    always, decided = held(method, BIASED, torch.tensor([[0.3, 0.2]]).repeat(100, 1), test)
    assert (always.constant, decided) == (1, [1, 1, 1])


@pytest.mark.slow
def test_a_sweeps_runs_do_not_pile_up_in_memory(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []

    def watched(experiment: Experiment, splits: Splits, parts: int) -> RouterModule:
        assert not any(router() for router in alive)
        router = make_router(experiment, splits, parts)
        alive.append(weakref.ref(router))
        return router

    monkeypatch.setattr(walk, "make_router", watched)
    for seed in range(2):
        train(tiny("recipe.epochs=1", f"seed={seed}"))
    assert len(alive) == 2


@pytest.mark.slow
def test_finished_is_not_run_again_unless_forced(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    """The same seed writes the same bytes, another one does not."""
    names = ("metrics.json", "history.csv", "test.npz")
    cfg = tiny()
    train(cfg)
    files = [folder(cfg) / name for name in names]
    before, written = [file.read_bytes() for file in files], files[0].stat().st_mtime_ns
    capsys.readouterr()
    train(cfg)
    assert files[0].stat().st_mtime_ns == written
    assert "finished already" in capsys.readouterr().out
    train(tiny("force=true"))
    assert files[0].stat().st_mtime_ns != written
    assert [file.read_bytes() for file in files] == before
    other = tiny("seed=1")
    train(other)
    assert (folder(other) / names[0]).read_bytes() != before[0]


class Crash(Exception):
    """Stands for a kill: nothing catches it."""


def crashing(original: Callable[..., Any], call: int) -> Callable[..., Any]:
    """It dies when it is called for the so-manieth time."""
    calls = 0

    def dying(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Crash
        return original(*args, **kwargs)

    return dying


# A rate at which every epoch moves the validation loss, up and down.
LIVELY = ["recipe.optimizer.lr=0.05", "recipe.epochs=4", "recipe.schedule=constant", "seed=2"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of two runs that nothing disturbed."""
    runs = {}
    for checkpoint in ("last", "best"):
        cfg = compose([*TINY, *LIVELY, f"checkpoint={checkpoint}", f"runs_dir={tmp_path_factory.mktemp(checkpoint)}"])
        train(cfg)
        runs[checkpoint] = folder(cfg)
    assert (runs["last"] / "test.npz").read_bytes() != (runs["best"] / "test.npz").read_bytes()
    best = RunFolder(runs["best"])
    with (best.path / "history.csv").open(newline="") as lines:
        losses = [float(row["val/deferral_loss"]) for row in csv.DictReader(lines)]
    assert best.metrics().kept_epoch == losses.index(min(losses)) + 1 < 4
    for run, loss in ((best, min(losses)), (RunFolder(runs["last"]), losses[-1])):
        assert run.metrics().validation.deferral_loss == pytest.approx(loss, rel=1e-6)
    return runs


CRASHES = {
    "in a later epoch": (CompSum, "loss", 10),
    "before the first checkpoint": (EpochCheckpoint, "_save", 1),
    "before the last checkpoint": (EpochCheckpoint, "_save", 4),
    "while the history is written": (HistoryLogger, "_write", 3),
    "after training": (score, "routed", 1),
    "before the router is kept": (walk, "write_weights", 1),
    "before the result": (RunFolder, "finish", 1),
}


# With checkpoint=last, which has less to lose, one of them does.
MOMENTS = [*(("best", where) for where in CRASHES), ("last", "in a later epoch")]


def crash(cfg: DictConfig, owner: Any, name: str, call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A checkpoint after every epoch, however short.
    monkeypatch.setattr("l2d.lightning.checkpoints.SHARE", float("inf"))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crashing(getattr(owner, name), call))
        with pytest.raises(Crash):
            train(cfg)
    assert not (folder(cfg) / "metrics.json").exists()


def check_same(one: Path, other: Path) -> None:
    for file in ("metrics.json", "history.csv", "test.npz", "model.safetensors"):
        assert (one / file).read_bytes() == (other / file).read_bytes(), file


@pytest.mark.full
@pytest.mark.parametrize(("checkpoint", "where"), MOMENTS)
def test_resumes_to_the_same_result(
    where: str, checkpoint: str, unbroken: dict[str, Path], tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tiny(f"checkpoint={checkpoint}", *LIVELY)
    crash(broken, *CRASHES[where], monkeypatch)
    train(broken)
    check_same(folder(broken), unbroken[checkpoint])


@pytest.mark.slow
def test_sampling_leaves_the_rows_it_is_held_against_alone(tiny: Tiny) -> None:
    """Resampled, the last expert has the least mean cost; the best single expert is still the first."""
    sampled = train(tiny("setup=I", "sampling=under", "recipe.epochs=1"))
    plain = train(tiny("setup=I", "recipe.epochs=1"))
    assert sampled["rows"]["train"] < plain["rows"]["train"] / 2
    assert sampled["baselines"] == plain["baselines"]
    assert sampled["baselines"]["best_single"]["ratios"] == [1, 0, 0]


@pytest.mark.full
def test_nothing_is_chosen_on_the_test_split(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other test rows, all of a class that is not the best single expert's, the trained weights, everything logged on the way
    and what guards the decisions stay the same: a router that has not learned enough is replaced by one expert."""
    runs = [tiny("checkpoint=best"), tiny("checkpoint=best", "runs_dir=other")]
    monkeypatch.chdir(runs[0].runs_dir.rsplit("/", 1)[0])
    train(runs[0])
    load = Digits.load

    def noisy(self: Digits, data_dir: Path) -> Arrays:
        arrays = load(self, data_dir)
        noise = torch.randint(0, 16, arrays.test_inputs.shape, dtype=torch.uint8)
        return Arrays(arrays.train_inputs, arrays.train_labels, noise, torch.full_like(arrays.test_labels, 9), 10)

    monkeypatch.setattr(Digits, "load", noisy)
    train(runs[1])
    one, other = (folder(cfg) for cfg in runs)
    assert (one / "history.csv").read_bytes() == (other / "history.csv").read_bytes()
    metrics = [json.loads((path / "metrics.json").read_text()) for path in (one, other)]
    assert metrics[0]["baselines"] != metrics[1]["baselines"]
    for key in ("constant", "offsets", "validation"):
        assert metrics[0]["guarded"][key] == metrics[1]["guarded"][key]
    by_validation = metrics[0]["guarded"]["validation"]
    assert by_validation["gain"] <= by_validation["standard_error"]
    assert metrics[0]["guarded"]["constant"] == by_validation["best_constant"] == "expert 1"
    for path in (one, other):
        assert {*saved_rows(path)["guarded"].tolist()} == {0}
    weights = [load_file(path / "model.safetensors") for path in (one, other)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


# Patience


STEADY = {"patience": ["recipe.patience=2"]}


def on_a_table(folder: Path, *overrides: str) -> DictConfig:
    """Six epochs, the third the best on validation."""
    given = ["dataset=table", f"dataset.path={write(folder, separable(120))}", "validation_fraction=0.3"]
    network = ["router.width=4", "router.dropout=0", "recipe.batch_size=16", "recipe.optimizer.lr=0.1"]
    lively = ["recipe.epochs=6", "recipe.schedule=constant", "checkpoint=best"]
    return compose([*TINY_ON_ROWS, *given, *network, *lively, f"runs_dir={folder / 'runs'}", *overrides])


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of runs that nothing disturbed."""
    runs = {}
    for name, overrides in {"neither": [], **STEADY}.items():
        cfg = on_a_table(tmp_path_factory.mktemp(name), *overrides)
        train(cfg)
        runs[name] = folder(cfg)
    return runs


def losses_of(path: Path, column: str = "val/deferral_loss") -> list[float]:
    with (path / "history.csv").open(newline="") as lines:
        return [float(row[column]) for row in csv.DictReader(lines)]


@pytest.mark.slow
def test_patience_ends_a_run(steady: dict[str, Path]) -> None:
    whole, early = (losses_of(steady[name]) for name in ("neither", "patience"))
    assert whole.index(min(whole)) == 2
    assert early == whole[:5]
    metrics = {name: json.loads((path / "metrics.json").read_text()) for name, path in steady.items()}
    assert {name: found["epochs"] for name, found in metrics.items()} == {"neither": 6, "patience": 5}
    assert metrics["patience"]["validation"] == metrics["neither"]["validation"]
    for path in steady.values():
        router = route.Router.load(path, raw=True)
        rows = make_dataset(check(RunFolder(path).config())).load(Path()).test_inputs
        np.testing.assert_allclose(outputs_of(router, rows), saved_rows(path)["scores"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [(EpochCheckpoint, "_save", 5), (RunFolder, "finish", 1)])
def test_killed_with_patience(
    moment: tuple[Any, str, int], steady: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When epochs without a new best have been counted already, and when training was over: then none is trained again."""
    cfg = on_a_table(tmp_path, *STEADY["patience"])
    crash(cfg, *moment, monkeypatch)
    if moment[0] is RunFolder:
        monkeypatch.setattr(Learner, "training_step", crashing(Learner.training_step, 1))
    train(cfg)
    check_same(folder(cfg), steady["patience"])


@pytest.mark.slow
@pytest.mark.parametrize("steps", [["recipe.epochs=3"], ["recipe.epochs=1", "recipe.batch_size=2048"]])
def test_diverging_training_is_one_line_and_not_finished(steps: list[str], tiny: Tiny) -> None:
    """Also when it is the very last step that diverges, whose loss is never seen in training."""
    cfg = tiny("recipe.optimizer.lr=1e30", *steps)
    with pytest.raises(L2DError, match=r"diverged.*recipe\.optimizer\.lr"):
        train(cfg)
    assert not (folder(cfg) / "metrics.json").exists()
    assert not (folder(cfg) / "checkpoints" / "last.ckpt").exists()


# What only the data, the experts or the objects can tell; all else is refused by `check` (tests/config/test_checking.py).
BAD = {
    "setup.coverage=[0.97,0.03]": "setup.coverage",
    "cost=error_plus_cost cost.prices=[1,2]": "cost.prices=[1",
    "cost=extreme": "cost: ",
    "cost=columns": "cost: ",
    "method.rho.offset=-5": "method.rho.offset=-5",
    "method.rho.groups=[4,5]": "method.rho.groups",
    "validation_fraction=0.001": "validation_fraction",
    "recipe.batch_size=2": "recipe.batch_size=2",
    "setup.name=../../x": "setup.name=../../x",
    "+recipe.optimizer.betas=3": "recipe.optimizer=",
}


@pytest.mark.full
@pytest.mark.parametrize("override", BAD)
def test_bad_values_leave_no_folder(override: str, tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(L2DError) as caught:
        train(tiny(*override.split()))
    assert str(caught.value).startswith(BAD[override])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_bad_trainer_is_one_line(tiny: Tiny, tmp_path: Path) -> None:
    absent = "cuda" if torch.backends.mps.is_available() else "mps"
    with pytest.raises(L2DError, match=r"^trainer="):
        train(tiny(f"trainer.accelerator={absent}"))
    assert not list(tmp_path.rglob("metrics.json"))


@pytest.mark.full
def test_the_command(command: Command, tmp_path: Path) -> None:
    first = command("recipe.epochs=1", tiny=True)
    assert first.returncode == 0, first.stderr
    assert "always the majority expert" in first.stdout
    [path] = re.findall(r"^runs/.*$", first.stdout, re.MULTILINE)
    assert (tmp_path / path / "metrics.json").exists()
    picture = tmp_path / path / "deferral.png"
    picture.unlink()  # it was there; and is again, if it is missing
    again = command("recipe.epochs=1")
    assert picture.exists()
    assert again.returncode == 0
    assert "finished already" in again.stdout
    assert f"l2d route {path} " in again.stdout
    # nothing is left beside runs/
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs"]


# Somebody's own classes, as they are while they are being written.
OWN = """
from l2d.data.sets.digits import Digits
from l2d.methods.cross_entropy import CrossEntropy


class Buggy(CrossEntropy):
    def __init__(self, **given):
        super().__init__(**given, weights=1)


class BuggyLoss(CrossEntropy):
    def loss(self, outputs, costs, labels):
        return super().loss(outputs, costs)


class BuggyDigits(Digits):
    def load(self, data_dir):
        return super().load(data_dir)["train"]
"""


@pytest.mark.parametrize(("group", "name"), [("method", "Buggy"), ("method", "BuggyLoss"), ("dataset", "BuggyDigits")])
def test_a_bug_in_an_own_class_shows_where(
    group: str, name: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_classes.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TypeError) as caught:
        train(tiny("method=ce", f"{group}._target_=own_classes.{name}"))
    assert any(Path(entry.path).name == "own_classes.py" for entry in caught.traceback)
    assert re.search(rf"{group}=\w+ \(own_classes\.{name}\)", caught.value.__notes__[-1])
    assert not list(tmp_path.rglob("metrics.json"))


@pytest.mark.slow
def test_a_sweep_makes_separate_runs_and_outlives_a_bad_one(command: Command, tmp_path: Path) -> None:
    done = command("-m", "recipe.epochs=1", "setup=I", "method.rho.offset=-5,1,2")
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "method.rho.offset=-5" in lines[0]
    assert "1 of 3 runs" in lines[-1]
    assert "method.rho.offset=-5" in done.stdout
    assert len(list(tmp_path.glob("runs/digits/I/**/metrics.json"))) == 2
    assert not list(tmp_path.glob("runs/**/deferral.png"))


@pytest.mark.full
def test_two_processes_train_one_router(command: Command, tmp_path: Path) -> None:
    """DDP on two CPU processes: one folder, finished once; the batches are the same, so the result is close to that of one."""
    one = command("recipe.epochs=2", "seed=2", "runs_dir=one")
    two = command("recipe.epochs=2", "seed=2", "runs_dir=two", "trainer.devices=2")
    assert one.returncode == 0, one.stderr
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("always the majority expert") == 1
    files = [next(tmp_path.glob(f"{name}/**/metrics.json")) for name in ("one", "two")]
    results = [json.loads(file.read_text()) for file in files]
    assert results[0]["rows"] == results[1]["rows"]
    assert len(list(tmp_path.glob("two/**/metrics.json"))) == 1
    scores = [np.load(file.parent / "test.npz")["scores"] for file in files]
    assert scores[0].shape == scores[1].shape == (360, 5)
    losses = [losses_of(file.parent, "train/loss") for file in files]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)  # batch normalisation sees half a batch


@pytest.mark.slow
def test_an_image_set_resident_and_streamed(command: Command, tmp_path: Path) -> None:
    """Where the images lie changes nothing. A finished run is not taken for one of other images."""
    rng, arrays = np.random.default_rng(0), dict[str, np.ndarray]()
    for split, n in (("train", 240), ("test", 60)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        arrays[f"{split}_labels"] = np.arange(n) % 10
    write_prepared(tmp_path / "data" / "svhn", arrays, 10)
    results = []
    for where in ("true", "false"):
        options = ["recipe.batch_size=64", "recipe.epochs=2", f"trainer.data_on_device={where}", f"runs_dir=on_{where}"]
        run = command("dataset=svhn", *options)
        assert run.returncode == 0, run.stderr
        (file,) = tmp_path.glob(f"on_{where}/**/test.npz")
        assert (file.parent / "data.txt").exists()
        results.append(file.read_bytes())
    assert results[0] == results[1]
    write_prepared(tmp_path / "data" / "svhn", {**arrays, "test_labels": np.zeros(60, dtype=np.int64)}, 10)
    other = command("dataset=svhn", *options)
    assert other.returncode == 1
    assert "other data" in other.stderr


def wait_for_a_checkpoint(runs: Path) -> None:
    deadline = time.monotonic() + 120
    while not any(runs.glob("**/last.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.01)


# SIGINT by the signal, so that a shell's loop around it ends too.
SIGNALS = [(signal.SIGINT, -signal.SIGINT, "interrupted"), (signal.SIGTERM, 128 + signal.SIGTERM, "terminated")]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status", "said"), SIGNALS)
def test_signals_say_how_to_go_on(
    number: int, status: int, said: str, start: Callable[..., Child], tmp_path: Path
) -> None:
    process = start("recipe.epochs=500")
    wait_for_a_checkpoint(tmp_path / "runs")
    process.kill(number)
    ended = process.wait(timeout=60)
    assert ended.returncode == status
    assert ended.stderr.strip().splitlines()[-1].startswith(said)


TABLE = ["dataset=table", "dataset.path=my table.csv"]
NEXT = [
    (["setup=I"], "report", "--image new.png", ""),
    ([*TABLE, "cost=error_plus_cost", "cost.prices=[0,1]"], "curve", "--file new.csv", ""),
    (["dataset=mmlu_sim", "router=deberta_v3_xsmall"], "report", "--file new.csv", " --keep text"),
]


def commands_in(said: str) -> list[str]:
    return re.findall(r"^  (l2d .*)$", said, re.MULTILINE)


@pytest.mark.parametrize(("overrides", "look", "query", "kept"), NEXT)
def test_what_to_do_next(overrides: list[str], look: str, query: str, kept: str) -> None:
    """After a method that takes other prices later: a curve, if there are prices. A log keeps texts instead of tokens."""
    found = example_metrics(prices=[0.0, float(any(word.startswith("cost=") for word in overrides))])
    found = replace(found, capabilities=replace(found.capabilities, takes_prices_later=True))
    said = what_next(check(compose(overrides)), "run", found)
    assert commands_in(said) == [f"l2d {look} run", f"l2d route run {query}", f"l2d serve run{kept}"]
    found = replace(found, capabilities=replace(found.capabilities, takes_prices_later=False))
    assert commands_in(what_next(check(compose(overrides)), "run", found))[0] == "l2d report run"


@pytest.mark.parametrize(("part", "trust"), [("router", " --trust my.own"), ("dataset", "")])
def test_nothing_is_assumed_of_what_a_class_of_ones_own_reads(part: str, trust: str) -> None:
    """A dataset of one's own is not built to route, a router is."""
    experiment = check(compose(["dataset=digits"]))
    own = replace(experiment, **{part: replace(getattr(experiment, part), target="my.own.Thing")})
    assert f"l2d route run --file new.csv{trust}" in commands_in(what_next(own, "run", example_metrics()))


def say_it_is_a_command(monkeypatch: pytest.MonkeyPatch, *, sweep: bool = False) -> None:
    monkeypatch.setattr("l2d.config.hydra_adapter.in_a_sweep", lambda: sweep)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dry", "sweep", "rank"), [(False, False, 0), (True, False, 0), (False, True, 0), (False, False, 1)]
)
def test_when_it_is_said_what_to_do_next(
    dry: bool, sweep: bool, rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    """Once, by the first process, after a single run. Only then is its picture drawn."""
    say_it_is_a_command(monkeypatch, sweep=sweep)
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    run: Any = SimpleNamespace(finished=True, path=tmp_path, metrics=example_metrics)
    say_what_next(check(compose([f"dry_run={dry}"])), run)
    said = not (dry or sweep or rank)
    assert ("next:" in capsys.readouterr().out) == (tmp_path / "deferral.png").exists() == said


@pytest.mark.slow
def test_the_keys_of_a_search_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("l2d.commands.train.answered", lambda *_: pytest.fail("it was begun"))
    with pytest.raises(L2DError, match=r"^tune\.folds"):
        train_job(compose(["tune.folds=0"]))


@pytest.mark.slow
def test_prices_that_hardly_count_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say_it_is_a_command(monkeypatch)
    monkeypatch.setattr(train_command, "run_figure", lambda _: SimpleNamespace(savefig=Path.touch))
    for overrides, price, hint in (
        (["cost=columns"], 0.002, True),
        (["cost=error_plus_cost", "cost.prices=[0.002,0.0001]"], 0.002, True),
        (["cost=columns"], 0.02, False),
        (["cost=columns", "cost.error_price=0.5"], 0.004, False),
        (["cost=columns", "cost.scale=0.1"], 0.002, False),
    ):
        found = replace(example_metrics(), prices=[price, price / 20])
        run: Any = SimpleNamespace(finished=True, path=tmp_path, metrics=lambda found=found: found)
        say_what_next(check(compose(["dataset=table", *overrides])), run)
        assert capsys.readouterr().out.splitlines()[1].startswith("cost.error_price: ") == hint
