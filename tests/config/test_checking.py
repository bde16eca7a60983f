"""The values that a config may hold: every wrong key or value is one line that begins with the key, and nothing untrusted is imported."""

import re
import sys
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from l2d.assembly.make import find, make
from l2d.config import CONF, Component, Recipe, check, check_search, compose, groups, to_plain
from l2d.config.checking import MOVED, is_trusted, read_component
from l2d.config.identity import variant
from l2d.config.signatures import read_signature
from l2d.runs.folder import RunFolder
from l2d.utils.errors import L2DError, ParameterError

TABLE, TRAINED = "dataset=table", "experts=trained"


@cache
def composed(choices: tuple[str, ...]) -> DictConfig:
    config = compose(choices)
    assert isinstance(config, DictConfig)
    return config


def configured(given: list[str]) -> DictConfig:
    """compose(given), which would take its tenth of a second for every case; keys may be new without a +."""
    choices = tuple(text for text in given if text.partition("=")[0] in groups())
    config = deepcopy(composed(choices))
    for one in OverridesParser.create().parse_overrides([text for text in given if text not in choices]):
        OmegaConf.update(config, one.key_or_group, one.value(), force_add=True)
    return config


@pytest.mark.slow
def test_this_is_how_configs_are_composed() -> None:
    given = ["dataset=mmlu_sim", "seed=3", "router.reads=null", "cost=error_plus_cost", "cost.prices={a: 1, b: 2}"]
    assert to_plain(configured(given)) == to_plain(compose(given))


def refusal(given: list[str]) -> str:
    with pytest.raises(ParameterError) as caught:
        check(configured(given))
    said = str(caught.value)
    assert "\n" not in said
    return said


# One for each place in a config; tests/utils/test_parameters.py has the kinds of values. A word of the problem, and overrides of
# which the last is refused.
WRONG_VALUES = {
    "equal to 0": ["method.tau=-1", "recipe.optimizer.weight_decay=-1"],
    "equal to 1": ["experts=trained; experts.recipe.epochs=0", "recipe.epochs=0", "trainer.devices=0"],
    "at least 2": ["setup.coverage=[1.0]"],
    "less than 1": ["dataset=table; dataset.test_fraction=1"],
    "greater than 0": ["recipe=fast; recipe.optimizer.lr=-3"],
    "8": ["dataset=mmlu_sim; router=minilm; router.reads.max_length=7"],
    "_target_": ["dataset=mmlu_sim; router.reads=3", "experts=trained; experts.recipe.optimizer=adam"],
    "mapping": ["experts=trained; experts.recipe=3"],
    "multiple of 2": ["experts=trained; experts.network.width=3"],
    "string": ["fold=2"],
    "2/5": ["fold=0/5", "fold=6/5"],
    "'online'": ["logger=wandb; logger.mode=onlin"],
    "'default'": ["recipe.compile=true"],
    "checkpoint": ["recipe.patience=3"],
    "router.model": ["dataset=table; router=minilm_tuned; router.reads.model=other"],
}
# Overrides, the beginning of the line, and a word of the problem.
WRONG = [
    ("router=mlp; router.reads._target_=l2d.data.text.encoders.Hash", "router.reads._target_=", "class"),
    ("experts=human", "experts.dataset=digits", "'cifar10'"),
    ("cost=error_plus_cost; cost.prices={2024: -1}", "cost.prices.2024=-1", "equal to 0"),
    ("method.tau={_target_: shutil.copy}", "method.tau=", "number"),
    ("method.rho.values=[1,0,2]", "method.rho.values[2]=0", "greater than 0"),
    ("setup.coverage=[0.5,0.2]", "setup.coverage=[0.5, 0.2]", "0.7"),
    *((given, f"{given.split('; ')[-1]}: ", word) for word, all_given in WRONG_VALUES.items() for given in all_given),
]


@pytest.mark.slow
@pytest.mark.parametrize(("given", "start", "word"), WRONG, ids=[given for given, *_ in WRONG])
def test_wrong_values(given: str, start: str, word: str) -> None:
    said = refusal(given.split("; "))
    assert said.startswith(start), said
    assert word in said


