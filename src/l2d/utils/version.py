"""The version of l2d."""


def own_version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and rarely asked for

    try:
        return version("l2d")
    except PackageNotFoundError:  # run from the source, not installed
        return "unknown"
