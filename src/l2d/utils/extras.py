"""Packages that only an extra of l2d installs."""

from collections.abc import Iterator
from contextlib import contextmanager

from l2d.utils.errors import L2DError


@contextmanager
def from_extra(name: str, what: str) -> Iterator[None]:
    """Name the extra to install in the error of an import inside. what: the feature that needs it."""
    try:
        yield
    except ImportError as error:
        raise L2DError(f"{what} needs more packages: pip install 'l2d[{name}]'") from error
