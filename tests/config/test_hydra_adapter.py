"""Hydra as it is used here: arguments that are given, exceptions that come through, grids, files read once."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig

from l2d.config import CONF, compose
from l2d.config.composing import register_resolvers
from l2d.config.hydra_adapter import chosen_experiment, in_a_sweep, run_job, split_grid
from l2d.utils.errors import L2DError


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    register_resolvers()


def run(*arguments: str, multirun: bool = False, config: str = "train") -> list[dict[str, Any]]:
    """The values that the jobs of a command saw."""
    seen: list[dict[str, Any]] = []

    def job(cfg: DictConfig) -> None:
        seen.append({"seed": cfg.seed, "sweep": in_a_sweep(), "experiment": chosen_experiment()})

    run_job(job, str(CONF), config, arguments, multirun=multirun)
    return seen


@pytest.mark.slow
def test_arguments_are_those_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["elsewhere", "seed=9"])
    assert run("seed=3") == [{"seed": 3, "sweep": False, "experiment": None}]
    assert sys.argv == ["elsewhere", "seed=9"]
    assert run("experiment=noise")[0]["experiment"] == "noise"
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.slow
def test_many_runs() -> None:
    given = ["hydra/sweeper=basic", "hydra.sweep.dir=.", "seed=1,2"]
    assert [(one["seed"], one["sweep"]) for one in run("-m", *given)] == [(1, True), (2, True)]
    assert [one["seed"] for one in run(*given, multirun=True)] == [1, 2]
    assert [one["sweep"] for one in run(*given[:2], "hydra.mode=MULTIRUN")] == [True]


@pytest.mark.slow
def test_exceptions_come_through_and_the_environment_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")

    def job(_: DictConfig) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_job(job, str(CONF), "train", [])
    with pytest.raises(ConfigCompositionException):
        run("sed=1")
    assert os.environ["HYDRA_FULL_ERROR"] == "0"


@pytest.mark.slow
def test_flags(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags that ask Hydra something run nothing, in a sweep or not."""
    for given in (["--cfg", "job"], ["-m", "--cfg", "job", "--package", "recipe"]):
        assert run(*given) == []
        assert "epochs: 15" in capsys.readouterr().out
    assert run("--cfg", "job", multirun=True) == []
    with pytest.raises(L2DError, match="--bogus"):
        run("--bogus")


def write_method(folder: Path) -> Path:
    file = folder / "my_conf" / "method" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("name: mine\n")
    return folder / "my_conf"


@pytest.mark.parametrize("given", ["method=mild,tdef", "seed=range(3)"])
def test_several_values_without_a_sweep(given: str) -> None:
    with pytest.raises(L2DError, match=rf"^{re.escape(given)}: .* -m "):
        run(given)


@pytest.mark.slow
def test_the_home_folder_in_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: list[str] = []
    run_job(lambda cfg: seen.append(cfg.runs_dir), str(CONF), "train", ["runs_dir=~/x"])
    assert seen == [f"{tmp_path}/x"]


def test_own_configs_do_not_take_the_names_of_others(tmp_path: Path) -> None:
    """Hydra would train l2d's hinge in place of one's own."""
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "hinge.yaml").write_text("# mine\nname: hinge\n_target_: mine.Hinge\n")
    with pytest.raises(L2DError, match=r"hinge\.yaml: method=hinge "):
        run("--config-dir", str(tmp_path), "seed=1")


@pytest.mark.slow
def test_files_are_read_once_and_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = compose(["method=tdef", "method.rho=3", "+method.extra=1", "seed=3", "tune.folds=3", "~force"])
    assert changed.method.rho == changed.seed == changed.tune.folds == 3
    changed.recipe.optimizer.lr = 7
    from hydra._internal.core_plugins.file_config_source import FileConfigSource  # Hydra imports it anew

    read: list[str] = []
    whole = FileConfigSource.load_config

    def load(self: FileConfigSource, config_path: str) -> Any:
        read.append(config_path)
        return whole(self, config_path)

    monkeypatch.setattr(FileConfigSource, "load_config", load)
    after = compose(["method=tdef"])
    assert (after.method.rho, after.seed, after.tune.folds, after.force) == (1.0, 0, 1, False)
    assert after.recipe.optimizer.lr == 1e-3
    assert "extra" not in after.method
    assert read == []
    mine = write_method(tmp_path)
    for _ in range(2):
        run_job(lambda _: None, str(CONF), "train", ["--config-dir", str(mine), "method=mine"])
    assert read.count("method/mine") == 1


def test_grids() -> None:
    for given, expected in {
        "a=1,2 b=x,y": ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"],
        "seed=range(2) a=[1,2]": ["seed=0 a=[1,2]", "seed=1 a=[1,2]"],
        "seed=0,1 seed=5": ["seed=5"],
        "a=choice(1,2)": ["a=1", "a=2"],
        "+a=1 ~b ++c=2": ["+a=1 ~b ++c=2"],
        "a='x,y'": ["a='x,y'"],
        "": [""],
    }.items():
        assert split_grid(given.split()) == [one.split() for one in expected]
    with pytest.raises(HydraException):
        split_grid(["a=interval(0,1)"])
