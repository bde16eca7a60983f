"""Ctrl-C is never lost. Python drops an exception that is raised in a destructor or in a weak reference's callback, and collecting
the garbage of a finished run calls thousands of those."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

TERMINATED = 128 + signal.SIGTERM  # the status that a shell reports for a process ended by SIGTERM

_pressed = False
_deferred = False


def remember() -> None:
    """From now on a Ctrl-C is also noted, for `raise_dropped`. A signal that is ignored stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def raise_dropped() -> None:
    """Raise the KeyboardInterrupt that Python dropped, if there was one."""
    if _pressed:
        raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """A Ctrl-C inside takes effect at the end."""
    global _deferred
    _deferred = True
    try:
        yield
    finally:
        _deferred = False
    raise_dropped()


def say_at_the_end(line: str) -> None:
    """Print a line in place of a KeyboardInterrupt's traceback. The exception must still leave the program: Python then ends by the
    signal, with status 130, and a shell ends a loop around the command too."""
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