RIGHT_VALUES = [
    "fold=5/5", "method.rho=5.2", "checkpoint=best; recipe.patience=1", "recipe.compile=False", "setup.experts=[2024,a]",
    "method=tdef; method.rho=[1,2,3,4,5]", "cost=error_plus_cost; cost.prices=coverage", "setup.coverage=[0.3,0.3,0.4]",
    "dataset=cifar10; experts=human; setup.coverage=[1]", "recipe.optimizer.betas=[0.9,0.95]",
    "recipe.optimizer._target_=torch.optim.SGD; recipe.optimizer.momentum=0.9",
]  # fmt: skip


@pytest.mark.parametrize("given", RIGHT_VALUES)
def test_right_values(given: str) -> None:
    assert check(configured(given.split("; ")))


def test_numbers_are_names_of_experts() -> None:
    experiment = check(configured(["cost=error_plus_cost", "cost.prices={2024: 1, a: 0}"]))
    assert experiment.cost.arguments["prices"] == experiment.plain["cost"]["prices"] == {"2024": 1, "a": 0}


UNKNOWN = (
    "dataset.colour recipe.lr sed recipe.optimizer.momentun method.rho.size method.costs router.num_outputs router.reads.size"
    " experts.network.mean experts.recipe.lr"
)


@pytest.mark.parametrize("key", UNKNOWN.split())
def test_unknown_keys(key: str) -> None:
    """Also keys that the run itself gives: method.costs, router.num_outputs, experts.network.mean."""
    given = [TRAINED, "router=mlp"] if key.count(".") > 1 and not key.startswith(("recipe", "method")) else []
    assert re.match(rf"{re.escape(key)}(=3)?: unknown key", refusal([*given, f"{key}=3"]))


def test_the_key_that_was_meant() -> None:
    assert refusal(["sed=1"]).endswith("did you mean seed?")
    assert refusal(["setup.covrage=[1]"]).endswith("did you mean coverage?")
    assert "there are width, stem, zero_init" in refusal(["router.xxxxx=1"])


MISSING = {
    "": "method.tau recipe.epochs recipe.optimizer setup.coverage seed method method.rho.total",
    TRAINED: "experts.recipe experts.recipe.patience",
    "router=minilm": "router.reads.max_length",
}


@pytest.mark.slow
@pytest.mark.parametrize(("given", "key"), [(given, key) for given, keys in MISSING.items() for key in keys.split()])
def test_missing_keys(given: str, key: str) -> None:
    """For example in a config.yaml that somebody edited."""
    config = to_plain(configured(given.split()))
    *way, last = key.split(".")
    node = config
    for part in way:
        node = node[part]
    del node[last]
    with pytest.raises(ParameterError) as caught:
        check(config)
    assert re.match(rf"{re.escape(key)}(=None)?: (is missing|must be)", str(caught.value))


