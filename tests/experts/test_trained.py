"""Classifiers as experts: how they are configured, and that they are made once."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig
from tests.experts.tiny_experts import BATCH, TINY, experts, request
from tests.running import assembled
from torch import Tensor

from l2d.assembly.build import expert_cache
from l2d.config import check, compose
from l2d.data.sets.digits import Digits
from l2d.experts.request import ExpertRequest
from l2d.utils.errors import L2DError, ParameterError


@pytest.mark.slow
@pytest.mark.parametrize("cross_fit", [1, 2])
def test_it_is_said_whether_they_learned_the_rows_they_answer(
    cross_fit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a method takes from their answers then comes from other rows."""

    def made(request: ExpertRequest, *_: Tensor, **__: object) -> dict[str, np.ndarray]:
        sizes = {"train": len(request.arrays.train_labels), "test": len(request.arrays.test_labels)}
        return {name: np.zeros((size, 2), dtype=np.uint8) for name, size in sizes.items()}

    monkeypatch.setattr("l2d.experts.classifier.fit_experts", made)
    given = [*TINY, BATCH, f"experts.cross_fit={cross_fit}", f"runs_dir={tmp_path}", "trainer.accelerator=cpu"]
    whole, with_evidence = (assembled(compose([*given, f"method={method}"])) for method in ("mild", "plugin"))
    assert whole.panel.learned == (cross_fit == 1)
    labels = whole.train.labels
    if cross_fit == 1:
        half = whole.validation.labels.argsort(stable=True)[::2]
        labels = whole.validation.labels[half.sort().values]
    evidence: Any = with_evidence.evidence
    assert torch.equal(evidence.errors, (labels != 0).double()[:, None].expand(-1, 2))
    assert torch.equal(evidence.labels, labels)


@pytest.mark.slow
def test_as_many_folds_as_rows_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = Digits().load(Path())
    labels = {"train": arrays.train_labels, "test": arrays.test_labels}
    nothing = {name: np.zeros((len(rows), 2)) for name, rows in labels.items()}
    monkeypatch.setattr("l2d.experts.classifier.fit_experts", lambda *_, **__: nothing)
    ask = dataclasses.replace(request(tmp_path, arrays), train=torch.arange(3))
    experts("experts.cross_fit=3").panel(ask)
    with pytest.raises(ParameterError, match=r"^cross_fit=4: .*3"):
        experts("experts.cross_fit=4").panel(ask)


@pytest.mark.full
def test_seeded_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = Digits().load(Path())
    one = experts().panel(request(tmp_path / "one", arrays))
    again = experts().panel(request(tmp_path / "two", arrays))
    assert torch.equal(one.train.errors, again.train.errors)
    assert not torch.equal(one.train.errors, experts().panel(request(tmp_path / "one", arrays, seed=1)).train.errors)
    monkeypatch.setattr("l2d.experts.classifier.fit_experts", lambda *_, **__: pytest.fail("made although it is there"))
    read = experts().panel(request(tmp_path / "one", arrays))
    assert torch.equal(one.train.errors, read.train.errors)
    assert torch.equal(one.test.errors, read.test.errors)


@pytest.mark.full
def test_they_learn_their_own_classes(tmp_path: Path) -> None:
    """Six classes to one, four to the other: on the test split each is right on its own, hardly ever on the other's."""
    able = experts("experts.network.width=4", "experts.recipe.epochs=5", "experts.recipe.batch_size=32")
    arrays = Digits().load(Path())
    panel: Any = able.panel(request(tmp_path, arrays, coverage=(0.6, 0.4)))
    for k in (0, 1):
        own = panel.knows[k][arrays.test_labels]
        right = 1 - panel.test.errors[:, k]
        assert float(right[own].mean()) > 0.6
        assert float(right[~own].mean()) < 0.3


def tiny_data(tiny: Callable[..., DictConfig], *overrides: str) -> Any:
    return assembled(tiny(*TINY, BATCH, *overrides))


@pytest.mark.slow
def test_a_routers_seeds_share_their_experts(tiny: Callable[..., DictConfig], tmp_path: Path) -> None:
    one, other = (tiny_data(tiny, f"seed={seed}") for seed in (0, 1))
    assert torch.equal(one.validation.rows, other.validation.rows)
    assert torch.equal(one.train.costs, other.train.costs)
    assert len(list((tmp_path / "runs" / "experts").glob("*/entry.json"))) == 1
    moved = tiny_data(tiny, "experts.seed=1")
    assert not torch.equal(one.validation.rows, moved.validation.rows)
    assert len(list((tmp_path / "runs" / "experts").glob("*/entry.json"))) == 2


@pytest.mark.slow
def test_what_makes_another_entry(tiny: Callable[..., DictConfig]) -> None:
    """Everything the predictions follow from, and nothing else."""

    def name(*overrides: str) -> str:
        experiment = check(tiny(*TINY, BATCH, *overrides))
        return expert_cache(experiment, renew=False).knowing(coverage=experiment.setup.coverage).entry.name

    base = name()
    different = ["setup=I", "experts.seed=1", "experts.fraction=0.02", "experts.cross_fit=2", "experts.network.width=4",
                 "experts.recipe.epochs=3", "experts.recipe.optimizer.lr=0.1"]  # fmt: skip
    assert len({base, *map(name, different)}) == 1 + len(different)
    same = ["seed=1", "method=tdef", "router.width=4", "recipe.epochs=9", "cost=error_plus_cost", "progress=true"]
    assert {name(override) for override in same} == {base}


@pytest.mark.parametrize("bad", ["fraction=1.5", "cross_fit=0", "network=3", "recipe.epochs=0", "foo"])
def test_bad_values_are_refused_before_anything_is_built(bad: str) -> None:
    """A key without a value is one that there is not."""
    with pytest.raises(ParameterError) as caught:
        check(compose([*TINY, f"experts.{bad}" if "=" in bad else f"+experts.{bad}=1"]))
    assert str(caught.value).startswith(f"experts.{bad}: ")


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("experts.recipe.patience=2", r"^experts\.recipe\.patience=2: "),
        ("+experts.recipe.optimizer.eps=-1", r"^experts\.recipe\.optimizer=.*-1"),
        ("experts.recipe.batch_size=1", r"^experts\.recipe\.batch_size=1: "),
    ],
)
def test_what_shows_later_is_one_line_too(
    tiny: Callable[..., DictConfig], override: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(L2DError, match=words):
        tiny_data(tiny, override)
    assert not list(tmp_path.glob("runs/experts/*/entry.json"))
