"""A Ctrl-C is answered by one line, a bug by its traceback."""

import sys

import pytest

from l2d.utils import interrupts


def test_only_ctrl_c_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    others: list[type[BaseException]] = []
    monkeypatch.setattr("sys.excepthook", lambda kind, *_: others.append(kind))
    interrupts.say_at_the_end("interrupted; go on")
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "interrupted; go on\n"
    sys.excepthook(ZeroDivisionError, ZeroDivisionError(), None)
    assert others == [ZeroDivisionError]
