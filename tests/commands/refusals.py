"""The error line of a command."""

from collections.abc import Callable

import pytest


def refused(main: Callable[[list[str]], None], *arguments: object) -> str:
    """The one line with which the command ends."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    said = str(caught.value.code)
    assert said.startswith("error: ")
    assert "\n" not in said
    return said
