"""The cells of a sweep: one per run folder, composed no more often than needed, and the tables that say how they stand."""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tests.metrics_example import example_metrics
from tests.runs.some_cells import finish, some_cells

from l2d.assembly.make import make
from l2d.config import check, compose, sweep_axes, to_plain
from l2d.config.hydra_adapter import split_grid
from l2d.config.identity import variant
from l2d.core.prices import Prices
from l2d.runs.cells import compose_all, listing, make_cells, named, results_table, split_method, without_seed
from l2d.runs.folder import RunFolder
from l2d.utils.files import write_json

Frame = tuple[str, ...]


def compose_in(folder: Path) -> Callable[[list[str]], DictConfig]:
    return lambda overrides: compose([*overrides, f"runs_dir={folder}"])


@cache
def composed(overrides: Frame) -> DictConfig:
    config = compose(overrides)
    assert isinstance(config, DictConfig)
    return config


class Counting:
    """Composes, and counts how often. change: what else becomes of a config."""

    def __init__(self, change: Callable[[list[str], DictConfig], None] = lambda *_: None) -> None:
        self.change, self.asked = change, list[Frame]()

    def __call__(self, overrides: list[str]) -> DictConfig:
        self.asked.append(tuple(overrides))
        config = deepcopy(composed(tuple(overrides)))
        self.change(overrides, config)
        return config


def directly(frames: list[Frame], counting: Counting) -> dict[Frame, dict[str, Any]]:
    return {frame: to_plain(counting(list(frame))) for frame in frames}


def frames_of(*given: str) -> list[Frame]:
    """The combinations of an experiment, as `l2d train -m` has them, without seeds."""
    axes = [f"{key}={value}" for key, value in sweep_axes(given).items() if key != "seed"]
    return [tuple(overrides) for overrides in split_grid([*axes, *given])]


@pytest.mark.slow
def test_a_table_is_composed_once_per_method_and_once_per_combination_of_the_rest() -> None:
    frames, counting = (
        frames_of("experiment=table1_error", "dataset=svhn", "setup=I,III", "method=tdef,mild,ce"),
        Counting(),
    )
    assert len(frames) == 6
    found = compose_all(frames, counting)
    assert len(counting.asked) == 2 + 2
    assert list(found) == frames
    assert found == directly(frames, Counting())
    assert len({variant(check(config).plain) for config in found.values()}) == 6


METHODS = ("ce", "focal", "ldam")
SMALL = [(f"setup={setup}", f"method={method}") for setup in ("I", "III", "severe") for method in METHODS]


def changes() -> dict[str, Callable[[list[str], DictConfig], None]]:
    """Files of somebody's own, whose keys concern more than their group."""

    def interpolates(overrides: list[str], config: DictConfig) -> None:
        if "method=focal" in overrides:
            config.method.gamma = "${setup.coverage[0]}"

    def is_interpolated(overrides: list[str], config: DictConfig) -> None:
        if "setup=III" in overrides:
            OmegaConf.update(config, "cost.noise_kind", "${oc.select:method.name,multiplicative}")

    def sets_the_method(overrides: list[str], config: DictConfig) -> None:
        if "setup=III" in overrides:
            OmegaConf.update(config, "method.weighted", True, force_add=True)

    def sets_another_group(overrides: list[str], config: DictConfig) -> None:
        if "method=focal" in overrides:
            config.recipe.epochs = 3 if "setup=I" in overrides else 4

    return {one.__name__: one for one in (interpolates, is_interpolated, sets_the_method, sets_another_group)}


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("which", changes())
def test_what_does_not_concern_the_method_alone_is_composed_for_each(which: str) -> None:
    counting = Counting(changes()[which])
    found = compose_all(SMALL, counting)
    assert found == directly([*SMALL], Counting(changes()[which]))
    assert 5 < len(counting.asked) < len(SMALL)  # the others are shared all the same
    assert len({*counting.asked}) == len(counting.asked)


def test_combinations_that_are_no_grid() -> None:
    frames: list[Frame] = [
        ("setup=I", "method=ce"),
        ("setup=III", "method=focal"),
        ("method=focal", "setup=I"),
        ("setup=I", "method=focal"),
        ("method=ce", "method.weighted=true"),
        (),
    ]
    assert compose_all(frames, Counting()) == directly(frames, Counting())
    assert compose_all([], Counting()) == {}


