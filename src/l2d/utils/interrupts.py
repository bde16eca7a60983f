"""Ctrl-C that is not lost. Python drops an exception that arises in a destructor or in a weak reference's callback, and collecting
the garbage of a finished run goes through thousands of those."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

TERMINATED = 128 + signal.SIGTERM  # the status that a shell gives to what SIGTERM ended

_pressed = False
_deferred = False


def remember() -> None:
    """From now on a Ctrl-C is also written down, for `check`. Where the signal is ignored it stays so."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def check() -> None:
    """Raise the KeyboardInterrupt that was dropped, if one was."""
    if _pressed:
        raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """A Ctrl-C within takes effect at the end."""
    global _deferred
    _deferred = True
    try:
        yield
    finally:
        _deferred = False
    check()


def say_at_the_end(line: str) -> None:
    """In place of the traceback of a KeyboardInterrupt that is let through. Python then ends by the signal, status 130, and not by
    an exit of its own: only so does a shell end the loop around the command as well."""
    before = sys.excepthook

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(line, file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = say


def _note(number: int, frame: FrameType | None) -> None:
    global _pressed
    _pressed = True
    if not _deferred:
        signal.default_int_handler(number, frame)
