"""What all commands share: how they end when their reader has gone, and when the user made a mistake."""

import os
import signal
import subprocess
import sys

import pytest
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tests.conftest import environment

from l2d.config import compose
from l2d.utils.errors import L2DError
from l2d.utils.user_errors import answering, one_line


def without_a_reader(*command: str) -> subprocess.Popen[str]:
    """Its output goes into a pipe that nobody reads any more, as after `| head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.Popen(
            [sys.executable, *command], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment()
        )
    finally:
        os.close(writer)


@pytest.mark.slow
def test_commands_whose_reader_has_gone_end_without_a_word() -> None:
    """Whether Python notices while it prints or at its end, when it writes what is left."""
    many = "from l2d.utils.user_errors import answering\nwith answering():\n    print('many lines\\n' * 100_000)"
    commands = [["-c", many], ["-m", "l2d", "report", "--help"]]
    for process in [without_a_reader(*command) for command in commands]:
        _, said = process.communicate(timeout=200)
        assert (process.returncode, said) == (1, ""), process.args


def test_what_a_command_ends_with(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with answering():
        print("done")
    assert capsys.readouterr().out == "done\n"
    cases = {
        L2DError("key=1: must\nbe 2"): "error: key=1: must be 2",
        FileNotFoundError(2, "No such file", "a.csv"): "error: [Errno 2] No such file: 'a.csv'",
    }
    for error, said in cases.items():
        with pytest.raises(SystemExit) as caught, answering():
            raise error
        assert caught.value.code == said
    with pytest.raises(ZeroDivisionError), answering():
        raise ZeroDivisionError
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
        ("recipe.emma=0.9", "Could not override 'recipe.emma'.: Key 'emma' not in 'Recipe'; did you mean ema?"),
        ("method.rho.ofset=3", "; did you mean offset?"),
        ("dataset.labels=topic", "Key 'labels' is not in struct; there are _target_, fast, name, paper"),
    ],
)
def test_a_key_that_there_is_not(given: str, said: str) -> None:
    with pytest.raises(ConfigCompositionException) as caught:
        compose([given])
    assert one_line(caught.value).endswith(said)


def test_a_key_that_there_is_says_nothing_more() -> None:
    with pytest.raises(OmegaConfBaseException) as missing:
        OmegaConf.to_container(OmegaConf.create({"a": "???"}), throw_on_missing=True)
    with pytest.raises(ConfigCompositionException) as scalar:
        compose(["dataset.name.x=3"])
    for caught in (missing, scalar):
        assert "there are" not in one_line(caught.value)
        assert "did you mean" not in one_line(caught.value)
