"""All that is asked of a dataset. Light to import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from l2d.data.arrays import Arrays
    from l2d.data.text.encoders import Encoder


class DatasetBase:
    """`load` and `fingerprint` are its own. encoder: reads its texts. files: a folder, glob or URL for large/ alone."""

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
