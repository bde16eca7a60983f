"""All that is asked of a dataset. Light to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from l2d.data.arrays import Arrays
    from l2d.data.text.encoders import Encoder


class DatasetBase:
    """`load` and `fingerprint` are the dataset's own; the rest has defaults. encoder: the reader of its texts. files: a folder, a
    glob or a URL that only large/ reads, in parts."""

    encoder: Encoder | None = None
    files: str | None = None

    @property
    def gives(self) -> str | None:
        """The kind of a router's inputs, images or rows; None if it is known only after loading."""
        return None

    @property
    def error_price(self) -> float | None:
        """The price of a wrong answer in the run that wrote the data, a log; None if it is not known."""
        return None

    @property
    def divisible(self) -> bool:
        """True if the test rows are drawn, so that every row could be a test row once."""
        return False

    def fingerprint(self, data_dir: Path) -> str:
        """The version of the data; empty if there is only one, or none yet. Nothing is loaded."""
        raise NotImplementedError

    def load(self, data_dir: Path) -> Arrays:
        raise NotImplementedError

    def is_here(self, data_dir: Path) -> bool:  # noqa: ARG002
        """True if nothing has to be fetched."""
        return True

    def expert_names(self, data_dir: Path) -> Sequence[str]:  # noqa: ARG002
        """The experts whose outcomes are in the data, in order. Nothing is loaded."""
        return ()


class _WithDefaults:
    def __init__(self, own: Any) -> None:
        self._own, self._defaults = own, DatasetBase()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own if hasattr(self._own, name) else self._defaults, name)


def as_dataset(made: Any) -> DatasetBase:
    """A dataset of the user's own may be any object with `load` and `fingerprint`: it gets the defaults of what it lacks."""
    return cast("DatasetBase", made if isinstance(made, DatasetBase) else _WithDefaults(made))
