"""What all commands share: how they end when their reader has gone, and when the user made a mistake."""

import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tests.conftest import environment

from l2d.config import compose
from l2d.utils.errors import L2DError, ParameterError
from l2d.utils.user_errors import OneLineParser, answering, given_as_flags, how_to_write, is_mistake, one_line


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
    """Whether Python notices while it prints or at its end, when it writes what is left."""
    many = "from l2d.utils.user_errors import answering\nwith answering():\n    print('many lines\\n' * 100_000)"
    commands = [["-c", many], ["-m", "l2d", "report", "--help"], ["-m", "l2d", "train", "dry_run=true"]]
    commands.append(["-m", "l2d", "train", "-m", "seed=range(200)", "dry_run=true"])
    commands += [["-m", "l2d", "--version"], ["-m", "l2d", "help"]]
    processes = [without_a_reader(*command) for command in commands]
    processes += [without_a_reader("-m", "l2d", word, unbuffered=True) for word in ("--version", "--help")]
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
        OverrideParseException(
            "a=b=c[", "no viable alternative\nat input"
        ): "error: a=b=c[: Hydra cannot read this value as it stands; write 'a=\"b=c[\"'",
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
        ("recipe.emma=0.9", "recipe.emma: .* ema"),
        ("sed=1", "sed: .* seed"),
        ("cost.colour=red", "cost.colour: .* noise, noise_kind"),
        ("method=mildd", "method=mildd: .* mild"),
        ("hydra/launcher=gpu_4", "hydra/launcher=gpu_4: .* gpus_4"),
        ("setup=z", "setup=z: .* I, II, III, llama"),
        ("setup", "setup: .*KEY=VALUE"),
        ("runs_dir=~/x", "runs_dir=~/x: .* 'runs_dir=\"~/x\"'"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(given: str, said: str) -> None:
    with pytest.raises(HydraException) as caught:
        compose([given])
    assert is_mistake(caught.value)
    assert re.match(said, one_line(caught.value))


@pytest.mark.parametrize(
    ("given", "right", "value"),
    [
        ("a=my log (1).csv", 'a="my log (1).csv"', "my log (1).csv"),
        ('a=5" (b)', 'a="5\\" (b)"', '5" (b)'),
        ("a={llama 3.1 (8b):0.1,b=c:2}", r"a={llama 3.1 \(8b\):0.1,b\=c:2}", {"llama 3.1 (8b)": 0.1, "b=c": 2}),
        ("""a={"x y":1,'z':2}""", "a={x y:1,z:2}", {"x y": 1, "z": 2}),
        ("a=[größe, x(1),b]", 'a=["größe","x(1)",b]', ["größe", "x(1)", "b"]),
    ],
)
def test_how_an_argument_should_be_written(given: str, right: str, value: object) -> None:
    """Hydra reads what is advised, and as what was meant."""
    with pytest.raises(OverrideParseException):
        OverridesParser.create().parse_overrides([given])
    assert how_to_write(given).endswith(f"; write {shlex.quote(right)}")
    assert OverridesParser.create().parse_override(right).value() == value


@pytest.mark.parametrize("given", ["a={b:", "a=[b,c", "a={größe:1}"])
def test_an_argument_that_cannot_be_mended_is_not(given: str) -> None:
    assert "; write" not in how_to_write(given)


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


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (L2DError("a"), True),
        (OSError(2, "No such file", "a.csv"), True),
        (OSError(28, "No space left on device"), False),
        (TypeError("a"), False),
    ],
)
def test_bugs_are_no_mistakes(error: Exception, expected: bool) -> None:
    assert is_mistake(error) is expected


def test_flags() -> None:
    parser = OneLineParser(prog="l2d some")
    parser.add_argument("--number", type=int)
    for given in (["--nmber", "3"], ["--number", "x"], ["--numb", "3"]):
        with pytest.raises(L2DError, match=r"--n.*; see l2d some --help$"):
            parser.parse_args(given)
    with pytest.raises(ParameterError, match=r"^--test-split=3: "), given_as_flags():
        raise ParameterError("test_split", "too large", 3)
