"""The same prices, however they are written, are one run."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig
from tests.conftest import environment
from tests.running import assembled, folder_of

from l2d.assembly.fingerprints import expert_names, fingerprints, with_listed_prices
from l2d.config import check, compose
from l2d.data.sheet import write_sheet
from l2d.experts.synthetic import SyntheticExperts
from l2d.utils.errors import L2DError

Tiny = Callable[..., DictConfig]


def table(folder: Path, *experts: str, ending: str = "csv") -> str:
    columns = {"x": [0.0, 1.0, 2.0, 3.0]} | {f"correct_{name}": [0, 1, 0, 1] for name in experts}
    write_sheet(folder / f"table.{ending}", columns)
    return f"dataset.path={folder / f'table.{ending}'}"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_list_and_a_mapping_are_one_run(ending: str, tiny: Tiny, tmp_path: Path) -> None:
    """In the experts' own order: not that of the mapping, nor the alphabet's."""
    given = ["dataset=table", table(tmp_path, "c", "a", "b", ending=ending), "cost=error_plus_cost"]
    listed = folder_of(tiny(*given, "cost.prices=[0.1,1,0.6]"))
    assert folder_of(tiny(*given, "cost.prices={a: 1, b: 0.6, c: 0.1}")) == listed
    assert folder_of(tiny(*given, "cost.prices={a: 0.6, b: 1, c: 0.1}")) != listed
    named = "dataset.experts=[b, correct_c, a]"
    experiment = with_listed_prices(check(tiny(*given, named, "cost.prices={a: 1, b: 0.6, c: 0.1}")))
    assert experiment.plain["cost"]["prices"] == experiment.cost.arguments["prices"] == [0.6, 0.1, 1]


@pytest.mark.parametrize("given", [["setup=I"], ["dataset=mmlu_sim", "dataset.questions=300"]])
def test_names_are_known_before_there_are_experts(given: list[str], tiny: Tiny) -> None:
    cfg = tiny(*given)
    assert expert_names(check(cfg)) == assembled(cfg).panel.names


def test_language_models_are_called_by_the_last_part_of_their_path(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    models = f"experts.models=[org/big@main, {tmp_path / 'small'}]"
    assert expert_names(check(compose(["dataset=mmlu", models]))) == ("big", "small")


class Named(SyntheticExperts):
    def __init__(self, *, called: list[str]) -> None:
        super().__init__()
        self.called = called

    @staticmethod
    def expert_names(coverage: list[float] | None, *, called: list[str]) -> list[str]:  # noqa: ARG004
        return called


class Versioned(SyntheticExperts):
    """Experts of somebody's own that may change under the same config."""

    version = "1"

    def identity(self) -> str:
        return self.version


def test_other_experts_are_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = compose([])
    cfg.experts = {"name": "own", "about": {"title": "Own"}, "_target_": f"{__name__}.Versioned"}
    experiment = check(cfg)
    first = fingerprints(experiment)
    monkeypatch.setattr(Versioned, "version", "2")
    second = fingerprints(experiment)
    assert (first.rows == second.rows, first.run == second.run) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("setup", ["I", "own"])
def test_the_class_of_the_experts_says_their_names(setup: str) -> None:
    def listed(prices: str) -> object:
        cfg = compose([f"setup={setup}", "cost=error_plus_cost", f"cost.prices={prices}"])
        known = {"name": "named", "called": ["b", "a"], "about": {"title": "Named"}}
        cfg.experts = {**known, "_target_": f"{__name__}.Named"}
        return with_listed_prices(check(cfg)).plain

    assert listed("{a: 1, b: 2}") == listed("[2,1]")


@pytest.mark.parametrize("prices", ["{a: 1, b: 2}", "{a: 1, b: 2, d: 3}", "{a: 1, b: 2, c: 3, d: 4}"])
def test_prices_of_other_experts_stay_for_the_cost_to_refuse(prices: str, tiny: Tiny, tmp_path: Path) -> None:
    given = ["dataset=table", table(tmp_path, "a", "b", "c"), "cost=error_plus_cost", f"cost.prices={prices}"]
    experiment = check(tiny(*given))
    assert with_listed_prices(experiment) == experiment
    with pytest.raises(L2DError, match=r"^cost\.prices(=d: |: .*\bc\b)"):
        assembled(tiny(*given))


@pytest.mark.slow
def test_where_the_names_are_not_known_the_mapping_stays(tmp_path: Path) -> None:
    (tmp_path / "noise.parquet").write_bytes(np.random.default_rng(0).bytes(99))
    tables = [["dataset=table", f"dataset.path={tmp_path / name}"] for name in ("gone.csv", "noise.parquet")]
    for given in (*tables, ["setup=own"]):
        experiment = check(compose([*given, "cost=error_plus_cost", "cost.prices={a: 1, b: 2}"]))
        assert with_listed_prices(experiment) == experiment
    for prices in ("coverage", "[1,2,3,4,5]"):
        experiment = check(compose(["cost=error_plus_cost", f"cost.prices={prices}"]))
        assert with_listed_prices(experiment) is experiment


@pytest.mark.slow
def test_it_needs_no_torch(tmp_path: Path) -> None:
    tables = ["dataset=table", table(tmp_path, "a", "b"), "cost.prices={a: 1, b: 2}"]
    prices = "cost.prices={machine: 1, person 1: 2}"
    humans = ["dataset=cifar10", "experts=human", "experts@experts.machine=trained", "setup.coverage=[1]", prices]
    program = (
        "import sys; from l2d.config import check, compose; from l2d.assembly.fingerprints import with_listed_prices\n"
        f"for given in {tables!r}, {humans!r}:\n"
        "    experiment = check(compose(['cost=error_plus_cost', *given]))\n"
        "    print(with_listed_prices(experiment).plain['cost']['prices'], 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[1, 2] False"] * 2
