"""The end of a command after a Ctrl-C or SIGTERM."""

import signal
import sys
from types import TracebackType

TERMINATED = 128 + signal.SIGTERM  # the status that a shell reports for a process ended by SIGTERM


def say_at_the_end(line: str) -> None:
    """Print a line instead of a KeyboardInterrupt's traceback. It must propagate: a loop around the command then stops too."""
    before = sys.excepthook

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(line, file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = say