@pytest.mark.parametrize(("group", "value"), [("method", None), ("router", "mlp"), ("recipe", ["a"]), ("setup", None)])
def test_a_group_that_is_no_mapping(group: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        check({**to_plain(configured([])), group: value})
    assert str(caught.value).startswith(f"{group}={value}: ")


@pytest.mark.parametrize("target", [3, "", "CompSum", "l2d.methods.comp_sum.CompSumm", "no_such.module.Mine"])
def test_classes_that_there_are_not(target: Any) -> None:
    config = to_plain(configured([]))
    config["method"]["_target_"] = target
    with pytest.raises(ParameterError) as caught:
        check(config)
    assert str(caught.value).startswith(f"method._target_={target}: " if isinstance(target, str) else "method")


def test_what_comes_out() -> None:
    experiment = check(compose(["seed=3", "runs_dir='~/runs'", TRAINED, "dataset=mmlu_sim", "setup=I"]))
    assert experiment.seed == experiment.settings.seed == 3
    assert experiment.runs_dir == Path("~/runs").expanduser()
    assert experiment.method.target == "l2d.methods.comp_sum.CompSum"
    assert experiment.method.name == "mild"
    assert "name" not in experiment.method.arguments
    assert experiment.method.arguments["rho"]["offset"] == 5.0
    assert "reads" not in experiment.router.arguments
    assert experiment.setup.coverage == [0.7, 0.2, 0.1]
    encoder = experiment.dataset.arguments["encoder"]
    assert isinstance(encoder, Component)
    assert (encoder.key, encoder.name) == ("dataset.encoder", "hashed")
    network, recipe = (experiment.experts.arguments[name] for name in ("network", "recipe"))
    assert isinstance(recipe, Recipe)
    assert network.partial
    assert recipe.optimizer.partial
    assert (recipe.compile, experiment.recipe.compile) == ("false", "false")
    assert "tune" not in experiment.plain
    assert experiment.plain["recipe"]["compile"] == "false"


def test_a_config_that_was_written_and_read_again_is_the_same() -> None:
    once = check(compose([TRAINED, "trainer.data_on_device=true"]))
    assert check(dict(once.plain)) == once


# Classes of the user's.
MINE = """
from pathlib import Path

Path(__file__).with_name("imported").touch()


class Named:
    def __init__(self, *, name: str = "default", about: str = "default", options: dict = {}, parts: list = []):
        self.name, self.about, self.options, self.parts = name, about, options, parts


class Unnamed:
    def __init__(self, *, options: dict, recipe: dict):
        self.options, self.recipe = options, recipe


class Open:
    def __init__(self, **others):
        self.others = others


def function(**_): ...
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """my_classes.inner.Named, in a package that leaves a file when it is imported."""
    inner = tmp_path / "my_classes" / "inner.py"
    inner.parent.mkdir()
    inner.write_text(MINE)
    (inner.parent / "__init__.py").write_text("from pathlib import Path\nPath(__file__).with_name('parent').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("my_classes", "my_classes.inner"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    read_signature.cache_clear()
    return inner.parent


def imported(folder: Path) -> bool:
    return (folder / "parent").exists() or (folder / "imported").exists()


NESTED = {"name": "inner", "about": {"name": "deep"}, "list": [{"name": "one", "about": 2}]}


def test_a_class_gets_a_name_only_if_it_takes_one(mine: Path) -> None:
    node = {"name": "given", "about": "shown", "options": NESTED}
    named = read_component("dataset", {**node, "_target_": "my_classes.inner.Named", "parts": [NESTED]}, None)
    recipe = {"flour": 3}  # only a parameter that is annotated as one is a recipe
    unnamed = {**node, "_target_": "my_classes.inner.Unnamed", "recipe": recipe}
    other = read_component("dataset", unnamed, None)
    assert not imported(mine)
    assert named.name == other.name == "given"
    built = make(named)
    assert (built.name, built.about, built.options, built.parts) == ("given", "shown", NESTED, [NESTED])
    assert vars(make(other)) == {"options": NESTED, "recipe": recipe}
    with pytest.raises(ParameterError, match=r"^dataset\.size: unknown key"):
        read_component("dataset", {**unnamed, "size": 3}, None)
    anything = read_component("dataset", {"_target_": "my_classes.inner.Open", "name": "n", "size": 3}, None)
    assert make(anything).others == {"size": 3}


@pytest.mark.usefixtures("mine")
def test_components_within_components() -> None:
    inner = {"_target_": "my_classes.inner.Named", "name": "inner"}
    node = {"_target_": "my_classes.inner.Named", "name": "outer", "options": {"a": [inner]}, "parts": [inner, 3]}
    component = read_component("dataset", node, None)
    assert component.arguments["options"]["a"][0].key == "dataset.options.a[1]"
    built = make(component)
    assert [built.options["a"][0].name, built.parts[0].name, built.parts[1]] == ["inner", "inner", 3]
    wrong = {**node, "parts": [3, {**inner, "size": 3}]}
    with pytest.raises(ParameterError, match=r"^dataset\.parts\[2\]\.size: "):
        read_component("dataset", wrong, None)


@pytest.mark.usefixtures("mine")
def test_a_class_that_is_called_later_may_lack_arguments() -> None:
    inner = {"_target_": "my_classes.inner.Unnamed", "options": {}}
    node = {"_target_": "my_classes.inner.Named", "parts": [{**inner, "_partial_": True}]}
    assert make(read_component("dataset", node, None)).parts[0](recipe={"flour": 3}).recipe == {"flour": 3}
    with pytest.raises(ParameterError, match=r"^dataset\.parts\[1\]\.recipe: is missing"):
        read_component("dataset", {**node, "parts": [inner]}, None)


TRUSTED = (
    "l2d.methods.comp_sum.CompSum l2d.networks.vision.ResNet18 l2d.data.text.tokens.Tokens torch.optim.Adam"
    " l2d.lightning.muon.Muon l2d.logs.dataset.ServerLog"
)
# Functions, names that a module imports, parts of a class, and classes of other rooms.
UNTRUSTED = (
    "l2d.lightning.muon.Stacks l2d.lightning.learner.Learner torch.optim.lr_scheduler.StepLR torch.load"
    " l2d.methods.comp_sum.Method l2d.methods.comp_sum.CompSum.loss l2d.utils.files.write_text l2d.data.sheet.write_sheet"
    " l2d.data.sets.prepared.np.save l2d.data.sheet.Path l2d.config.schema.Component l2d.router.router.Router os.system"
    " builtins.eval print"
)


def test_which_classes_a_file_may_name() -> None:
    assert [one for one in TRUSTED.split() if not is_trusted(one, [])] == []
    assert [one for one in ("", *UNTRUSTED.split()) if is_trusted(one, [])] == []


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("trust", "expected"),
    [(None, True), ([], False), (["my_classes.inner"], True), (["other", "my_classes"], True), (["my_class"], False)],
)
def test_trust_in_a_module_of_ones_own(trust: list[str] | None, expected: bool) -> None:
    assert is_trusted("my_classes.inner.Named", trust) is expected
    assert is_trusted("os.system", trust) is (trust is None)


def test_a_run_folder_may_name_every_class_of_conf() -> None:
    written = "\n".join(file.read_text(encoding="utf-8") for file in CONF.rglob("*.yaml"))
    targets = {*re.findall(r"_target_: (l2d\.[\w.]+)", written)}
    assert "l2d.methods.comp_sum.CompSum" in targets
    assert [target for target in sorted(targets) if not is_trusted(target, [])] == []


@pytest.mark.parametrize(
    ("given", "key", "old"),
    [
        (["recipe=fast"], "recipe.optimizer", "l2d.learning.muon.Muon"),
        (["dataset=log"], "dataset", "l2d.serving.server.log_dataset.ServerLog"),
        (["method=ldam"], "method", "l2d.methods.ldam.LDAM"),
        (["method=focal"], "method", "l2d.methods.focal.Focal"),
        (["method=logit_adjustment"], "method", "l2d.methods.logit_adjustment.LogitAdjustment"),
        (["cost=error"], "cost", "l2d.costs.error.ErrorCost"),
        (["cost=error_plus_cost"], "cost", "l2d.costs.price_list.PriceList"),
        (["cost=columns"], "cost", "l2d.costs.price_columns.PriceColumns"),
    ],
)
def test_a_run_folder_of_an_earlier_version_is_read(given: list[str], key: str, old: str, tmp_path: Path) -> None:
    """Its config.yaml has the class paths of that version; the run keeps its identity."""
    new = to_plain(configured(given))
    written = deepcopy(new)
    node = written
    for part in key.split("."):
        node = node[part]
    node["_target_"] = old
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(written))
    (tmp_path / "metrics.json").touch()  # it is finished
    experiment = check(RunFolder(tmp_path).config(), trust=[])
    component: Any = experiment.recipe.optimizer if key == "recipe.optimizer" else getattr(experiment, key)
    assert component.trusted
    module, _, name = old.rpartition(".")
    assert component.target == f"{MOVED[module]}.{name}"
    assert find(component).__name__ == name
    assert variant(experiment.plain) == variant(check(new).plain)


@pytest.mark.parametrize("place", ["whole", "nested", "listed"])
def test_what_is_not_trusted_is_never_imported(mine: Path, place: str) -> None:
    evil = {"name": "evil", "_target_": "my_classes.inner.Named", "nonsense": 3}
    config = to_plain(configured(["dataset=mmlu_sim"]))
    if place == "whole":
        config["dataset"] = evil
    else:
        config["dataset"]["encoder"] = evil if place == "nested" else {"parts": [evil]}
    experiment = check(config, trust=[])  # its keys are not even compared with what its source says
    with pytest.raises(L2DError, match=r"^dataset.*--trust my_classes\.inner"):
        make(experiment.dataset)
    assert not imported(mine)
    del evil["nonsense"]
    trusted = check(config, trust=["my_classes"])
    assert not imported(mine)
    make(trusted.dataset)
    assert imported(mine)


@pytest.mark.usefixtures("mine")
def test_only_classes_are_built() -> None:
    component = read_component("dataset", {"_target_": "my_classes.inner.function"}, None)
    with pytest.raises(ParameterError, match=r"^dataset\._target_=my_classes\.inner\.function: "):
        make(component)
    assert not is_trusted("my_classes.inner.function", ["my_classes"])


def test_what_a_trusted_module_imports_is_not_part_of_it() -> None:
    """With `from subprocess import Popen` in a module, its Popen is not the module's to build."""
    assert not is_trusted("tests.running.RunFolder", ["tests"])
    assert is_trusted("tests.forker.Child", ["tests"])


def search(**changes: Any) -> Any:
    return {**to_plain(composed(()))["tune"], "search": "paper", **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"search": "random"}, "tune.search=random"),
        ({"seeds": []}, "tune.seeds"),
        ({"final_seeds": []}, "tune.final_seeds"),
        ({"values": {"method.tau": []}}, "tune.values.method.tau=[]"),
        ({"values": {"seed": [3]}}, "tune.values={'seed': [3]}"),
        ({"offsets": [1.0], "values": {"method.tau": [1]}}, "tune.offsets=[1.0]: "),
    ],
)
def test_keys_of_a_search(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError) as caught:
        check_search(search(**changes))
    assert str(caught.value).startswith(said)


