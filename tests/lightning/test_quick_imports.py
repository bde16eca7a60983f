"""When the garbage collector looks at what there is."""

import gc
from collections.abc import Iterator

import pytest

from l2d.lightning.quick_imports import freeze_what_lives


@pytest.fixture(autouse=True)
def _collector_as_before() -> Iterator[None]:
    yield
    gc.enable()
    gc.unfreeze()


def test_what_imports_made_is_frozen_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 starts with frozen objects of its own, so their number does not tell whether this is the first time."""
    looks: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: looks.append(1))
    gc.freeze()
    gc.disable()  # as import_quickly does
    freeze_what_lives()
    assert (len(looks), gc.isenabled()) == (0, True)
    freeze_what_lives()  # before the next run of a sweep
    assert len(looks) == 1
