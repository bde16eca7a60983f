"""Ctrl-C is never lost. Python drops exceptions raised in destructors and in callbacks of weak references, and garbage
collection after a run calls thousands of those."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

TERMINATED = 128 + signal.SIGTERM  # the status that a shell reports for a process ended by SIGTERM

_pressed = False
_deferred = False


def remember() -> None:
    """From now on, also record a Ctrl-C for `raise_dropped`. If SIGINT is ignored, it stays ignored."""
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
    """Print a line instead of a KeyboardInterrupt's traceback. The exception must still propagate: Python then exits by the
    signal, with status 130, and a shell loop around the command stops too."""
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
