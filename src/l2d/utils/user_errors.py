"""How a command ends that could not do what was asked, or whose reader has gone. Light: some commands do without torch."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from l2d.utils import interrupts
from l2d.utils.errors import L2DError, ParameterError, unknown

MISTAKES = (L2DError, HydraException, OmegaConfBaseException, OSError)


def is_mistake(error: BaseException) -> bool:
    """Whether one line says all that the user needs: of an OSError, only where it says which file."""
    if isinstance(error, L2DError | HydraException | OmegaConfBaseException):
        return True
    return isinstance(error, OSError) and error.filename is not None


@contextmanager
def answering(interrupted: str = "interrupted; nothing was written") -> Iterator[None]:
    """Around a command without Hydra. A mistake of the user's ends in one line and status 1; a reader that has gone, as head goes
    when it has seen enough, in no line at all."""
    try:
        try:
            yield
        finally:  # also after argparse's --help, which ends by SystemExit
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MISTAKES as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1" or not is_mistake(error):
            raise
        sys.exit(f"error: {one_line(error)}")
    except KeyboardInterrupt:
        interrupts.say_at_the_end(interrupted)
        raise


class OneLineParser(argparse.ArgumentParser):
    """argparse for commands within `answering`: a wrong flag is one line and status 1. The help keeps its line breaks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"allow_abbrev": False, "formatter_class": argparse.RawDescriptionHelpFormatter, **options},
        )

    def error(self, message: str) -> NoReturn:
        raise L2DError(f"{message}; see {self.prog} --help")


@contextmanager
def given_as_flags() -> Iterator[None]:
    """A parameter that is refused within was given as a flag, so the user knows it as one: prices is --prices."""
    try:
        yield
    except ParameterError as error:
        flag = f"--{error.parameter.replace('_', '-')}"
        raise ParameterError(flag, error.problem, error.value) from error.__cause__


def one_line(error: BaseException) -> str:
    """What the user reads. Of Hydra's and OmegaConf's errors, the key or choice at fault and the one that may have been meant."""
    cause = error.__cause__ or error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return unknown_choice(error.missing_cfg_file, list(error.options or ()))
    if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
        return f"{cause.full_key}: {unknown('key', str(cause.key), keys_beside(cause))}"
    if isinstance(error, OverrideParseException):
        return f"{error.override}: must be KEY=VALUE; put a value with special characters into quotes twice, KEY=\"'VALUE'\""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, L2DError):
        return " ".join(lines)  # a value may have several
    first = lines[0]
    reason = str(cause).splitlines()[0] if isinstance(error, HydraException) and str(cause) else ""
    return f"{first}: {reason}" if reason and reason not in first else first


def unknown_choice(file: str, options: list[str]) -> str:
    """file: such as method/mildd, which conf/ does not have."""
    group, _, choice = file.rpartition("/")
    return f"{group}={choice}: {unknown('choice', choice, options)}" if options else f"{file}: no such config"


def keys_beside(error: ConfigAttributeError | ConfigKeyError) -> list[str]:
    """The keys that there are where one was not found."""
    parent = error.parent_node
    found = OmegaConf.to_container(parent, resolve=False) if isinstance(parent, DictConfig) else {}
    return [str(key) for key in found or ()]