def test_overrides_of_the_method_and_of_the_seed() -> None:
    given = ["a=1", "method=ce", "methods=3", "method.x=1", "+method.y=2", "~method.z", "++method.w=1", "b.method=2"]
    rest, method = split_method(given)
    assert rest == ("a=1", "methods=3", "b.method=2")
    assert method == ("method=ce", "method.x=1", "+method.y=2", "~method.z", "++method.w=1")
    given = ["seed=0", "seed=12", "seed=01", "seed=1234567890", "seed=1.5", "experts.seed=1"]
    assert without_seed(given) == ("seed=01", "seed=1234567890", "seed=1.5", "experts.seed=1")


def test_cells_know_where_they_live(tmp_path: Path) -> None:
    grid = [[f"setup={setup}", f"seed={seed}", "recipe.epochs=7"] for setup in ("I", "III") for seed in (0, 3)]
    cells = make_cells(grid, compose_in(tmp_path))
    found = [(cell.names["setup"], cell.seed, cell.epochs) for cell in cells]
    assert found == [("I", 0, 7), ("I", 3, 7), ("III", 0, 7), ("III", 3, 7)]
    for cell, overrides in zip(cells, grid, strict=True):
        assert cell.overrides == tuple(overrides)
        assert cell.run == RunFolder.of(check(compose_in(tmp_path)(overrides)).plain)
        assert cell.problem == ""
    assert cells[0].title == "digits I synthetic error mild seed=0"


def test_the_same_run_twice_is_one(tmp_path: Path) -> None:
    grid = [["method=mild", "seed=1"], ["method.rho.rule=theory", "seed=1"], ["method=mild", "seed=1"]]
    cells = make_cells(grid, compose_in(tmp_path))
    assert [cell.overrides for cell in cells] == [("method=mild", "seed=1")]
    counting = Mock(side_effect=compose)
    cells = make_cells([[f"seed={seed}"] for seed in range(50)], counting)
    assert (len(cells), counting.call_count) == (50, 1)  # seeds share a config
    prices = ["[1,0.5,0.1]", "{expert 3: 0.1, expert 1: 1.0, expert 2: 0.5}", "[1,0.1,0.5]"]
    grid = [["setup=I", "cost=error_plus_cost", f"cost.prices={one}"] for one in prices]
    assert len(make_cells(grid, compose_in(tmp_path))) == 2


@pytest.mark.parametrize(
    ("given", "start"),
    [
        ("seed=4294967296", "seed=4294967296: "),
        ("trainer.devices=2", "trainer.devices: "),
        ("recipe.compile=False", ""),
        ("dataset=table dataset.path=none.csv", "dataset.path=none.csv: "),
    ],
)
def test_a_cell_knows_why_it_cannot_be_run(tmp_path: Path, given: str, start: str) -> None:
    [cell] = make_cells([given.split()], compose_in(tmp_path))
    assert cell.problem.startswith(start)
    assert bool(cell.problem) == bool(start)
    assert "1 missing" in listing([cell])


def test_a_cell_knows_its_data(tmp_path: Path) -> None:
    given = ["dataset=mmlu_sim", "logger._target_=tests.metrics_example.Mine"]
    [cell] = make_cells([given], compose_in(tmp_path))
    assert len(cell.data) == 16
    assert cell.own_modules == {"tests.metrics_example"}
    assert f"runs_dir='{tmp_path}'" in cell.places


def test_listing_and_results(tmp_path: Path) -> None:
    cells = some_cells(tmp_path, 5)
    finish(cells[0], 0.2)
    finish(cells[1], 0.4)
    cells[2].run.checkpoints.mkdir(parents=True)
    (cells[2].run.checkpoints / "last.ckpt").touch()
    assert [cell.run.standing for cell in cells] == ["finished", "finished", "begun", "missing", "missing"]
    text = listing(cells)
    assert re.findall(r"\d (?:finished|begun|missing)", text) == ["2 finished", "1 begun", "2 missing"]
    assert "0:05:00" in text  # three runs of 100 s
    assert [line.rpartition("  ")[2] for line in text.splitlines()[4:7]] == ["100 s"] * 3
    assert "0:08:20" in listing(cells, force=True)
    header, rows = results_table(cells)
    expected = {"variant": tmp_path.name, "seeds": "2/5", "deferral loss": "0.3000", "std": "0.1414"}
    assert dict(zip(header, rows[0], strict=True)) == {**cells[0].names, **expected}
    guarded = replace(example_metrics().guarded, deferral_loss=0.3)
    write_json(cells[1].run.path / "metrics.json", example_metrics(0.4, guarded=guarded).as_json())
    header, rows = results_table(cells)
    assert dict(zip(header, rows[0], strict=True))["guarded"] == "0.2500"
    # one method whose guard changes the loss is enough for the column
    other = replace(cells[0], names={**cells[0].names, "method": "ce"})
    header, rows = results_table([other, cells[1]])
    assert header[-3:] == ["deferral loss", "std", "guarded"]
    assert [row[-3:] for row in rows] == [["0.2000", "-", "0.2000"], ["0.4000", "-", "0.3000"]]
    in_dollars = [replace(cell, prices=Prices(error_price=2.0)) for cell in cells[:2]]
    assert results_table(in_dollars)[1][0][-3:-1] == ["$0.6000", "$0.2828"]


