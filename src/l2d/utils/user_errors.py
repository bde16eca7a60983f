"""How a command ends that could not do what was asked, or whose reader has gone. Light: some commands do without torch."""

import difflib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from l2d.utils import interrupts
from l2d.utils.errors import L2DError

MISTAKES = (L2DError, HydraException, OmegaConfBaseException, OSError)


@contextmanager
def answering(interrupted: str = "interrupted; nothing was written") -> Iterator[None]:
    """Around a command without Hydra. A mistake of the user's ends in one line and status 1; a reader that has gone, as head goes
    when it has seen enough, in no line at all."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except MISTAKES as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        sys.exit(f"error: {one_line(error)}")
    except KeyboardInterrupt:
        interrupts.say_at_the_end(interrupted)
        raise


def one_line(error: BaseException) -> str:
    """The message on one line. Hydra puts the key into one exception and the reason into its cause: both are wanted."""
    text = re.sub(r"To append to your config use \S+|Config search path:.*", "", " ".join(str(error).split()))
    text = text.replace("hydra.sweeper.tune.", "tune.")  # as l2d.tuning.study calls them
    parts = [text.strip()]
    cause = error.__cause__
    if isinstance(error, HydraException) and cause is not None:
        reason = str(cause).splitlines()[0] if str(cause) else type(cause).__name__
        if reason not in parts[0]:
            parts.append(reason)
    return ": ".join(parts) + meant(error if cause is None else cause)


def meant(error: BaseException) -> str:
    """Of a key that there is not: the one that looks like it, or all that there are."""
    if not isinstance(error, ConfigAttributeError | ConfigKeyError) or not isinstance(error.parent_node, DictConfig):
        return ""
    names = [] if error.parent_node._is_none() else sorted(str(name) for name in error.parent_node)
    if not names or str(error.key) in names:  # Hydra makes an empty mapping of what is none
        return ""
    close = difflib.get_close_matches(str(error.key), names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(names)}"
