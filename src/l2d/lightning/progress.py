"""Whether a progress bar is of use."""

import sys


def is_watched() -> bool:
    """True if somebody can watch a bar, which Lightning writes to stdout: on a terminal or in a notebook."""
    return sys.stdout.isatty() or "ipykernel" in sys.modules
