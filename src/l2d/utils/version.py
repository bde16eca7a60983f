"""The version of l2d."""

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    try:
        return version("l2d")
    except PackageNotFoundError:  # run from the source, not installed
        return "unknown"
