"""The front door: help that lists everything, mistakes in one line, the nearest command."""

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from l2d.commands import experts, prepare, train, tune
from l2d.commands.hydra_command import HydraCommand, HydraJob, help_text, run_hydra_command
from l2d.commands.main import COMMANDS, main
from l2d.config import SearchSettings, Settings, compose, groups, launchers
from l2d.runs.sweep import read_error
from l2d.utils.errors import Busy, L2DError, ParameterError

HYDRA_COMMANDS = {"train": train.COMMAND, "tune": tune.COMMAND, "experts": experts.COMMAND, "prepare": prepare.COMMAND}


@pytest.mark.parametrize("name", HYDRA_COMMANDS)
def test_help_names_every_choice_and_every_key(name: str) -> None:
    text = help_text(HYDRA_COMMANDS[name])
    for group, options in groups().items():
        for choice, meaning in options.items():
            assert (f"\n    {choice:<17} {meaning}\n" in text) == (group != "experiment" or name != "experts")
    for choice, meaning in launchers().items():
        assert f"\n    {choice:<17} {meaning}\n" in text
    keys = text.partition("\nkeys:\n")[2].partition("\nexamples:\n")[0].splitlines()
    found = {line.split("=")[0].strip(): line for line in keys if "=" in line}
    known = {field.name: field.metadata["help"] for field in fields(Settings)}
    if name == "tune":
        known |= {f"tune.{field.name}": field.metadata["help"] for field in fields(SearchSettings)}
        assert found["tune.final_seeds"].strip().startswith("tune.final_seeds=[0, 1, 2, 3, 4] ")
    assert found.keys() == known.keys()
    assert all(found[key].endswith(f"  {meaning}") for key, meaning in known.items())
    shown = [found[key].split()[0] for key in ("seed", "fold", "progress", "validation_fraction")]
    assert shown == ["seed=0", "fold=null", "progress=true", "validation_fraction=0.1"]
    defaults = text.partition("\ndefaults: ")[2].splitlines()[0].split()
    assert {"dataset=digits", "method=mild", f"experts={'trained' if name == 'experts' else 'synthetic'}"} < {*defaults}
    assert all(line in text for line in (f"usage: l2d {name} ", *HYDRA_COMMANDS[name].examples))


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed whatever else is given."""
    for name, (_, meaning) in COMMANDS.items():
        for given in ([], ["-h"], ["help"]):
            main(given)
            assert f"\n  {name:<9}  {meaning}" in capsys.readouterr().out
    for given in (["help", "train"], ["train", "seed=3", "-h"]):
        main(given)
        assert "usage: l2d train" in capsys.readouterr().out


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"l2d {version('l2d')}\n"


def test_a_command_that_there_is_not() -> None:
    for given, said in (("trian", "train"), ("--verbose", "train, tune,")):
        with pytest.raises(SystemExit, match=f"^error: {given}: .*{said}"):
            main([given])


COMMAND = HydraCommand("train", "train", "A test.", [])


def ended(job: Callable[[Any], Any], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        run_hydra_command(COMMAND, job, arguments)
    assert isinstance(caught.value.code, str)
    return caught.value.code


def fails(error: BaseException) -> Callable[[Any], Any]:
    def job(_: Any) -> None:
        raise error

    return job


@pytest.mark.parametrize("flag", [["--config-dir=my_conf"], ["-cd", "my_conf"]])
def test_own_modules_are_found_before_there_is_a_job(
    flag: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sweep checks its configs first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("l2d.config.hydra_adapter.run_job", lambda *_, **__: None)
    run_hydra_command(COMMAND, fails(L2DError("x")), ["-m"])
    assert str(tmp_path) not in sys.path
    run_hydra_command(COMMAND, fails(L2DError("x")), ["-m", *flag])
    assert str(tmp_path) in sys.path


@pytest.mark.full
def test_what_a_job_ends_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    assert ended(fails(ParameterError("tau", "too small", 3))) == "error: tau=3: too small"
    assert ended(fails(FileNotFoundError(2, "No such file", "a.csv"))) == "error: a.csv: No such file"
    assert ended(fails(L2DError("x")), "sed=3").startswith("error: sed: ")
    assert "--bogus" in ended(fails(L2DError("x")), "--bogus")
    assert ended(fails(SystemExit("please install foo"))) == "please install foo"
    assert ended(fails(L2DError("x")), "method=mild,tdef").startswith("error: method=mild,tdef: ")
    # The jobs of a sweeper that is not ours do not leave their errors to it.
    assert ended(fails(L2DError("x")), "-m", "hydra/sweeper=basic", "hydra.sweep.dir=.", "seed=0,1") == "error: x"
    (tmp_path / "multirun.yaml").unlink()
    for bug in (ZeroDivisionError(), TypeError("x"), OSError("which file?")):
        with pytest.raises(type(bug)):
            run_hydra_command(COMMAND, fails(bug), [])
    assert os.environ.get("HYDRA_FULL_ERROR", "0") == "0"
    assert not list(tmp_path.iterdir())


def test_the_whole_story_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ParameterError):
        run_hydra_command(COMMAND, fails(ParameterError("tau", "too small", 3)), [])


def within_a_sweep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hydra = {"mode": RunMode.MULTIRUN, "runtime": {"choices": {"hydra/sweeper": "cells"}}, "sweep": {"dir": folder}}
    config = OmegaConf.create({**hydra, "job": {"num": 7}, "overrides": {"task": ["seed=1", "runs_dir='/a'"]}})
    monkeypatch.setattr(HydraConfig, "get", lambda: config)


@pytest.mark.parametrize(
    ("error", "answer", "said"),
    [
        (None, None, ""),
        (Busy("held"), None, ""),  # whoever holds it will finish it
        (L2DError("key=3: too large"), "key=3: too large", "error: seed=1: key=3: too large\n"),
        (ZeroDivisionError("by 0"), "ZeroDivisionError: by 0", "error: seed=1: ZeroDivisionError: by 0\n"),
        (SystemExit("install foo"), "SystemExit: install foo", "error: seed=1: SystemExit: install foo\n"),
    ],
)
def test_what_a_job_of_a_sweep_leaves_for_it(
    error: Any, answer: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    within_a_sweep(tmp_path, monkeypatch)
    job: Any = fails(error) if error else lambda _: 5
    assert HydraJob(job, full=False)(None) == (None if error else 5)
    assert [file.name for file in tmp_path.glob("*.started")] == ([] if isinstance(error, Busy) else ["7.started"])
    assert read_error(tmp_path, 7) == answer
    assert capsys.readouterr().err == said
    kept = [file.read_text() for file in tmp_path.iterdir() if file.suffix != ".started"]
    assert ["Traceback" in text for text in kept] == ([] if answer is None else [True])  # of mistakes too


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(128 + 15), SystemExit(-1)], ids=["Ctrl-C", "SIGTERM", "submitit"]
)
def test_what_ends_a_sweep_too(error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    within_a_sweep(tmp_path, monkeypatch)
    with pytest.raises(type(error)):
        HydraJob(fails(error), full=False)(None)
    assert read_error(tmp_path, 7) is None


def test_a_job_in_another_process_finds_own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create({"mode": RunMode.RUN, "runtime": {"choices": {}}})
    monkeypatch.setattr(HydraConfig, "get", lambda: config)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert HydraJob(lambda _: str(tmp_path) in sys.path, full=False, modules=str(tmp_path))(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["dataset=svhn", "router=mlp"], "^router=mlp: "),
        (["logger=wandb", "dataset=table", "dataset.path=none.csv"], r"^logger=wandb .*'l2d\[wandb\]'"),
    ],
)
def test_what_is_refused_before_anything_is_loaded(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router for other inputs, and a tracker that is not installed. The data are not there either."""
    config = OmegaConf.create({"mode": RunMode.RUN, "runtime": {"choices": {}}, "overrides": {"task": []}})
    monkeypatch.setattr(HydraConfig, "get", lambda: config)
    monkeypatch.setattr("l2d.training.cross_validation.train_and_judge", lambda *_: pytest.fail("it was begun"))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(L2DError, match=said):
        train.train_job(compose([*given, f"runs_dir={tmp_path}", f"data_dir={tmp_path}"]))


def test_a_job_can_be_sent_to_another_process() -> None:
    import pickle

    job = pickle.loads(pickle.dumps(HydraJob(train.COMMAND.__class__, full=True)))
    assert job.full
