"""The end of a command whose reader has gone, or whose user made a mistake."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tests.conftest import environment

from l2d.config import compose
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags, is_mistake, one_line, say_at_the_end


def without_a_reader(*command: str, unbuffered: bool = False) -> subprocess.Popen[str]:
    """Its output goes into a pipe that nobody reads any more, as after `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    how = {**environment(), "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    try:
        return subprocess.Popen([sys.executable, *command], stdout=writer, stderr=subprocess.PIPE, text=True, env=how)
    finally:
        os.close(writer)


@pytest.mark.full
def test_commands_whose_reader_has_gone_end_without_a_word() -> None:
    """Python notices while it prints, or at its end, when it writes what is left."""
    many = "from l2d.utils.user_errors import answering\nwith answering():\n    print('many lines\\n' * 100_000)"
    commands = [["-c", many], ["-m", "l2d", "train", "dry_run=true"], ["-m", "l2d", "--version"]]
    commands.append(["-m", "l2d", "train", "-m", "seed=range(200)", "dry_run=true"])
    processes = [without_a_reader(*command) for command in commands]
    processes.append(without_a_reader("-m", "l2d", "--help", unbuffered=True))
    for process in processes:
        _, said = process.communicate(timeout=200)
        assert (process.returncode, said) == (1, ""), process.args


def test_what_a_command_ends_with(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with answering():
        print("done")
    assert capsys.readouterr().out == "done\n"
    cases = {
        L2DError("key=1: must\nbe 2"): "error: key=1: must be 2",
        FileNotFoundError(2, "No such file", "a.csv"): "error: a.csv: No such file",
    }
    for error, said in cases.items():
        with pytest.raises(SystemExit) as caught, answering():
            raise error
        assert caught.value.code == said
    for bug in (ZeroDivisionError(), OSError("which file?"), OSError(28, "No space left on device")):
        with pytest.raises(type(bug)), answering():
            raise bug
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(L2DError), answering():
        raise L2DError("key=1: must be 2")


def test_ctrl_c_ends_by_the_signal_so_that_a_loop_around_the_command_ends_too() -> None:
    code = "from l2d.utils.user_errors import answering\nwith answering('interrupted; go on'):\n    raise KeyboardInterrupt"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "interrupted; go on\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sed=1", "sed: .* seed"),
        ("cost.colour=red", "cost.colour: .* noise, noise_kind"),
        ("method=mildd", "method=mildd: .* mild"),
        ("setup=z", "setup=z: .* I, II, III, llama"),
        ("setup", "setup: .*KEY=VALUE"),
        ("runs_dir=~/x", "runs_dir=~/x: .* 'runs_dir=\"VALUE\"'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(given: str, said: str) -> None:
    with pytest.raises(HydraException) as caught:
        compose([given])
    assert is_mistake(caught.value)
    assert re.match(said, one_line(caught.value))


def test_other_errors_of_hydra_say_what_and_why() -> None:
    with pytest.raises(OmegaConfBaseException) as missing:
        OmegaConf.to_container(OmegaConf.create({"a": "???"}), throw_on_missing=True)
    with pytest.raises(ConfigCompositionException) as scalar:
        compose(["dataset.name.x=3"])
    with pytest.raises(ConfigCompositionException) as merged:
        compose(["method.rho=[1,2]"])
    for caught, words in ((missing, "a"), (scalar, "dataset.name.x"), (merged, "method.rho=[1,2]")):
        line = one_line(caught.value)
        assert words in line
        assert [word for word in ("\n", "there are", "did you mean") if word in line] == []
    silent = HydraException("no config")
    silent.__cause__ = ValueError()
    assert one_line(silent) == "no config"


def test_flags(tmp_path: Path) -> None:
    parser = OneLineParser(prog="l2d some")
    parser.add_argument("--number", type=int)
    for given in (["--nmber", "3"], ["--number", "x"], ["--numb", "3"]):
        with pytest.raises(L2DError, match=r"--n.*; see l2d some --help$"):
            parser.parse_args(given)
    with pytest.raises(L2DError, match=r"one folder at a time"):  # as runs/* may give it
        parser.parse_args([str(tmp_path / "runs"), str(tmp_path)])
    with pytest.raises(ParameterError, match=r"^--test-split=3: "), given_as_flags():
        raise ParameterError("test_split", "too large", 3)


def test_only_ctrl_c_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    others: list[type[BaseException]] = []
    monkeypatch.setattr("sys.excepthook", lambda kind, *_: others.append(kind))
    say_at_the_end("interrupted; go on")
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "interrupted; go on\n"
    sys.excepthook(ZeroDivisionError, ZeroDivisionError(), None)
    assert others == [ZeroDivisionError]
