"""Runs and experts are known by names and parameters: a class may be moved and renamed, and nothing has to be made again."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig
from tests.running import assembled, build, folder_of

import l2d.data.sets.digits
import l2d.experts.synthetic
import l2d.methods.cross_entropy
import l2d.networks.vision
from l2d.assembly.build import expert_cache
from l2d.config import check

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


@pytest.mark.usefixtures("moved")
def test_moving_a_class_moves_no_folder(tiny: Tiny) -> None:
    here, there = tiny("method=ce"), tiny("method=ce", *MOVED)
    assert folder_of(there) == folder_of(here)
    assert assembled(there).cache.entry == assembled(here).cache.entry
    _, router = build(there)
    assert type(router.method).__module__ == "attic.cross_entropy"  # it is the copy that was built


def nested(tiny: Tiny, *overrides: str) -> Any:
    """Experts that are trained have a network, an optimizer and the dataset in their identity."""
    return expert_cache(check(tiny("experts=trained", *overrides)), renew=False).entry


@pytest.mark.slow
@pytest.mark.usefixtures("moved")
def test_the_same_of_classes_within_the_experts(tiny: Tiny) -> None:
    here = nested(tiny)
    assert nested(tiny, "experts.network._target_=attic.vision.OldResNet18", *MOVED[1:2]) == here
    for other in ("experts.network.width=8", "experts.network.name=other", "experts.fraction=0.02", "experts.seed=1"):
        assert nested(tiny, other) != here
    assert nested(tiny, "experts.recipe.optimizer._target_=torch.optim.Adamax") != here


@pytest.mark.usefixtures("moved")
@pytest.mark.parametrize("other", ["method.name=other", "method.weighted=true", "method.beta=0.5", "experts.seed=1"])
def test_another_name_or_parameter_is_another_run(other: str, tiny: Tiny) -> None:
    assert folder_of(tiny("method=ce", *MOVED, other)) != folder_of(tiny("method=ce"))


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.usefixtures("moved")
@pytest.mark.parametrize("other", ["dataset.name=other", "experts.name=other", "experts.seed=1", "setup=I", "seed=1"])
def test_another_name_or_parameter_is_other_experts(other: str, tiny: Tiny) -> None:
    assert assembled(tiny(*MOVED[1:], other)).cache.entry != assembled(tiny()).cache.entry