def test_the_estimate_is_the_mean_of_finished_runs_of_the_same_dataset_and_epochs(tmp_path: Path) -> None:
    cells = some_cells(tmp_path)
    assert listing(cells).count("?") == 3
    for cell, seconds in zip(cells[:2], (20.0, 60.0), strict=True):
        finish(cell)
        write_json(cell.run.path / "timing.json", {"total_seconds": seconds})
    lines = listing(cells).splitlines()
    assert lines[4].split() == ["digits", "mild", "2", "missing", "40", "s"]
    assert "0:00:40" in lines[-1]
    assert " 0 s" not in "\n".join(lines[:-1])  # a finished run takes no more time
    assert listing([*cells[:2], replace(cells[2], epochs=4)]).count("?") == 1


def test_variants_of_one_name_are_told_apart() -> None:
    """Two noises and two rules of ρ: four cells, four texts, in the listing and in the results."""
    values = [(rule, noise) for rule in ("theory", "uniform") for noise in (0, 0.2)]
    grid = [[f"method.rho.rule={rule}", f"cost.noise={noise}", "seed=0"] for rule, noise in values]
    cells = make_cells(grid, compose)
    texts = [names[-1] for names in named(cells).values()]
    assert len(set(texts)) == 4
    assert "mild (cost.noise=0.2 rho.rule=theory)" in texts
    assert all(text in listing(cells) for text in texts)
    assert [row[4] for row in results_table(cells)[1]] == texts
    assert named(cells[:1])[cells[0]][-1] == "mild"
    assert [names[-1] for names in named(cells[:2]).values()] == ["mild (cost.noise=0)", "mild (cost.noise=0.2)"]


PAPER_SETS = "cifar10,cifar100,svhn"
# experiment: datasets, setups, experts, cost
EXPERIMENTS = {
    "table1_error": (f"{PAPER_SETS},tiny_imagenet", "I,II,III", "synthetic", "error"),
    "table1_cost": (f"{PAPER_SETS},tiny_imagenet", "I,II,III", "synthetic", "error_plus_cost"),
    "table2_error": (PAPER_SETS, "I,II,III", "trained", "error"),
    "table2_cost": (PAPER_SETS, "I,II,III", "trained", "error_plus_cost"),
    "table4": (PAPER_SETS, "severe", "trained,synthetic", "error"),
    "noise": ("cifar10,svhn", "III", "synthetic", "error_plus_cost"),
}


@pytest.mark.slow
@pytest.mark.measured
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_experiments_pin_rho(experiment: str) -> None:
    """The paper's ρ, whichever method files are changed."""
    assert sweep_axes(["experiment=noise"])["cost.noise"] == "0.0,0.2"
    axes = sweep_axes([f"experiment={experiment}"])
    cfg = to_plain(compose([f"experiment={experiment}", "method=mild"]))
    found = (axes["dataset"], *(axes.get(group, cfg[group]["name"]) for group in ("setup", "experts", "cost")))
    assert found == EXPERIMENTS[experiment]
    assert len(axes["seed"].split(",")) == 5
    assert {"mild", "tdef", "mild_uniform", "tdef_uniform"} <= set(axes["method"].split(","))
    assert to_plain(compose(["method=tdef"]))["method"]["rho"] == 1.0
    pinned = {"rule": "theory", "total": 1.0, "offset": 5.0, "counts": "reward_mass", "groups": None, "values": None}
    assert cfg["method"]["rho"] == pinned


def test_controls_have_the_mean_of_milds_rho() -> None:
    costs = torch.rand(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given: dict[str, Any] = {"costs": costs, "num_classes": 4, "decision": "argmax"}
    names = ("mild", "mild_cheapest", "mild_uniform", "tdef_uniform")
    rho = {name: make(check(compose([f"method={name}"])).method, **given).rho for name in names}
    assert rho["mild"].std() > 0
    assert rho["mild_cheapest"].std() > rho["mild"].std()
    for name in ("mild_uniform", "tdef_uniform"):
        assert torch.allclose(rho[name], rho["mild"].mean().expand(4))
