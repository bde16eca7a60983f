"""A Ctrl-C in a place where Python drops exceptions is not lost."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest

from l2d.utils import interrupts


class Pressed:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        signal.getsignal(signal.SIGINT)  # the handler runs here at the latest


@pytest.fixture
def default_handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(interrupts, "_pressed", False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_handler")
def test_dropped_and_raised_later(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: dropped.append(what.exc_type))
    interrupts.remember()
    interrupts.raise_dropped()
    thing = Pressed()
    del thing
    assert dropped == [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        interrupts.raise_dropped()


@pytest.mark.usefixtures("default_handler")
def test_deferred() -> None:
    reached = []
    interrupts.remember()
    with pytest.raises(KeyboardInterrupt), interrupts.deferred():  # noqa: PT012
        del (thing := [Pressed()])[0]
        reached.append(thing)
    assert reached == [[]]


@pytest.mark.usefixtures("default_handler")
def test_what_ignores_it_goes_on_ignoring_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.remember()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN


def test_only_ctrl_c_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    others: list[type[BaseException]] = []
    monkeypatch.setattr("sys.excepthook", lambda kind, *_: others.append(kind))
    interrupts.say_at_the_end("interrupted; go on")
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == "interrupted; go on\n"
    sys.excepthook(ZeroDivisionError, ZeroDivisionError(), None)
    assert others == [ZeroDivisionError]
