"""Ends a command after a user's mistake, a Ctrl-C or a closed pipe. Light: some commands run without torch."""

import argparse
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from l2d.utils.errors import L2DError, ParameterError, unknown

TERMINATED = 128 + signal.SIGTERM  # the status that a shell reports for a process ended by SIGTERM
MISTAKES = (L2DError, HydraException, OmegaConfBaseException, OSError)


def is_mistake(error: BaseException) -> bool:
    """True if one line is enough for the user. An OSError must name a file for that."""
    own = isinstance(error, L2DError | HydraException | OmegaConfBaseException)
    return own or (isinstance(error, OSError) and error.filename is not None)


@contextmanager
def answering(interrupted: str = "interrupted; nothing was written") -> Iterator[None]:
    """Wraps a command. A user's mistake is one line and status 1, a closed pipe (`| head`) status 1; a bug keeps its traceback."""
    try:
        try:
            yield
        finally:  # also after argparse's --help, which raises SystemExit
            sys.stdout.flush()
    except BrokenPipeError:
        if not is_unread():
            raise
        end_quietly()
    except MISTAKES as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1" or not is_mistake(error):
            raise
        sys.exit(f"error: {one_line(error)}")
    except KeyboardInterrupt:
        say_at_the_end(interrupted)
        raise


def say_at_the_end(line: str) -> None:
    """Print a line instead of a KeyboardInterrupt's traceback. It must propagate: a loop around the command then stops too."""
    before = sys.excepthook

    def say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print(line, file=sys.stderr)
        else:
            before(kind, error, trace)

    sys.excepthook = say


def is_unread() -> bool:
    """True if nobody reads what is printed. A BrokenPipeError alone is no proof: a worker or a socket may have raised it."""
    output = select.poll()
    output.register(sys.stdout.fileno(), select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def end_quietly() -> NoReturn:
    # Python flushes stdout again at exit, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


class OneLineParser(argparse.ArgumentParser):
    """argparse for commands inside `answering`: a wrong flag is one line and status 1. The help keeps its line breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        several = "; one folder at a time" if any(Path(word).is_dir() for word in message.split()) else ""
        raise L2DError(f"{message}{several}; see {self.prog} --help")


@contextmanager
def given_as_flags(**flags: str) -> Iterator[None]:
    """In errors, name a parameter by the flag that the user gave: prices becomes --prices. flags: with other names."""
    try:
        yield
    except ParameterError as error:
        flag = flags.get(error.parameter, error.parameter).replace("_", "-")
        raise ParameterError(f"--{flag}", error.problem, error.value) from error.__cause__


def one_line(error: BaseException) -> str:
    """The message for the user. For errors of Hydra and OmegaConf: the wrong key or choice, and the closest known one."""
    cause = error.__cause__ or error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, choice = error.missing_cfg_file.rpartition("/")  # such as method/mildd
        options, file = list(error.options or ()), error.missing_cfg_file
        return f"{group}={choice}: {unknown('choice', choice, options)}" if options else f"{file}: no such config"
    for one in (error, cause):  # in a debugger OmegaConf's own errors have causes too
        if isinstance(one, ConfigAttributeError | ConfigKeyError) and one.full_key:
            parent = one.parent_node
            beside = OmegaConf.to_container(parent, resolve=False) if isinstance(parent, DictConfig) else None
            return f"{one.full_key}: {unknown('key', str(one.key), map(str, beside or ()))}"
    if isinstance(error, OverrideParseException):
        key, equals, _ = error.override.partition("=")
        quoted = f"""'{key}="VALUE"', in a list '{key}=["A","B"]'; in a mapping, put a backslash before ( ) and ="""
        return f"{error.override}: {f'Hydra cannot read this value; write {quoted}' if equals else 'must be KEY=VALUE'}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, L2DError):
        return " ".join(lines)  # a value may span several lines
    first = lines[0]
    reason = str(cause).splitlines()[0] if isinstance(error, HydraException) and str(cause) else ""
    return f"{first}: {reason}" if reason and reason not in first else first
