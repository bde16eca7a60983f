"""Errors that the user can fix. Each message is one line: what is wrong, and what to do."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

NO_VALUE = object()
UNLISTED = ("_target_", "_partial_", "about", "name")  # in nearly every group; hardly anybody looks for them


class L2DError(Exception):
    """Its message is a single line. A command prints it without a traceback."""


class Busy(L2DError):
    """Another process is working on the same run."""


class ParameterError(L2DError):
    """A parameter has an invalid value. Low-level code names its own parameter: ParameterError("tau", "must not be negative", -1).
    The config layer adds the object's key: "method.tau=-1: must not be negative"."""

    def __init__(self, parameter: str, problem: str, value: object = NO_VALUE) -> None:
        self.parameter, self.problem, self.value = parameter, problem, value
        named = parameter if value is NO_VALUE else f"{parameter}={value}"
        super().__init__(f"{named}: {problem}" if named else problem)

    def __reduce__(self) -> tuple[type["ParameterError"], tuple[object, ...]]:
        """For pickle: launchers send errors from one process to another."""
        return type(self), (self.parameter, self.problem, *(() if self.value is NO_VALUE else (self.value,)))

    def under(self, key: str) -> "ParameterError":
        """The same error, for `key.parameter`. An empty parameter means the whole object."""
        return type(self)(".".join(part for part in (key, self.parameter) if part), self.problem, self.value)


@contextmanager
def under(key: str) -> Iterator[None]:
    """Errors inside belong to the object configured under this key: a ParameterError gets the key as prefix, a bug gets a note."""
    try:
        yield
    except ParameterError as error:
        raise error.under(key) from error.__cause__
    except L2DError:
        raise
    except Exception as error:
        error.add_note(f"in {key}")
        raise


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown key, choice or command: it suggests the closest known name, or lists all."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    listed = ", ".join(one for one in names if one not in UNLISTED)
    hint = f"; did you mean {close[0]}?" if close else f"; there are {listed}" if listed else ""
    return f"unknown {what}{hint}"


@contextmanager
def from_extra(name: str, what: str) -> Iterator[None]:
    """Name the extra to install in the error of an import inside. what: the feature that needs it."""
    try:
        yield
    except ImportError as error:
        raise L2DError(f"{what} needs more packages: pip install 'l2d[{name}]'") from error
