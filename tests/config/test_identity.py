"""The name of a run: everything that can change its result, and nothing else."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from l2d.config import compose, to_plain
from l2d.config.identity import apart, cell_path, choices, expert_identity, places, relevant, settings_of, variant
from l2d.utils.errors import ParameterError


def config(*overrides: str) -> dict[str, Any]:
    return to_plain(compose(overrides))


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    return config()


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    return config("experts=trained", "dataset=mmlu_sim", "setup=I", "router=minilm")


def changed(plain: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    found = deepcopy(dict(plain))
    *way, last = key.split(".")
    node = found
    for part in way:
        node = node[part]
    node[last] = value
    return found


SAME: list[tuple[str, Any]] = [
    *(("method.rho.offset", 5), ("method.rho.total", 1), ("recipe.epochs", 15.0), ("seed", 1)),
    *(("runs_dir", "x"), ("data_dir", "y"), ("progress", False), ("force", True), ("dry_run", True)),
    *(("logger", {"name": "wandb", "project": "x"}), ("setup.prices", [1, 2, 3, 4, 5])),
    *(("method.about", {"title": "Another title"}), ("dataset.about", {}), ("tune.folds", 7)),
    *((f"{group}._target_", "elsewhere.Moved") for group in ("method", "router", "dataset")),
    ("recipe.optimizer._target_", "elsewhere.moved.Adam"),
]
OTHER: list[tuple[str, Any]] = [
    *(("method.rho.offset", 4), ("method.rho.offset", "5"), ("decision", "posterior"), ("recipe.epochs", 14)),
    *(("router.width", 32), ("checkpoint", "best"), ("validation_fraction", 0.2), ("fold", "1/5")),
    ("router.zero_init", 1),  # true is no number
    *(("recipe.precision", "bf16-mixed"), ("recipe.augment", "crop"), ("recipe.patience", 3)),
    *(("cost.noise", 0.1), ("setup.coverage", [0.5, 0.2, 0.1, 0.1, 0.1]), ("recipe.optimizer.lr", 0.1)),
    *(("recipe.optimizer._target_", "torch.optim.AdamW"), ("trainer.deterministic", True)),
    *(("method.name", "other"), ("router.name", "other"), ("sampling", "over")),
]


def test_values_that_can_change_the_result_are_in_the_name(default: dict[str, Any]) -> None:
    for key, value in SAME:
        assert variant(changed(default, key, value)) == variant(default), key
    for key, value in OTHER:
        assert variant(changed(default, key, value)) != variant(default), key
    former = {**default, "aux": "none", "aux_weight": 2.0, "recipe": {**default["recipe"], "ema": 0.0}}
    assert variant(former) == variant(default)
    assert variant({**former, "aux": "label"}) != variant(default)


def backwards(value: Any) -> Any:
    return {key: backwards(value[key]) for key in reversed(value)} if isinstance(value, dict) else value


def test_the_order_of_keys_does_not_count(trained: dict[str, Any]) -> None:
    assert list(backwards(trained)) != list(trained)
    assert variant(backwards(trained)) == variant(trained)


@pytest.mark.parametrize("key", ["experts.network", "dataset.encoder", "experts.recipe.optimizer", "method"])
def test_moving_a_class_orphans_no_run_and_no_experts(trained: dict[str, Any], key: str) -> None:
    node = trained
    for part in key.split("."):
        node = node[part]
    moved = changed(trained, f"{key}._target_", f"elsewhere.deep.{node['_target_'].rpartition('.')[2]}")
    assert variant(moved) == variant(trained)
    assert cell_path(moved) == cell_path(trained)
    assert expert_identity(moved) == expert_identity(trained)


def test_another_optimizer_is_another_variant(trained: dict[str, Any]) -> None:
    for key in ("recipe.optimizer._target_", "experts.recipe.optimizer._target_"):
        assert variant(changed(trained, key, "torch.optim.SGD")) != variant(trained)
    other = changed(trained, "experts.recipe.optimizer._target_", "torch.optim.SGD")
    assert expert_identity(other) != expert_identity(trained)
    assert expert_identity(changed(trained, "recipe.optimizer._target_", "torch.optim.SGD")) == expert_identity(trained)


def test_an_expert_may_be_called_about_or_name(default: dict[str, Any]) -> None:
    """Only the metadata of components is left out, nothing else of that name."""
    prices = {"about": 1, "name": 2}
    assert relevant(changed(default, "cost.prices", prices))["cost"]["prices"] == prices


@pytest.mark.slow
def test_where_data_lie_does_not_count() -> None:
    plain = config("dataset=table", "dataset.path=a.csv")
    assert variant(plain) == variant(changed(plain, "dataset.path", "b.csv"))
    assert variant(plain) != variant(changed(plain, "dataset.label", "answer"))
    models = config("experts=llm", "experts.table=a.csv")
    within = changed(plain, "dataset.agree", "within:0.01")
    assert variant(plain) != variant(within)
    assert expert_identity(plain) == expert_identity(within)
    del (dataset := dict(plain["dataset"]))["agree"]  # as in a run of an earlier version
    assert variant(plain) == variant({**plain, "dataset": dataset})
    assert variant(models) == variant(changed(models, "experts.table", None))
    assert expert_identity(plain) == expert_identity(changed(plain, "dataset.path", "b.csv"))
    assert expert_identity(plain) != expert_identity(changed(plain, "dataset.label", "answer"))


def test_models_in_folders_are_known_by_name_wherever_they_are_given(tmp_path: Path) -> None:
    folder = str(tmp_path / "m")
    Path(folder).mkdir()

    def naming(model: str) -> dict[str, Any]:
        router = {"model": model, "reads": {"model": model}}
        return {"experts": {"models": [model, "org/name"]}, "router": router, "dataset": {"encoder": {"model": model}}}

    assert relevant({**naming(folder), "cost": {"model": folder}}) == {**naming("m"), "cost": {"model": folder}}


def test_a_place_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    found = places({"data_dir": "~/data", "dataset": {"path": r"it's\a.csv"}})
    assert found == ("data_dir='/home/me/data'", rf"dataset.path='{tmp_path}/it\'s\\a.csv'")


def test_path() -> None:
    plain = config("setup=I", "cost=error_plus_cost", "method=tdef")
    assert cell_path(plain) == f"digits/I/synthetic/error_plus_cost/tdef/{variant(plain)}"
    assert len(variant(plain)) == 8
    assert list(choices(plain)) == ["dataset", "setup", "experts", "cost", "method"]


@pytest.mark.parametrize("name", ["a b", "../up", "a/b", "", ".hidden"])
def test_a_name_that_can_be_no_folder(default: dict[str, Any], name: str) -> None:
    with pytest.raises(ParameterError, match=r"^method\.name"):
        choices(changed(default, "method.name", name))


def test_settings_are_flat_and_hold_what_counts(default: dict[str, Any]) -> None:
    found = settings_of(default)
    assert found["recipe.epochs"] == 15
    assert found["method.rho.offset"] == 5.0
    assert found["recipe.optimizer._target_"] == "Adam"
    assert not {"seed", "runs_dir", "method._target_"} & found.keys()


def test_what_tells_settings_apart() -> None:
    one, two = {"method.rho": 1, "recipe.epochs": 3, "fold": None}, {"method.rho": 2, "recipe.epochs": 3, "fold": "1/5"}
    assert apart([one, two]) == ["rho=1", "fold=1/5 rho=2"]
    assert apart([one, one]) == ["", ""]
    assert apart([one, {**one, "method.rho": True}]) == ["rho=1", "rho=True"]


def test_every_path_is_given_to_workers_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """minilm stays a name even where there is a folder of that name."""
    monkeypatch.chdir(tmp_path)
    for folder in ("m", "minilm"):
        (tmp_path / folder).mkdir()
    config = {
        "runs_dir": "r", "data_dir": "d", "dataset": {"path": "t.csv"},
        "experts": {"table": "o.csv", "models": ["m", "hub/name"]}, "router": {"model": "m", "reads": {"model": "minilm"}},
    }  # fmt: skip
    there = {key: f"'{tmp_path}/{name}'" for key, name in (("runs_dir", "r"), ("data_dir", "d"))}
    there |= {"dataset.path": f"'{tmp_path}/t.csv'", "experts.table": f"'{tmp_path}/o.csv'"}
    there |= {"experts.models": f"['{tmp_path}/m','hub/name']", "router.model": f"'{tmp_path}/m'"}
    there |= {"router.reads.model": "'minilm'"}
    assert places(config) == tuple(f"{key}={value}" for key, value in there.items())
