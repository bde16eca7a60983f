"""Runs and experts are known by names and parameters: a class may be moved and renamed, and nothing has to be made again."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig
from tests.running import assembled, build, folder_of

import l2d.data.sets.digits
import l2d.experts.synthetic
import l2d.methods.cross_entropy
import l2d.networks.vision

Tiny = Callable[..., DictConfig]


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with copies of l2d's classes, each under another name."""
    package = tmp_path / "attic"
    package.mkdir()
    (package / "__init__.py").touch()
    for module, name in (
        (l2d.methods.cross_entropy, "CrossEntropy"),
        (l2d.data.sets.digits, "Digits"),
        (l2d.experts.synthetic, "SyntheticExperts"),
        (l2d.networks.vision, "ResNet18"),
    ):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        assert f"class {name}" in source
        copy = package / f"{module.__name__.rpartition('.')[2]}.py"
        copy.write_text(source.replace(f"class {name}", f"class Old{name}"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    return package


MOVED = [
    "method._target_=attic.cross_entropy.OldCrossEntropy",
    "dataset._target_=attic.digits.OldDigits",
    "experts._target_=attic.synthetic.OldSyntheticExperts",
]


@pytest.mark.slow
@pytest.mark.usefixtures("moved")
def test_moving_a_class_moves_no_folder(tiny: Tiny) -> None:
    here, there = tiny("method=ce"), tiny("method=ce", *MOVED)
    assert folder_of(there) == folder_of(here)
    assert assembled(there).cache.entry == assembled(here).cache.entry
    _, router = build(there)
    assert type(router.method).__module__ == "attic.cross_entropy"  # it is the copy that was built
