"""All that is asked of a dataset. Light: does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from l2d.data.arrays import Arrays
    from l2d.data.text.encoders import Encoder


class Dataset(Protocol):
    """`load` and `fingerprint` are the dataset's own; DatasetBase has defaults for the rest."""

    @property
    def gives(self) -> str | None:
        """The kind of a router's inputs, images or rows; None if it is known only after loading."""

    @property
    def divisible(self) -> bool:
        """True if the test rows are drawn, so that every row could be a test row once."""

    @property
    def encoder(self) -> Encoder | None:
        """The reader of its texts."""

    def fingerprint(self, data_dir: Path) -> str:
        """The version of the data; empty if there is only one, or none yet. Nothing is loaded."""

    def load(self, data_dir: Path) -> Arrays: ...

    def is_here(self, data_dir: Path) -> bool:
        """True if nothing has to be fetched."""

    def expert_names(self, data_dir: Path) -> Sequence[str]:
        """The experts whose outcomes are in the data, in order. Nothing is loaded."""

    def check_file(self, data_dir: Path) -> None:
        """Raise if a file cannot be read."""


class DatasetBase:
    """The defaults of a dataset's optional members."""

    @property
    def gives(self) -> str | None:
        return None

    @property
    def divisible(self) -> bool:
        return False

    encoder: Encoder | None = None

    def is_here(self, data_dir: Path) -> bool:  # noqa: ARG002
        return True

    def expert_names(self, data_dir: Path) -> Sequence[str]:  # noqa: ARG002
        return ()

    def check_file(self, data_dir: Path) -> None:
        pass


class _WithDefaults:
    def __init__(self, own: Any) -> None:
        self._own, self._defaults = own, DatasetBase()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own if hasattr(self._own, name) else self._defaults, name)


def as_dataset(made: Any) -> Dataset:
    """A dataset of the user's own may be any object with `load` and `fingerprint`: it gets the defaults of what it lacks."""
    return cast("Dataset", made if isinstance(made, DatasetBase) else _WithDefaults(made))
