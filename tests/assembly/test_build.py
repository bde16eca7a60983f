"""Refusals: when, and under which name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from tests import running

from l2d.assembly import build
from l2d.assembly.assemble import Splits
from l2d.assembly.build import check_parts, make_method
from l2d.assembly.make import blaming
from l2d.config import check, compose
from l2d.data.arrays import Arrays
from l2d.data.sets.digits import Digits
from l2d.data.sets.table import Table
from l2d.experts.cache import Cache
from l2d.experts.request import ComputeOptions
from l2d.methods.method import Evidence
from l2d.utils.errors import L2DError

COSTS = 1 - torch.eye(2, dtype=torch.float64)


def test_parts_that_do_not_fit_are_refused_without_data() -> None:
    for given, said in (
        ("router=mlp", r"^router=mlp: .*router=resnet18"),
        ("dataset=table router=resnet18", r"^router=resnet18: .*rows"),
        ("dataset=table dataset.image=file", "not images"),
    ):
        with pytest.raises(L2DError, match=said):
            check_parts(check(compose(given.split())))
    with pytest.raises(L2DError, match=r"^method=plugin: .*decision=posterior"):
        check_parts(check(compose(["method=plugin", "decision=posterior"])))
    for fine in ("dataset=table dataset.image=file router=resnet18", "dataset=table dataset.text=prompt"):
        check_parts(check(compose(fine.split())))


def test_what_reaches_the_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ComputeOptions] = []
    monkeypatch.setattr(build, "assemble", lambda request, *_, **__: asked.append(request.compute))
    machine = ["trainer.accelerator=gpu", "trainer.deterministic=true", "trainer.data_on_device=false", "progress=true"]
    nothing: Any = None
    build.assemble_rows(check(compose(machine)), nothing, "", Cache(Path()))
    assert asked == [ComputeOptions("gpu", deterministic=True, data_on_device="false", progress=True)]
    renewed: list[bool] = []
    monkeypatch.setattr(build, "assemble", lambda request, *_, **__: renewed.append(request.cache.renew))
    for renew in (False, True):
        build.make_splits(check(compose([])), renew_experts=renew)
    assert renewed == [False, True]


@pytest.mark.slow
def test_a_router_follows_seed_recipe_and_sampling(tiny: Callable[..., DictConfig]) -> None:
    """Undersampled, every expert is the cheapest equally often: the class weights are equal."""
    given = ("method=cwce", "sampling=under", "recipe.patience=2", "checkpoint=best")
    (_, one), (_, other) = (running.build(tiny(*given, "experts.seed=0", f"seed={seed}")) for seed in (0, 1))
    assert one.method.state_dict()["weights"].unique().numel() == 1
    pairs = zip(one.network.parameters(), other.network.parameters(), strict=True)
    assert not all(torch.equal(*pair) for pair in pairs)


def test_noise_does_not_change_the_scale_of_tdefs_rewards(tiny: Callable[..., DictConfig]) -> None:
    """Its scale is the largest cost: 1 + .4, the price of the strongest expert in setup III."""
    _, router = running.build(tiny("method=tdef", "cost=error_plus_cost", "cost.noise=0.2"))
    assert float(router.method.state_dict()["reward_scale"]) == pytest.approx(1.4)


def test_a_method_and_a_parameter_are_called_by_their_keys() -> None:
    experiment = check(compose(["method=plugin"]))
    unlabelled = Evidence(COSTS, torch.zeros(2), torch.tensor([-1, -1]))
    with pytest.raises(L2DError, match=r"^method=plugin: needs labels"), blaming(experiment.method):
        make_method(experiment, COSTS, num_classes=2).learn(unlabelled)
    with pytest.raises(L2DError, match=r"^dataset\.path: missing$"), blaming(experiment.method):
        raise L2DError("dataset.path: missing")
    with pytest.raises(L2DError, match=r"^method\.rho\.offset=0"):
        make_method(check(compose(["method.rho.total=0", "method.rho.offset=0"])), COSTS, num_classes=2)


def loads_of(dataset: type[Any], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    read: list[Path] = []
    load = dataset.load

    def counted(one: Any, data_dir: Path) -> Arrays:
        read.append(data_dir)
        rows: Arrays = load(one, data_dir)
        return rows

    monkeypatch.setattr(dataset, "load", counted)
    return read


@pytest.mark.slow
def test_runs_of_a_sweep_share_the_rows_while_the_file_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "t.csv"
    lines = [f"{i},{i % 2},{(i + 1) % 2}" for i in range(40)]
    file.write_text("\n".join(["size,correct_a,correct_b", *lines]))
    read = loads_of(Table, monkeypatch)

    def splits(*more: str) -> Splits:
        return build.make_splits(check(compose(["dataset=table", f"dataset.path={file}", *more])))

    first, second = splits(), splits("method=plugin", "seed=1")
    assert len(read) == 1
    assert torch.equal(first.test.costs, second.test.costs)
    splits("dataset.test_fraction=0.5")
    assert len(read) == 2
    file.write_text(file.read_text().replace("39,1,0", "39,1,1"))
    splits("dataset.test_fraction=0.5")
    assert len(read) == 3


def test_rows_without_a_fingerprint_are_read_for_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    read = loads_of(Digits, monkeypatch)
    for seed in (0, 1):
        build.load_rows(check(compose([f"seed={seed}"])))
    assert len(read) == 2


def test_the_experts_folder_says_what_they_are_experts_for() -> None:
    cache = build.expert_cache(check(compose(["dataset=svhn", "setup=I", "runs_dir=there"])), renew=False)
    assert (cache.folder, cache.title) == (Path("there/experts"), "svhn-I-synthetic")