def test_a_search_that_is_right() -> None:
    options = check_search(search(search="paper", offsets=[-1, 2.5]))
    assert (options.search, options.offsets, options.seeds) == ("paper", [-1, 2.5], [0])
    assert check_search(compose().tune).search is None


def test_a_key_of_earlier_versions_is_read() -> None:
    plain = to_plain(composed(()))
    assert (
        check({**plain, "stop_after": None, "aux": "label", "recipe": {**plain["recipe"], "ema": 0.5}}).plain
        == check(plain).plain
    )


def test_the_recipe_of_machines_beside_people_is_written_in_one_way() -> None:
    """Or the same setting would have two folder names."""
    given = ["dataset=cifar10", "experts=human", "experts.machine.recipe.compile=False"]
    assert check(compose(given)).plain["experts"]["machine"]["recipe"]["compile"] == "false"


@pytest.mark.parametrize(
    ("rule", "trust", "expected"),
    [
        ("my_rules.inner.same", None, True),
        ("my_rules.inner.same", ["my_rules"], True),
        ("my_rules.inner.same", [], False),
        ("my_rules.inner.same", ["my_rule"], False),
        ("within:0.01", [], True),
        ("json:a.b", [], True),
    ],
)
def test_a_function_that_compares_answers_needs_trust(rule: str, trust: list[str] | None, expected: bool) -> None:
    config = to_plain(configured(["dataset=table", "dataset.path=x.csv", f"dataset.agree={rule}"]))
    dataset = check(config, trust=trust).dataset
    if expected:
        assert make(dataset).agreement.rule == rule
        return
    with pytest.raises(L2DError, match=r"^dataset\.agree: .*--trust my_rules\.inner"):
        make(dataset)
